"""What a member knows and may do whatever its role is."""

import random
from typing import Protocol

from .effects import Confirmed, Send
from .epoch_table import Stretch
from .hard_state import HardState
from .messages import Message
from .outbox import Outbox
from .replica_log import ReplicaLog
from .settings import RaftSettings


class LogReader(Protocol):
    """The bytes of the log. Only its owner knows where records end, so it cuts the chunks."""

    def read(self, start: int, end: int, bytes_max: int) -> bytes:
        """Whole records from `start` on: at least one, else no more than `bytes_max`, none that
        reaches beyond `end`. Both `start` and `end` are borders of records. Nothing at all if
        retention has deleted them, and `trimmed` has not told yet."""
        ...


class Replica:
    def __init__(
        self,
        member: str,
        settings: RaftSettings,
        chance: random.Random,
        reader: LogReader,
        log: ReplicaLog,
        now_ms: int,
    ) -> None:
        self.id = member
        self.settings = settings
        self.chance = chance
        self.reader = reader
        self.log = log
        self.outbox = Outbox()
        self.now_ms = now_ms
        self.epoch = 0
        self.vote: str | None = None
        self.leader: str | None = None
        # A start counts as a word from the leader: this member may have promised just before.
        self.heard_ms = now_ms
        self.full = False

    @property
    def is_voter(self) -> bool:
        return self.id in self.log.members.voters

    @property
    def hears_a_leader(self) -> bool:
        """Whether this member owes its vote to nobody else for now."""
        return self.leader == self.id or self.now_ms < self.heard_ms + self.settings.election_min_ms

    def send(self, to: str, message: Message) -> None:
        self.outbox.put(Send(to, message))

    def save(self) -> None:
        log = self.log
        self.outbox.save(HardState(self.epoch, self.vote, log.floor, log.table.stretches))

    def enter(self, epoch: int, vote: str | None) -> None:
        """Go on to a newer epoch."""
        self.epoch, self.vote, self.leader = epoch, vote, None
        # Another leader, another log to compare with. Confirmed bytes are in all of them.
        self.log.verified = self.log.confirmed
        self.save()

    def begin(self, stretch: Stretch) -> None:
        self.log.table.begin(stretch)
        self.save()

    def confirm(self, offset: int) -> None:
        if self.log.confirm(offset):
            self.outbox.put(Confirmed(self.log.confirmed))

    def by_chance(self, low_ms: int, high_ms: int) -> int:
        return self.now_ms + self.chance.randint(low_ms, high_ms)
