"""The other end of a connection, under full control: a bare socket, a transport that records."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Self

from cometmq.protocol.command import (
    Command,
    FrameParser,
    HeaderKind,
    Request,
    Response,
    encode_request,
    encode_response,
)
from cometmq.protocol.host import Host
from cometmq.transport.connection import Connection, Handler
from cometmq.transport.limits import Limits
from cometmq.transport.server import Server

ECHO, NOBODY_KNOWS = 10, 9999
RECEIVE_BYTES = 256 * 1024
POLL_S = 0.005


def echo(_: Connection, command: Command) -> Response:
    return Response(0, None, command.text_fields(), command.body)


def framed(
    code: int,
    opaque: int,
    body: bytes = b"",
    *,
    oneway: bool = False,
    fields: Mapping[str, str] | None = None,
) -> bytes:
    return b"".join(encode_request(Request(code, fields or {}, body), opaque, oneway=oneway))


def as_binary(code: int, opaque: int) -> bytes:
    """A request with a binary header: a response's frame without its response bit."""
    frame = bytearray(b"".join(encode_response(Response(code), opaque, HeaderKind.BINARY)))
    frame[17:21] = bytes(4)
    return bytes(frame)


async def until(fact: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(timeout_s):
        while not fact():
            await asyncio.sleep(POLL_S)


class Peer:
    """A socket that sends and reads only when told to."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._parser = FrameParser()
        self._commands: list[Command] = []

    @classmethod
    async def to(cls, address: Host, *, receive_buffer_bytes: int | None = None) -> Self:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer_bytes is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, tuple(address))
        return cls(made)

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    def send_what_fits(self, data: bytes) -> int:
        """Bytes that the other side and the buffers between took at once."""
        try:
            return self.socket.send(data)
        except BlockingIOError:
            return 0

    async def answer(self) -> Command:
        """The next command that comes."""
        while not self._commands:
            data = await self._receive()
            assert data, "the connection was closed before an answer came"
            self._commands = self._parser.feed(data)
        return self._commands.pop(0)

    async def answers(self, count: int) -> list[Command]:
        return [await self.answer() for _ in range(count)]

    async def rest(self) -> list[Command]:
        """All that still comes until the other side closes."""
        while data := await self._receive():
            self._commands += self._parser.feed(data)
        rest, self._commands = self._commands, []
        return rest

    async def raw(self) -> bytes:
        """All bytes that still come until the other side closes, whatever they are."""
        pieces = []
        while data := await self._receive():
            pieces.append(data)
        return b"".join(pieces)

    async def _receive(self) -> bytes:
        try:
            return await asyncio.get_running_loop().sock_recv(self.socket, RECEIVE_BYTES)
        except (ConnectionResetError, BrokenPipeError):
            return b""

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Recording(asyncio.Transport):
    """A transport that keeps every write by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def is_reading(self) -> bool:
        return not self.closed

    def close(self) -> None:
        self.closed = True


@contextlib.asynccontextmanager
async def serving(
    handlers: Mapping[int, Handler] | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    tls_required: bool = False,
    on_close: Callable[[Connection], None] | None = None,
    **limits: float,
) -> AsyncIterator[tuple[Server, Host]]:
    """A server on a free port, with limits as small as a test wants them."""
    server = Server(
        handlers if handlers is not None else {ECHO: echo},
        limits=Limits(**limits),  # type: ignore[arg-type]
        tls=tls,
        tls_required=tls_required,
        on_close=on_close,
    )
    address = await server.listen("127.0.0.1", 0)
    try:
        yield server, address
    finally:
        await server.stop(0.5)
