"""A ConsumeQueue: for each message of one queue, in order, where its record lies in the log.

Entry n stands at byte n x 20. Entries follow one another without a gap; where no record exists
(before the first message of a file, or for a record lost to damage) stands a hole.
Invariant: physical offsets never decrease along the queue, so everything is found by bisection.
"""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cometmq.protocol.layout import ENTRY, ENTRY_BYTES, HOLE_SIZE

from .disk import Disk
from .errors import StoreMismatch
from .segment import Segment
from .segments import SegmentChain

log = logging.getLogger(__name__)
RESERVE_STEP_BYTES = 64 * 1024
HOLES_MAX = 1_000_000
"""A larger jump in a queue's offsets is no lost record but a log that makes no sense."""
_Predicate = Callable[["Entry"], bool]


class Entry(NamedTuple):
    physical_offset: int
    size: int
    tag_code: int

    @property
    def is_hole(self) -> bool:
        return self.size == HOLE_SIZE


class ConsumeQueue:
    def __init__(self, directory: Path, file_bytes: int, disk: Disk) -> None:
        self._chain = SegmentChain(directory, file_bytes, disk, keep_open=False)
        self._synced = 0
        self.min_offset = 0
        self.max_offset = 0
        """Where the next entry goes."""
        self.dirty = False
        """Whether there is anything to sync."""
        # Where the next entry goes in the last file, and how far it has blocks there.
        self._tail, self._tail_at, self._tail_room = memoryview(b""), 0, -1

    def __str__(self) -> str:
        return str(self._chain.directory)

    def load(self, physical_end: int) -> None:
        """Open the files and keep the entries of records below `physical_end`."""
        self._chain.load()
        first, last = self._chain.first, self._chain.last
        if first is None or last is None:
            return
        self.min_offset, self.max_offset = first.base // ENTRY_BYTES, last.end // ENTRY_BYTES
        self.cut(physical_end)
        self._synced = self.max_offset

    def cut(self, physical_end: int) -> None:
        """Forget the entries of records at `physical_end` and behind it."""
        self._forget_tail()
        first = self._chain.first
        if first is None:
            return
        kept = self._bisect(
            first.base // ENTRY_BYTES,
            self.max_offset,
            lambda entry: entry.size > 0 and entry.physical_offset < physical_end,
        )
        if kept == 0:
            self._chain.remove_from(0)
        else:
            # An emptied queue that did not begin at 0 keeps a file: its offsets go on from there.
            end = kept * ENTRY_BYTES
            self._chain.remove_from(max(end, first.base + 1))
            segment = self._chain.find(end)
            if segment is not None:
                segment.cut(end - segment.base)
        self.max_offset = kept
        self.min_offset = min(self.min_offset, kept)
        self._synced = min(self._synced, kept)

    def append(self, first_offset: int, entries: bytes) -> None:
        """Add entries, the first of which has the offset `first_offset`.

        On a full disk nothing of them is added, and the same call may be made again.
        """
        end = self._tail_at + len(entries)
        if first_offset != self.max_offset or end > self._tail_room:
            if first_offset != self.max_offset or not len(self._chain):
                self._go_to(first_offset)
            self._append_across(entries)
        else:
            self._tail[self._tail_at : end] = entries
            self._tail_at = end
            self.max_offset += len(entries) // ENTRY_BYTES
        self.dirty = True

    def _append_across(self, entries: bytes) -> None:
        """Write entries that need more blocks or another file, and remember the new tail."""
        position = self.max_offset * ENTRY_BYTES
        at = 0
        for segment in self._reserve(position, position + len(entries)):
            start = position + at - segment.base
            size = min(len(entries) - at, segment.size - start)
            segment.view[start : start + size] = entries[at : at + size]
            at += size
            self._tail, self._tail_at = segment.view, start + size
            self._tail_room = segment.reserved // ENTRY_BYTES * ENTRY_BYTES
        self.max_offset += len(entries) // ENTRY_BYTES

    def _forget_tail(self) -> None:
        self._tail, self._tail_at, self._tail_room = memoryview(b""), 0, -1

    def _reserve(self, start: int, end: int) -> list[Segment]:
        """The segments for the bytes of [start, end), with blocks for them."""
        parts = []
        while start < end:
            segment = self._chain.find(start)
            if segment is None:
                segment = self._chain.make(start, RESERVE_STEP_BYTES)
                self._chain.attach(segment)
            segment.reserve(min(end, segment.end) - segment.base, RESERVE_STEP_BYTES)
            parts.append(segment)
            start = segment.end
        return parts

    def _go_to(self, offset: int) -> None:
        self._forget_tail()
        if not len(self._chain):
            self._begin_at(offset)
        elif offset < self.max_offset:
            # The topic was deleted and made anew: what the old one left is not of this queue.
            log.warning("%s starts anew at offset %d", self._chain.directory, offset)
            self._chain.remove_from(0)
            self._synced = 0
            self._begin_at(offset)
        elif offset - self.max_offset > HOLES_MAX:
            raise StoreMismatch(
                f"{self._chain.directory}: offset {offset} follows {self.max_offset - 1}"
            )
        elif offset > self.max_offset:
            last = self.entry(self.max_offset - 1)
            hole = _hole(last.physical_offset if last else 0)
            self.append(self.max_offset, hole * (offset - self.max_offset))

    def _begin_at(self, offset: int) -> None:
        """Make the file for a first entry; the places before it in that file are holes."""
        self.min_offset = offset
        self.max_offset = offset - offset % (self._chain.segment_bytes // ENTRY_BYTES)
        self._reserve(self.max_offset * ENTRY_BYTES, (self.max_offset + 1) * ENTRY_BYTES)
        self._go_to(offset)

    def entry(self, offset: int) -> Entry | None:
        """The entry at an offset, None where there is no file for it."""
        segment = self._chain.find(offset * ENTRY_BYTES)
        if segment is None:
            return None
        return Entry._make(ENTRY.unpack_from(segment.view, offset * ENTRY_BYTES - segment.base))

    def last_physical_offset(self) -> int:
        """Where the queue's last record begins; -1 when it has none."""
        entry = self.entry(self.max_offset - 1) if self.max_offset > self.min_offset else None
        return -1 if entry is None or entry.is_hole else entry.physical_offset

    def window(self, offset: int, count: int) -> tuple[memoryview, int, int] | None:
        """Up to `count` entries from `offset` on, those of one file: buffer, start, end."""
        segment = self._chain.find(offset * ENTRY_BYTES)
        if segment is None:
            return None
        start = offset * ENTRY_BYTES - segment.base
        end = min(offset + count, self.max_offset) * ENTRY_BYTES - segment.base
        return segment.view, start, min(end, segment.size)

    def first_from(self, physical_offset: int) -> int:
        """The first entry of a record at `physical_offset` or behind it."""
        return self._bisect(
            self.min_offset, self.max_offset, lambda entry: entry.physical_offset < physical_offset
        )

    def _bisect(self, low: int, high: int, before: _Predicate) -> int:
        while low < high:
            middle = (low + high) // 2
            entry = self.entry(middle)
            if entry is not None and before(entry):
                low = middle + 1
            else:
                high = middle
        return low

    def expire(self, physical_start: int) -> int:
        """Follow the log, whose first record is now at `physical_start`; files deleted.

        The last file stays, however old: it holds the offset where the queue goes on.
        """
        self.min_offset = max(self.min_offset, self._first_live(physical_start))
        deleted = 0
        while len(self._chain) > 1:
            first = self._chain.first
            if first is None or first.end > self.min_offset * ENTRY_BYTES:
                break
            self._chain.remove_first()
            deleted += 1
        return deleted

    def _first_live(self, physical_start: int) -> int:
        offset = self.first_from(physical_start)
        while offset < self.max_offset:
            entry = self.entry(offset)
            if entry is None or not entry.is_hole:
                break
            offset += 1
        return offset

    def sync(self) -> None:
        """Make everything up to now durable."""
        # First the flag, then the offset: an append in between raises it again.
        self.dirty = False
        upto = self.max_offset
        try:
            for segment in self._chain.between(self._synced * ENTRY_BYTES, upto * ENTRY_BYTES):
                segment.sync()
        except OSError:
            self.dirty = True
            raise
        self._synced = upto

    def physical_end(self) -> int:
        """The end of the last record that this queue points to; 0 when there is none."""
        for offset in range(self.max_offset - 1, self.min_offset - 1, -1):
            entry = self.entry(offset)
            if entry is not None and not entry.is_hole:
                return entry.physical_offset + entry.size
        return 0

    def delete(self) -> None:
        self.close()
        shutil.rmtree(self._chain.directory, ignore_errors=True)
        self.min_offset = self.max_offset = self._synced = 0

    def close(self) -> None:
        self._chain.close()
        self._forget_tail()


def _hole(physical_offset: int) -> bytes:
    """It names the offset of the entry before it, so that offsets never decrease."""
    return ENTRY.pack(physical_offset, HOLE_SIZE, 0)
