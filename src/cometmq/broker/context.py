"""What the handlers of one broker share."""

import dataclasses
import time
from collections.abc import Awaitable, Callable

from cometmq.clock import Clock
from cometmq.protocol.host import Host
from cometmq.settings import as_text
from cometmq.store.message_store import MessageStore
from cometmq.store.turns import LoopTurns

from .archive_gate import ArchiveGate
from .clients import Clients
from .config import BrokerConfig
from .groups import Groups
from .locks import QueueLocks
from .offsets import ConsumerOffsets
from .stats import Stats
from .topics import Topics
from .waiting_pulls import WaitingPulls


async def _nobody_to_tell() -> None:
    """For a broker without NameServers."""


@dataclasses.dataclass
class Context:
    config: BrokerConfig
    store: MessageStore
    turns: LoopTurns
    clock: Clock
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    clients: Clients
    locks: QueueLocks
    waiting_pulls: WaitingPulls
    stats: Stats
    archive: ArchiveGate
    address: Host
    """Where clients reach this broker."""
    started_ms: int = dataclasses.field(default_factory=lambda: int(time.time() * 1000))
    announce: Callable[[], Awaitable[None]] = _nobody_to_tell
    """Tells NameServers of changed topics, and returns when they have heard."""

    def settings(self) -> dict[str, str]:
        return {**as_text(self.store.config), **as_text(self.config)}
