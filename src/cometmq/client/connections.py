"""Connections to brokers and NameServers: one to each address, made when it is first needed.

Whoever asks for a connection while it is being made waits for the same attempt. A connection that
ended is made anew by the next one who asks; who wants it back at once is told by `on_lost`.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable

from cometmq.transport.connection import Connection, Handlers
from cometmq.transport.dial import connect
from cometmq.transport.errors import TransportError

from .errors import ConnectionLost, NotStarted, Unreachable

_CLOSE_TIMEOUT_S = 1.0
Greeting = Callable[[str, Connection], Awaitable[None]]
"""What is said first on a new connection."""


class Connections:
    def __init__(
        self,
        handlers: Handlers,
        *,
        tls: ssl.SSLContext | None,
        connect_timeout_s: float,
        greet: Greeting,
        on_lost: Callable[[str], None],
    ) -> None:
        self._handlers = handlers
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self._greet = greet
        self._on_lost = on_lost
        self._open: dict[str, Connection] = {}
        self._attempts: dict[str, asyncio.Task[Connection]] = {}
        self._closed = False
        self._all_lost = asyncio.Event()
        self._all_lost.set()

    def current(self, address: str) -> Connection | None:
        """The connection if there is one: the way that waits for nothing."""
        connection = self._open.get(address)
        return connection if connection is not None and connection.is_open else None

    async def get(self, address: str) -> Connection:
        connection = self.current(address)
        if connection is not None:
            return connection
        if self._closed:
            raise NotStarted("the client was stopped")
        attempt = self._attempts.get(address)
        if attempt is None:
            attempt = asyncio.create_task(self._connect(address))
            attempt.add_done_callback(lambda done: self._attempted(address, done))
            self._attempts[address] = attempt
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            if attempt.cancelled() and self._closed:
                raise NotStarted("the client was stopped") from None
            raise

    def drop(self, address: str) -> None:
        """Hang up on a peer that is silent: a new connection may still reach it."""
        connection = self._open.get(address)
        if connection is not None:
            connection.abort()

    def _attempted(self, address: str, attempt: asyncio.Task[Connection]) -> None:
        self._attempts.pop(address, None)
        if not attempt.cancelled():
            attempt.exception()  # Seen, even when all who waited for it have left.

    async def _connect(self, address: str) -> Connection:
        try:
            connection = await connect(
                address,
                self._handlers,
                timeout_s=self._connect_timeout_s,
                tls=self._tls,
                on_close=lambda closed: self._lost(address, closed),
            )
        except (TransportError, ValueError) as error:
            raise Unreachable(str(error)) from error
        try:
            await self._greet(address, connection)
        except BaseException:
            connection.abort()
            raise
        if not connection.is_open:
            # Its end came together with the answer to the greeting: nobody would hear of it again.
            raise ConnectionLost(f"the connection to {address} was closed at once")
        self._open[address] = connection
        self._all_lost.clear()
        return connection

    def _lost(self, address: str, connection: Connection) -> None:
        if self._open.get(address) is connection:
            del self._open[address]
            if not self._open:
                self._all_lost.set()
            if not self._closed:
                self._on_lost(address)

    async def close(self) -> None:
        self._closed = True
        for attempt in list(self._attempts.values()):
            attempt.cancel()
        await asyncio.gather(*self._attempts.values(), return_exceptions=True)
        for connection in self._open.values():
            connection.close()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._all_lost.wait()
        except TimeoutError:
            for connection in list(self._open.values()):
                connection.abort()  # A peer that does not read what is still due to it.
            await self._all_lost.wait()
