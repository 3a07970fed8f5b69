"""A NameServer: listens, answers, and forgets brokers that went away or fell silent."""

import asyncio
import functools
import logging

from cometmq.clock import Clock, SystemClock
from cometmq.observed import MetricsExporter
from cometmq.protocol.host import Host
from cometmq.transport.connection import Connection, Handlers
from cometmq.transport.latencies import Latencies
from cometmq.transport.limits import Limits
from cometmq.transport.server import Server
from cometmq.transport.tls import TlsMode, listening_context

from . import broker_requests, config_requests, kv_requests, route_requests
from .config import NamesrvConfig
from .kv_config import KvConfig
from .route_table import RouteTable
from .state import NamesrvState

log = logging.getLogger(__name__)


class NameServer:
    """Raises BadSetting for settings that cannot be used."""

    def __init__(self, config: NamesrvConfig, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        self.state = NamesrvState(
            config, clock, RouteTable(), KvConfig(config.kv_config_file), clock.now_ms()
        )
        self.latencies = Latencies() if config.metrics_exporter is MetricsExporter.PROM else None
        """How long requests took; None when nobody asks."""
        self._server = Server(
            handlers_of(self.state),
            limits=Limits(idle_s=config.idle_s),
            tls=listening_context(
                config.tls_mode, config.tls_certificate, config.tls_key, config.tls_key_password
            ),
            tls_required=config.tls_mode is TlsMode.ENFORCING,
            on_close=self._closed,
            latencies=self.latencies,
        )
        self._address: Host | None = None
        self._scanning: asyncio.TimerHandle | None = None

    @property
    def address(self) -> Host:
        """Where it really listens."""
        assert self._address is not None, "the server has not started"
        return self._address

    @property
    def connections(self) -> int:
        return len(self._server.connections)

    async def start(self) -> None:
        """Serve. OSError if the address is taken, KvConfigDamaged if the file cannot be read."""
        config = self.state.config
        self.state.kv.load()
        self.state.started_ms = self.state.clock.now_ms()
        self._address = await self._server.listen(config.bind_address, config.port)
        self._plan_scan()
        log.info("listening at %s", self._address)

    async def stop(self) -> None:
        if self._scanning is not None:
            self._scanning.cancel()
        await self._server.stop()

    def scan(self) -> None:
        """Forget brokers that have been silent for too long, and close their connections."""
        for endpoint, connection in self.state.routes.expire(self.state.clock.now_ms()):
            log.warning("broker at %s has been silent for too long", endpoint.address)
            if connection is not None:
                connection.close()

    def _plan_scan(self) -> None:
        interval_s = self.state.config.scan_interval_ms / 1000
        self._scanning = asyncio.get_running_loop().call_later(interval_s, self._scan_on)

    def _scan_on(self) -> None:
        self._plan_scan()
        self.scan()

    def _closed(self, connection: Connection) -> None:
        for endpoint in self.state.routes.disconnect(connection):
            log.warning("the connection of the broker at %s is gone", endpoint.address)


def handlers_of(state: NamesrvState) -> Handlers:
    parts = (broker_requests, route_requests, kv_requests, config_requests)
    return {
        code: functools.partial(handle, state)
        for part in parts
        for code, handle in part.HANDLERS.items()
    }
