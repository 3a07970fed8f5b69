"""Connections between the members of a group.

Each member dials all others and sends over its own connections; it listens for theirs. A link that
is down loses what is sent: the core sends it again. Nothing waits here, and what a peer does not
read is bounded by the core's window for it.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final, cast

from cometmq.protocol.host import Host
from cometmq.raft.messages import Message
from cometmq.transport.dial import split_address
from cometmq.transport.tls import MutualTls

from ..errors import BrokenStream
from .wire import VERSION, Frames, Hello, decode_hello, decode_message, frame

log = logging.getLogger(__name__)
RETRY_S: Final = 0.2
CONNECT_TIMEOUT_S: Final = 1.0
HANDSHAKE_TIMEOUT_S: Final = 5.0
UNHEARD_MS: Final = 2000
"""Bytes that the other machine does not acknowledge for so long end a connection: a new one finds
a way sooner than the old one, whose packets come at ever longer intervals."""
OUTPUT_BYTES_MAX: Final = 32 * 1024 * 1024
INCOMING_MAX: Final = 256
Received = Callable[[str, Message], None]


class Links:
    def __init__(self, hello: Hello, received: Received, tls: MutualTls | None = None) -> None:
        """`hello` without a receiver: what this member says of itself."""
        self._hello = hello
        self._received = received
        self._tls = tls
        self._outgoing: dict[str, _Outgoing] = {}
        self._incoming: set[_Incoming] = set()
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> Host:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            self._accept,
            host,
            port,
            ssl=self._tls.listening if self._tls else None,
            ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S if self._tls else None,
        )
        name = self._listener.sockets[0].getsockname()
        return Host(name[0], name[1])

    def know(self, addresses: dict[str, str]) -> None:
        """Where the others are; who moved is dialled anew, who is gone no more."""
        for member, link in list(self._outgoing.items()):
            if addresses.get(member) != link.address:
                link.stop()
                del self._outgoing[member]
        tls = self._tls.dialling if self._tls else None
        for member, address in addresses.items():
            if member != self._hello.sender and member not in self._outgoing:
                self._outgoing[member] = _Outgoing(self._hello_to(member), address, tls)

    def send(self, to: str, message: Message) -> None:
        link = self._outgoing.get(to)
        if link is not None:
            link.send(message)

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for link in list(self._incoming):
            link.close()
        tasks = [link.stop() for link in self._outgoing.values()]
        self._outgoing.clear()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _hello_to(self, member: str) -> Hello:
        own = self._hello
        return Hello(own.version, own.group, own.sender, member, own.file_bytes)

    def _accept(self) -> "_Incoming":
        return _Incoming(self)

    # -- what incoming connections tell ----------------------------------------------------------

    def opened(self, link: "_Incoming") -> bool:
        self._incoming.add(link)
        return len(self._incoming) <= INCOMING_MAX

    def closed(self, link: "_Incoming") -> None:
        self._incoming.discard(link)

    def received(self, sender: str, message: Message) -> None:
        self._received(sender, message)

    def check(self, hello: Hello) -> None:
        """BrokenStream when who speaks is none of us."""
        own = self._hello
        if hello.version != VERSION:
            raise BrokenStream(f"{hello.sender} speaks version {hello.version}, we {VERSION}")
        if hello.group != own.group:
            raise BrokenStream(f"{hello.sender} is of group {hello.group}, we are of {own.group}")
        if hello.receiver != own.sender:
            raise BrokenStream(
                f"{hello.sender} takes us for {hello.receiver}, we are {own.sender}: do all have "
                "the same dLegerPeers?"
            )
        if hello.file_bytes != own.file_bytes:
            raise BrokenStream(
                f"{hello.sender} has CommitLog files of {hello.file_bytes} bytes, we of "
                f"{own.file_bytes}: mappedFileSizeCommitLog must be the same"
            )


class _Incoming(asyncio.Protocol):
    def __init__(self, links: Links) -> None:
        self._links = links
        self._frames = Frames()
        self._sender: str | None = None
        self._transport: asyncio.Transport | None = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._links.opened(self):
            log.error("too many connections of members: %d", INCOMING_MAX)
            self.close()

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._frames.feed(data):
                self._take(body)
        except BrokenStream as error:
            log.error("a member's connection is closed: %s", error)
            self.close()

    def _take(self, body: bytes) -> None:
        if self._sender is None:
            hello = decode_hello(body)
            self._links.check(hello)
            self._sender = hello.sender
        else:
            self._links.received(self._sender, decode_message(body))

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's call
        self._transport = None
        self._links.closed(self)


class _Outgoing(asyncio.Protocol):
    def __init__(self, hello: Hello, address: str, tls: ssl.SSLContext | None) -> None:
        self.address = address
        self._hello = hello
        self._tls = tls
        self._transport: asyncio.Transport | None = None
        self._over: asyncio.Future[None] | None = None
        self._was_up = True
        self._task = asyncio.create_task(self._keep())

    def send(self, message: Message) -> None:
        transport = self._transport
        if transport is None or transport.get_write_buffer_size() > OUTPUT_BYTES_MAX:
            return
        transport.write(frame(message))

    def stop(self) -> "asyncio.Task[None]":
        self._task.cancel()
        return self._task

    async def _keep(self) -> None:
        while True:
            reason = "it was closed"
            try:
                await self._stay_connected()
            except (OSError, TimeoutError) as error:  # ssl.SSLError is one.
                reason = str(error) or "no answer"
            if self._was_up:
                log.info(
                    "no connection to member %s at %s: %s",
                    self._hello.receiver, self.address, reason,
                )  # fmt: skip
            self._was_up = False
            await asyncio.sleep(RETRY_S)

    async def _stay_connected(self) -> None:
        host, port = split_address(self.address)
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await loop.create_connection(lambda: self, host, port, ssl=self._tls)
            log.info("connected to member %s at %s", self._hello.receiver, self.address)
            self._was_up = True
            await self._over
        finally:
            if self._transport is not None:
                self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        found = transport.get_extra_info("socket")
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNHEARD_MS)
        self._transport.write(frame(self._hello))

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's call
        self._transport = None
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
