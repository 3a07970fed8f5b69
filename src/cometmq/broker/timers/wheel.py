"""The timing wheel: for each second of two weeks, which entries of the timer log are due in it.

RocketMQ's file `timerwheel`. A second's slot stands at its number modulo the number of slots:

    0  int64 the second            24 int32 messages less recalls
    8  int64 its oldest entry      28 int32 recalls (not used by RocketMQ)
    16 int64 its newest entry

Changes are kept in memory until everything they point to is on disk: a slot in the file never
points to what a power cut could take. Only `write` runs in another thread.
"""

import struct
from pathlib import Path
from typing import NamedTuple

from cometmq.store.disk import Disk
from cometmq.store.segment import Segment

SLOT = struct.Struct(">qqqii")
SLOTS = 2 * 7 * 86_400
"""RocketMQ's: a week ahead, and a week of what is overdue."""
FILE_BYTES = SLOTS * SLOT.size
RESERVE_STEP_BYTES = 64 * 1024
NO_ENTRY = -1
_SECOND = struct.Struct(">q")
_COUNT_MAX = 2**31 - 1


class Slot(NamedTuple):
    second: int
    oldest: int
    newest: int
    balance: int
    """Messages less recalls, as RocketMQ counts."""
    recalls: int

    @property
    def entries(self) -> int:
        return self.balance + 2 * self.recalls

    def grown(self, position: int, *, recall: bool) -> "Slot":
        """With one more entry, the one at `position` of the log."""
        balance = min(self.balance + (-1 if recall else 1), _COUNT_MAX)
        oldest = position if self.oldest == NO_ENTRY else self.oldest
        return Slot(self.second, oldest, position, balance, self.recalls + recall)


class Wheel:
    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._file: Segment | None = None
        self._reserved: set[int] = set()
        self._changed: dict[int, Slot] = {}
        self._frozen: dict[int, Slot] = {}
        """What a save is writing; a newer change of the same slot stands in `_changed`."""

    def create(self) -> None:
        self.close()
        self._path.unlink(missing_ok=True)
        self._disk.make_directory(self._path.parent)
        self._file = Segment.create(self._path, 0, FILE_BYTES, self._disk, 0)

    def open(self) -> None:
        """Raises FileNotFoundError, or StoreMismatch when the file has another size."""
        self.close()
        self._file = Segment.open(self._path, 0, FILE_BYTES, self._disk)

    def close(self) -> None:
        self._file = None
        self._reserved.clear()
        self._changed, self._frozen = {}, {}

    @property
    def changes(self) -> int:
        """Slots whose change is in memory only."""
        return len(self._changed) + len(self._frozen)

    def slot(self, second: int) -> Slot | None:
        """The slot of a second; None when nothing is due in it."""
        number = second % SLOTS
        found = self._changed.get(number) or self._frozen.get(number) or self._stored(number)
        return found if found.second == second and found.newest != NO_ENTRY else None

    def next_used(self, second: int, limit: int) -> int:
        """The first second from `second` on in which something is due; at most `limit`."""
        assert self._file is not None, "the wheel is not open"
        view, changed, frozen = self._file.view, self._changed, self._frozen
        while second < limit:
            number = second % SLOTS
            found = changed.get(number) or frozen.get(number)
            if found is None:
                (its,) = _SECOND.unpack_from(view, number * SLOT.size)
            else:
                its = found.second
            if its == second:
                break
            second += 1
        return second

    def put(self, slot: Slot) -> None:
        self._changed[slot.second % SLOTS] = slot

    def entries_from(self, second: int) -> int:
        """How many entries are due in a second or later, by what the slots say."""
        counted = self._frozen | self._changed
        total = sum(slot.entries for slot in counted.values() if slot.second >= second)
        assert self._file is not None
        for start, end in self._file.data_ranges(0, FILE_BYTES):
            first, last = start // SLOT.size, -(-end // SLOT.size)
            view = self._file.view[first * SLOT.size : last * SLOT.size]
            for number, (its, _, newest, balance, recalls) in enumerate(
                SLOT.iter_unpack(view), first
            ):
                if its >= second and newest != NO_ENTRY and number not in counted:
                    total += balance + 2 * recalls
        return total

    def _stored(self, number: int) -> Slot:
        assert self._file is not None, "the wheel is not open"
        return Slot._make(SLOT.unpack_from(self._file.view, number * SLOT.size))

    # -- saving ----------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Begin a save: what has changed up to now is what `write` writes."""
        assert not self._frozen, "one save at a time"
        self._frozen, self._changed = self._changed, {}

    def write(self) -> None:
        """Write the frozen changes, durably. For another thread."""
        assert self._file is not None
        for number, slot in sorted(self._frozen.items()):
            at = number * SLOT.size
            for step in {at // RESERVE_STEP_BYTES, (at + SLOT.size - 1) // RESERVE_STEP_BYTES}:
                self._reserve(step)
            SLOT.pack_into(self._file.view, at, *slot)
        self._file.sync()

    def _reserve(self, step: int) -> None:
        """Give a part of the file its blocks, before anything is written there."""
        if step not in self._reserved:
            assert self._file is not None
            start = step * RESERVE_STEP_BYTES
            self._file.reserve_part(start, min(start + RESERVE_STEP_BYTES, FILE_BYTES))
            self._reserved.add(step)

    def thaw(self, *, written: bool) -> None:
        """End a save. What could not be written goes with the next one."""
        if not written:
            self._changed = self._frozen | self._changed
        self._frozen = {}
