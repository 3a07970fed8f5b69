"""What the handlers of one NameServer share. They run in one thread, one after another."""

import dataclasses
from collections.abc import Callable

from cometmq.clock import Clock
from cometmq.logs import set_levels
from cometmq.protocol.command import Command, Response
from cometmq.settings import changed, differences
from cometmq.transport.connection import Connection

from .config import NamesrvConfig
from .kv_config import KvConfig
from .route_table import RouteTable


@dataclasses.dataclass
class NamesrvState:
    config: NamesrvConfig
    """As it is now: live settings change."""
    clock: Clock
    routes: RouteTable
    kv: KvConfig
    started_ms: int

    def serves_from_ms(self) -> int:
        """From when on routes are told: brokers may need time to register first."""
        wait_s = self.config.wait_for_service_s if self.config.wait_for_service else 0
        return self.started_ms + wait_s * 1000

    def reconfigure(self, config: NamesrvConfig) -> None:
        before, self.config = self.config, config
        if config.log_level != before.log_level:
            set_levels(config.log_level)

    def renew(self, config: NamesrvConfig) -> tuple[list[str], list[str]]:
        """Become as the files say now, as far as that is possible without a restart. The keys
        that changed, and those that need one."""
        live, fixed = differences(self.config, config)
        self.reconfigure(changed(self.config, live))
        return [*live], fixed


Handle = Callable[[NamesrvState, Connection, Command], Response]
