"""The timer log: one entry for each waiting message, linked backwards by the second it is due in.

RocketMQ's directory `timerlog`, files named by offset, entries of 52 bytes:

    0  int32 size (52)         24 int32 milliseconds from then to when it is due
    4  int64 entry before it   28 int64 offset of the message in the CommitLog
       of the same second      36 int32 size of the message
    12 int32 kind              40 int32 Java hash of its real topic
    16 int64 when written      44 int64 CRC-32 over bytes 0 to 44 (RocketMQ: 0)

A file's rest that is too small ends in `int32 rest, int64 0, int32 blank`. Invariant: an entry
points only to entries before it, so whatever follows the durable end can be cut off or kept.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cometmq.store.disk import Disk
from cometmq.store.segment import Segment
from cometmq.store.segments import SegmentChain

from .wheel import NO_ENTRY

ENTRY = struct.Struct(">iqiqiqiiq")
ENTRY_BYTES = ENTRY.size
_CHECKED = struct.Struct(">iqiqiqii")
_CRC_BYTES = 8
_UNCHECKED = 0
_BLANK = struct.Struct(">iqi")
_BLANK_MAGIC = (0xBBCCDDEE ^ (1880681586 + 8)) - (1 << 32)
RESERVE_STEP_BYTES = 64 * 1024


# Kinds of entries, as bits: plain numbers, because a second may have a million of them.
MESSAGE = 1
ROLL = 2
"""Not delivered when it is due but written anew, to go on waiting."""
RECALL = 4
_KINDS = 15
"""Every bit that RocketMQ takes for a kind."""


class Entry(NamedTuple):
    previous: int
    kind: int
    written_ms: int
    delay_ms: int
    offset: int
    size: int
    topic_hash: int

    @property
    def due_ms(self) -> int:
        return self.written_ms + self.delay_ms


class DamagedTimers(Exception):
    """Wheel and timer log do not fit together; the timer topic's queue has what is in them."""


class TimerLog:
    def __init__(self, directory: Path, file_bytes: int, disk: Disk) -> None:
        self._chain = SegmentChain(directory, file_bytes, disk)
        # Where the last entry of a file ends at the latest.
        self._usable_bytes = file_bytes - _BLANK.size
        self.end = 0
        """Where the next entry goes."""
        self._synced = 0

    def load(self) -> None:
        """Open the files. Raises StoreMismatch when they are no chain of this size."""
        self._chain.close()
        self._chain.load(may_be_short=True)

    def clear(self) -> None:
        """Delete everything, whatever it is, and begin anew."""
        self._chain.close()
        for path in sorted(self._chain.directory.glob("[0-9]*"), reverse=True):
            path.unlink()
        self.end = self._synced = 0

    def close(self) -> None:
        self._chain.close()

    @property
    def start(self) -> int:
        first = self._chain.first
        return first.base if first is not None else self.end

    def reaches(self, end: int) -> bool:
        """Whether the files go as far as `end`."""
        last = self._chain.last
        return 0 <= end <= (last.end if last is not None else 0)

    # -- write -----------------------------------------------------------------------------------

    def append(self, entry: Entry) -> int:
        """Write an entry and say where. OSError on a full disk: then nothing has changed."""
        position = self._place(self.end)
        segment = self._segment(position)
        at = position - segment.base
        segment.reserve(at + ENTRY_BYTES, RESERVE_STEP_BYTES)
        if position != self.end:
            self._end_file(self.end)
        checked = _CHECKED.pack(ENTRY_BYTES, *entry)
        crc = zlib.crc32(checked).to_bytes(_CRC_BYTES, "big")
        segment.view[at : at + ENTRY_BYTES] = checked + crc
        self.end = position + ENTRY_BYTES
        return position

    def _place(self, end: int) -> int:
        """Where an entry goes that should go to `end`: there, or at the start of the next file."""
        file_bytes = self._chain.segment_bytes
        at = end % file_bytes
        return end if at + ENTRY_BYTES <= self._usable_bytes else end - at + file_bytes

    def _segment(self, position: int) -> Segment:
        segment = self._chain.find(position)
        if segment is None:
            segment = self._chain.make(position, RESERVE_STEP_BYTES)
            self._chain.attach(segment)
        return segment

    def _end_file(self, end: int) -> None:
        segment = self._chain.find(end)
        if segment is not None:
            rest = segment.end - end
            segment.reserve(segment.size, RESERVE_STEP_BYTES)
            _BLANK.pack_into(segment.view, end - segment.base, rest, 0, _BLANK_MAGIC)

    def sync(self, end: int) -> None:
        """Make everything below `end` durable. For another thread."""
        for segment in self._chain.between(self._synced, end):
            segment.sync()
        self._synced = max(self._synced, end)

    def cut(self, end: int) -> None:
        """Forget everything from `end` on, for good."""
        self._chain.remove_from(max(end, self.start + 1))
        last = self._chain.find(end)
        if last is not None:
            last.cut(end - last.base)
        self.end = end
        self._synced = min(self._synced, end)

    def expire(self, log_start: int) -> int:
        """Delete files whose last message has left the CommitLog; how many."""
        deleted = 0
        while len(self._chain) > 1:
            first = self._chain.first
            assert first is not None
            last_at = (self._usable_bytes // ENTRY_BYTES - 1) * ENTRY_BYTES
            last = self._read(first, last_at, foreign=True)
            if last is None or last.offset >= log_start:
                break
            self._chain.remove_first()
            deleted += 1
        return deleted

    # -- read ------------------------------------------------------------------------------------

    def entry(self, position: int) -> Entry | None:
        """The entry at a position; None when its file is gone because all its messages are."""
        segment = self._chain.find(position)
        if segment is None:
            if 0 <= position < self.start:
                return None
            raise DamagedTimers(f"the timer log has no position {position}")
        found = None
        if position + ENTRY_BYTES <= self.end:
            found = self._read(segment, position - segment.base)
        if found is None:
            raise DamagedTimers(f"the timer log has no entry at {position}")
        return found

    def scan(self, start: int, end: int, *, foreign: bool = False) -> Iterator[tuple[int, Entry]]:
        """Entries from `start` on, in order, up to `end` or the first that is none. With
        `foreign` also those that RocketMQ wrote."""
        position = max(self._place(start), self.start)
        while position < end:
            segment = self._chain.find(position)
            if segment is None:
                return
            found = self._read(segment, position - segment.base, foreign=foreign)
            if found is None or (found.previous != NO_ENTRY and found.previous >= position):
                return
            yield position, found
            position = self._place(position + ENTRY_BYTES)

    def _read(self, segment: Segment, at: int, *, foreign: bool = False) -> Entry | None:
        if at < 0 or at + ENTRY_BYTES > segment.size:
            return None
        size, *fields, crc = ENTRY.unpack_from(segment.view, at)
        if size != ENTRY_BYTES:
            return None
        entry = Entry._make(fields)
        if not entry.kind & MESSAGE or entry.kind & ~_KINDS:
            return None
        if foreign and crc == _UNCHECKED:
            return entry
        return entry if crc == zlib.crc32(segment.view[at : at + _CHECKED.size]) else None
