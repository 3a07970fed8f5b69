"""A broker's life: an address, a store, the parts between them, and an end in order."""

import logging
from collections.abc import Callable

from cometmq.clock import Clock, SystemClock
from cometmq.observed import MetricsExporter
from cometmq.protocol.host import Host
from cometmq.replication.quorum.state_file import require_no_member
from cometmq.store.config import StoreConfig
from cometmq.store.disk import Disk
from cometmq.store.errors import StoreFailed
from cometmq.store.gate import Gate
from cometmq.store.message_store import MessageStore
from cometmq.store.recovery import RecoveryReport
from cometmq.transport.connection import Connection, Handler
from cometmq.transport.dial import split_address
from cometmq.transport.latencies import Latencies
from cometmq.transport.limits import Limits
from cometmq.transport.server import Server
from cometmq.transport.tls import TlsMode, listening_context

from .archive_gate import ArchiveGate
from .config import FAST_PORT_DISTANCE, BrokerConfig
from .express import Express
from .live_settings import renew
from .parts import Parts

log = logging.getLogger(__name__)
_WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


class Broker:
    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        on_failure: Callable[[StoreFailed], None] | None = None,
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._clock = clock or SystemClock()
        self._disk = disk or Disk()
        self._on_failure = on_failure
        self._server: Server | None = None
        self._store: MessageStore | None = None
        self._parts: Parts | None = None
        self.latencies = Latencies() if config.metrics_exporter is MetricsExporter.PROM else None
        """How long requests took; None when nobody asks."""
        self._express: Express | None = None

    @property
    def parts(self) -> Parts:
        """What it is made of while it runs."""
        assert self._parts is not None, "the broker has not started"
        return self._parts

    @property
    def address(self) -> Host:
        """Where clients reach it."""
        return self.parts.context.address

    @property
    def connections(self) -> int:
        return len(self._server.connections) if self._server is not None else 0

    async def start(self) -> None:
        """Recover the store, serve, and register. Raises StoreError or OSError if it cannot."""
        handlers: dict[int, Handler] = {}
        self._server = server = self._build_server(handlers)
        # Clients learn the address from the first record on, so the port must be known first.
        bound = await server.bind(self._config.bind_address, self._config.port)
        address = Host(self._advertised_ip(bound.ip), bound.port)
        try:
            archive = ArchiveGate(self._config, self._clock)
            self._store = store = self._new_store(address, archive)
            report = self._open(store)
            self._parts = parts = Parts(
                self._config, store, address, self._clock, self._disk, archive, report,
                self._on_failure,
            )  # fmt: skip

            def serve_by_role() -> None:
                handlers.clear()
                handlers.update(parts.handlers())
                self._express = parts.express(self.latencies)

            parts.on_role = serve_by_role
            serve_by_role()
            await self._bind_second_port(server, address.port)
            await self._listen_for_others(parts)
            await server.serve()
        except BaseException:
            await self.stop()
            raise
        parts.start()
        await parts.registration.start()
        parts.follow()
        log.info("broker %s serves at %s", self._config.name, address)

    async def renew(
        self, config: BrokerConfig, store_config: StoreConfig
    ) -> tuple[list[str], list[str]]:
        """Take those new settings that a running broker can take. The keys that changed, and
        those that need a restart."""
        return await renew(self.parts.context, config, store_config)

    async def stop(self) -> None:
        """Leave the NameServers, finish what is under way, make everything durable."""
        if self._parts is not None:
            await self._parts.stop()
        if self._server is not None:
            await self._server.stop()
        if self._store is not None:
            try:
                if self._parts is not None:
                    self._parts.save()
            finally:
                self._store.close()

    async def abandon(self) -> None:
        """End as if killed: connections break, nothing more is told or saved, and the store is left
        for recovery. What was written is in the files, as it is when a process dies."""
        if self._server is not None:
            for connection in list(self._server.connections):
                connection.abort()
        if self._parts is not None:
            await self._parts.abandon()
        if self._server is not None:
            await self._server.stop()
        if self._store is not None:
            self._store.abandon()

    def _build_server(self, handlers: dict[int, Handler]) -> Server:
        config = self._config
        return Server(
            handlers,
            limits=Limits(idle_s=config.idle_s),
            tls=listening_context(
                config.tls_mode, config.tls_certificate, config.tls_key, config.tls_key_password
            ),
            tls_required=config.tls_mode is TlsMode.ENFORCING,
            express=self._take,
            on_close=self._closed,
            latencies=self.latencies,
        )

    def _take(self, connection: Connection, data: bytes) -> int:
        return self._express.take(connection, data) if self._express is not None else 0

    def _closed(self, connection: Connection) -> None:
        if self._parts is not None:
            self._parts.context.clients.forget(connection)

    def _advertised_ip(self, bound: str) -> str:
        if self._config.advertised_ip:
            return self._config.advertised_ip
        return "127.0.0.1" if bound in _WILDCARDS else bound

    async def _bind_second_port(self, server: Server, port: int) -> None:
        """RocketMQ's second port, for clients that use it; only beside a port that was chosen."""
        if self._config.port <= FAST_PORT_DISTANCE:
            return
        try:
            await server.bind(self._config.bind_address, port - FAST_PORT_DISTANCE)
        except OSError as error:
            log.warning("no second port (vipChannelEnabled clients cannot connect): %s", error)

    async def _listen_for_others(self, parts: Parts) -> None:
        context, config = parts.context, self._config
        if context.quorum is not None:
            own = context.quorum.settings.peers.addresses[config.raft_self]
            await context.quorum.listen(config.bind_address, split_address(own)[1])
        if context.slaves is None:
            return
        # Beside a port that was chosen, as slaves expect it; else NameServers tell them.
        beside = context.address.port + 1 if config.port else 0
        try:
            bound = await context.slaves.listen(config.bind_address, config.ha_port or beside)
        except OSError as error:
            if config.ha_port:
                raise
            bound = await context.slaves.listen(config.bind_address, 0)
            log.warning("no port %d for slaves, they connect at %d: %s", beside, bound.port, error)
        context.ha_address = f"{config.ha_ip or context.address.ip}:{bound.port}"

    def _new_store(self, address: Host, gate: Gate) -> MessageStore:
        if not self._config.raft:
            require_no_member(self._store_config.root)
        return MessageStore(
            self._store_config,
            host=address,
            disk=self._disk,
            clock=self._clock,
            on_failure=self._on_failure,
            confirm_appended=not self._config.raft,
            gate=gate,
        )

    def _open(self, store: MessageStore) -> RecoveryReport:
        report = store.open()
        log.info(
            "store %s: %d to %d, %s", self._store_config.root, report.log_start, report.log_end,
            "closed in order" if report.clean else "recovered after a crash",
        )  # fmt: skip
        return report
