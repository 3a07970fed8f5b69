"""A listening server: its connections, the idle ones among them, and an end in order."""

import asyncio
import logging
import ssl
from collections.abc import Callable

from cometmq.files import files_allowed
from cometmq.protocol.host import Host

from .connection import Connection, Express, Handlers
from .latencies import Latencies
from .limits import Limits

log = logging.getLogger(__name__)
BACKLOG_MAX = 1024
_STOP_POLL_S = 0.01


class Server:
    def __init__(
        self,
        handlers: Handlers,
        *,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        tls_required: bool = False,
        express: Express | None = None,
        on_close: Callable[[Connection], None] | None = None,
        latencies: Latencies | None = None,
    ) -> None:
        """`latencies` is told how long each request took."""
        self.connections: set[Connection] = set()
        self._handlers = handlers
        self._limits = limits or Limits()
        # The rest is for files: who connects must not keep the log from being written.
        self._connections_max = min(self._limits.connections_max, files_allowed() // 3)
        self._tls = tls
        self._tls_required = tls_required
        self._express = express
        self._on_close = on_close
        self._latencies = latencies
        self._listeners: list[asyncio.Server] = []
        self._sweeping: asyncio.TimerHandle | None = None
        self._stopped = False

    async def listen(self, host: str, port: int) -> Host:
        """Take connections at an address; port 0 takes a free one. The address it got."""
        address = await self.bind(host, port)
        await self.serve()
        return address

    async def bind(self, host: str, port: int) -> Host:
        """Take an address, but no connections yet."""
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(
            self._connection, host, port, backlog=_backlog(), start_serving=False
        )
        self._listeners.append(listener)
        name = listener.sockets[0].getsockname()
        return Host(name[0], name[1])

    async def serve(self) -> None:
        """Take connections at all addresses."""
        for listener in self._listeners:
            await listener.start_serving()
        if self._sweeping is None:
            self._sweep()

    async def stop(self, grace_s: float = 3.0) -> None:
        """Take nobody new, let answers under way go out, and close."""
        for listener in self._listeners:
            listener.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_s
        while any(c.is_busy for c in self.connections) and loop.time() < deadline:
            await asyncio.sleep(_STOP_POLL_S)
        for connection in list(self.connections):
            connection.close()
        while self.connections and loop.time() < deadline:
            await asyncio.sleep(_STOP_POLL_S)
        for connection in list(self.connections):
            connection.abort()
        self._stopped = True
        if self._sweeping is not None:
            self._sweeping.cancel()

    def _connection(self) -> Connection:
        return Connection(
            self._handlers,
            self._limits,
            tls=self._tls,
            tls_required=self._tls_required,
            express=self._express,
            on_open=self._opened,
            on_close=self._closed,
            latencies=self._latencies,
        )

    def _opened(self, connection: Connection) -> None:
        if len(self.connections) >= self._connections_max:
            log.warning("%s refused: %d connections", connection.peer, len(self.connections))
            connection.abort()
        elif self._stopped:  # Accepted before the end, and handed over behind it.
            connection.abort()
        self.connections.add(connection)

    def _closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if self._on_close is not None:
            self._on_close(connection)

    def _sweep(self) -> None:
        """Close who has been silent, or has not finished a frame, for too long."""
        loop = asyncio.get_running_loop()
        since = loop.time() - self._limits.idle_s
        for connection in list(self.connections):
            if connection.last_active < since:
                log.info("%s closed: idle for %g s", connection.peer, self._limits.idle_s)
                connection.abort()
        self._sweeping = loop.call_later(self._limits.idle_s / 12, self._sweep)


def _backlog() -> int:
    """All of these may be accepted at once, before one too many is noticed and refused."""
    return min(BACKLOG_MAX, files_allowed() // 8)
