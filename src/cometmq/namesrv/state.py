"""What the handlers of one NameServer share. They run in one thread, one after another."""

import dataclasses
from collections.abc import Callable

from cometmq.clock import Clock
from cometmq.protocol.command import Command, Response
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


Handle = Callable[[NamesrvState, Connection, Command], Response]
