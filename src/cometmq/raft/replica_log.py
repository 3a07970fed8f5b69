"""What the core knows of its member's log: offsets and the epoch table, never the bytes.

Invariant: start <= confirmed <= stored <= end, and confirmed <= verified <= end. `end` runs ahead
of the file while writes wait for a state to be synced; `stored` never does.

Confirmed never goes beyond what this member itself has stored, so nothing that was dispatched or
acknowledged here is taken back by a crash.
"""

from .epoch_table import EpochTable, Stretch
from .errors import require
from .hard_state import Recovered
from .members import Members


class ReplicaLog:
    def __init__(self, recovered: Recovered, bootstrap: Members) -> None:
        state = recovered.state
        self.table = EpochTable(state.stretches if state else (Stretch(0, 0, bootstrap),))
        self.floor = state.floor if state else 0
        self.generation = 0
        """Counts cuts; see effects.py."""
        self.start = recovered.start
        self.end = self.stored = recovered.end
        self.confirmed = max(recovered.confirmed, recovered.start)
        self.verified = self.confirmed
        """Up to here the log agrees with that of the present leader."""
        require(self.confirmed <= self.end, "confirmed bytes are missing after a restart")

    @property
    def last_epoch(self) -> int:
        return self.table.before(self.end).epoch

    @property
    def members(self) -> Members:
        """The members in force: those of the last byte, confirmed or not."""
        return self.table.before(self.end).members

    @property
    def acknowledged(self) -> int:
        """What the leader may count: agreed with it and safe here."""
        return min(self.stored, self.verified)

    def is_behind(self, last_epoch: int, end: int) -> bool:
        """Whether another log is at least as up to date as this one."""
        return (last_epoch, end) >= (self.last_epoch, self.end)

    def agrees(self, offset: int, previous_epoch: int) -> bool:
        """Whether this log agrees with the leader's up to `offset`. What is confirmed always does:
        no leader lacks it."""
        if offset <= self.confirmed:
            return True
        return offset <= self.end and self.table.before(offset).epoch == previous_epoch

    def same_up_to(self, offset: int, end: int, epoch: int) -> int:
        """How much of the leader's bytes [offset, end) of one epoch is here already, if the logs
        agree up to `offset`."""
        at = max(offset, min(self.confirmed, end))
        if at >= min(self.end, end) or self.table.at(at).epoch != epoch:
            return at
        return min(self.table.end_of_epoch(at, self.end), end)

    def write(self, stretch: Stretch, count: int) -> bool:
        """Count bytes at the end; whether that begins a stretch, and the table must be saved."""
        begins = stretch != self.table.last
        if begins:
            require(stretch.start == self.end, f"{stretch} does not begin at {self.end}")
            self.table.begin(stretch)
        self.end += count
        return begins

    def cut(self, end: int) -> None:
        """Give up what lies behind `end`, since the leader has something else there."""
        require(end >= self.confirmed, f"the leader lacks confirmed bytes from {end} on")
        self._shorten(end)
        self.generation += 1

    def shrink(self, end: int) -> None:
        """Count bytes no longer that could not be written."""
        require(end >= self.stored, f"stored bytes from {end} on are missing")
        self._shorten(end)

    def _shorten(self, end: int) -> None:
        self.end = end
        self.stored = min(self.stored, end)
        self.verified = min(self.verified, end)
        self.table.cut(end)

    def restart(self, start: int, stretch: Stretch) -> None:
        """Begin anew at `start`; everything before it is confirmed and deleted elsewhere."""
        require(start >= self.confirmed, f"confirmed bytes from {start} on would go")
        self.table = EpochTable((stretch,))
        self.generation += 1
        self.floor = self.start = self.end = start
        self.stored = self.verified = self.confirmed = start

    def store(self, end: int, generation: int) -> bool:
        """Note what is safe on disk; whether that is news."""
        if generation != self.generation or end <= self.stored:
            return False
        require(end <= self.end, f"stored up to {end}, but the log ends at {self.end}")
        self.stored = end
        return True

    def verify(self, offset: int) -> None:
        self.verified = max(self.verified, offset)

    def confirm(self, offset: int) -> bool:
        """Note what a majority has stored, as far as it is safe here too; whether that is news."""
        offset = min(offset, self.acknowledged)
        if offset <= self.confirmed:
            return False
        self.confirmed = offset
        return True

    def trim(self, start: int) -> None:
        """Note that retention deleted the bytes before `start`."""
        require(start <= self.confirmed, f"unconfirmed bytes before {start} were deleted")
        if start > self.start:
            self.start = start
            self.table.forget_before(start)
