"""A disk that keeps only what was synced, answers late, fails, and runs full.

The page cache is `data` and `state`'s saves under way; a crash keeps of the unsynced log as much as
chance wants, whole records, as recovery would find them.
"""

import random
from typing import Protocol

from cometmq.raft.epoch_table import Stretch
from cometmq.raft.hard_state import HardState, Recovered
from cometmq.raft.ports import NoRoom

from .records import borders, record

ROOMY = 1 << 40


class Crashed(Exception):
    """The process died in the middle of what it did."""


class Owner(Protocol):
    """Whoever says when a write is done."""

    def later_synced(self, end: int, generation: int) -> None: ...

    def later_saved(self, state: HardState, number: int) -> None: ...

    def wrote(self, what: str) -> None:
        """About to touch the disk; may raise Crashed."""
        ...


class SimDisk:
    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.data = bytearray()
        self.start = 0
        self.durable = 0
        self.state: HardState | None = None
        self.confirmed = 0
        self.room = ROOMY
        self._saving: HardState | None = None
        self._sync_reaches = 0
        self.cuts = self.restarts = 0

    # -- the port --------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def read(self, start: int, end: int, bytes_max: int) -> bytes:
        stop = start
        for border in borders(self.data, self.start, start, end):
            if stop > start and border > start + bytes_max:
                break
            stop = border
        return self.slice(start, stop)

    def write(self, offset: int, data: bytes) -> None:
        self._owner.wrote("log")
        assert offset == self.end, f"a write at {offset}, but the log ends at {self.end}"
        if len(self.data) + len(data) > self.room:
            raise NoRoom
        for _ in borders(data, offset, offset, offset + len(data)):
            pass
        self.data += data

    def mark(self, stretch: Stretch) -> int:
        text = f"epoch {stretch.epoch}: {' '.join(stretch.members.everybody)}"
        self.write(self.end, record(self.end, stretch.epoch, text.encode()))
        return self.end

    def cut(self, end: int) -> None:
        self._owner.wrote("cut")
        self.cuts += 1
        del self.data[end - self.start :]
        self.durable = min(self.durable, end)
        self._sync_reaches = min(self._sync_reaches, end)

    def restart(self, start: int) -> None:
        self._owner.wrote("restart")
        self.restarts += 1
        self.data.clear()
        self.start = self.durable = self._sync_reaches = start

    def sync(self, end: int, generation: int) -> None:
        self._sync_reaches = end
        self._owner.later_synced(end, generation)

    def save(self, state: HardState, number: int) -> None:
        self._owner.wrote("state")
        self._saving = state
        self._owner.later_saved(state, number)

    # -- what happens to it ----------------------------------------------------------------------

    def sync_done(self) -> None:
        self.durable = max(self.durable, self._sync_reaches)

    def save_done(self, state: HardState) -> None:
        self.state, self._saving = state, None

    def trim(self, start: int) -> None:
        del self.data[: start - self.start]
        self.start = start
        self.durable = max(self.durable, start)

    def crash(self, chance: random.Random) -> None:
        kept = [self.durable, *borders(self.data, self.start, self.durable, self.end)]
        del self.data[chance.choice(kept) - self.start :]
        if self._saving is not None and chance.random() < 0.5:
            self.state = self._saving
        self._saving = None

    def recover(self) -> Recovered:
        self.durable = self._sync_reaches = self.end
        return Recovered(self.state, self.start, self.end, self.confirmed)

    def slice(self, start: int, end: int) -> bytes:
        return bytes(self.data[start - self.start : end - self.start])
