"""What the handlers of one broker share."""

import dataclasses
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from cometmq.clock import Clock
from cometmq.protocol.host import Host
from cometmq.replication.follower import Follower
from cometmq.replication.quorum.quorum import Quorum
from cometmq.replication.slaves import Slaves
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


class Upstream(Protocol):
    """A slave's master, or a member's leader."""

    @property
    def is_following(self) -> bool:
        """Whether it is there, as far as this broker can tell."""
        ...


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
    ha_address: str = ""
    """Where slaves reach it."""
    slaves: Slaves | None = None
    """Those of a master."""
    follower: Follower | None = None
    """A slave's way to its master."""
    quorum: Quorum | None = None
    """The Raft group that this broker is a member of."""
    started_ms: int = dataclasses.field(default_factory=lambda: int(time.time() * 1000))
    announce: Callable[[], Awaitable[None]] = _nobody_to_tell
    """Tells NameServers of changed topics, and returns when they have heard."""

    @property
    def is_master(self) -> bool:
        """Whether this broker takes messages, as far as it knows."""
        return self.quorum.serves if self.quorum is not None else not self.config.is_slave

    @property
    def broker_id(self) -> int:
        return self.quorum.broker_id if self.quorum is not None else self.config.broker_id

    @property
    def upstream(self) -> Upstream | None:
        """From where messages come, for a broker that is not master."""
        return self.follower if self.quorum is None or self.quorum.serves else self.quorum

    def settings(self) -> dict[str, str]:
        return {**as_text(self.store.config), **as_text(self.config)}
