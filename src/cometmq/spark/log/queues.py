"""ConsumeQueue files as a guide through the log: where records begin, and which are a topic's.

The log itself is the truth; entries only tell where one may look, or need not. Along a queue the
physical offsets never decrease, so everything is found by bisection.
"""

import heapq
import itertools
from collections.abc import Iterator
from typing import Final

import numpy as np

from cometmq.protocol.layout import ENTRY, ENTRY_BYTES, HOLE_SIZE
from cometmq.store.consume_queue import Entry

from .files import Files, OpenFile, SegmentFile, read_at, segments_in

ROOT: Final = "consumequeue"
DIRECTORIES_MAX: Final = 256
"""How many queues are looked at to find long ones."""
GUIDES: Final = 8
"""How many of them serve as guides."""
Spans = np.ndarray[tuple[int, int], np.dtype[np.int64]]
"""Begin and end of a record in each row."""
_ENTRIES: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tag", ">i8")])


class QueueGuide:
    """The entries of one queue that point to records."""

    def __init__(self, files: Files, directory: str) -> None:
        self.queue_id = int(directory.rpartition("/")[2])
        self._files = files
        self._segments = segments_in(files, directory)
        self._opened: dict[int, OpenFile] = {}
        self._first = self._skip_holes()
        self._end = self._bisect(2**63 - 1)

    @property
    def count(self) -> int:
        return self._end - self._first

    @property
    def first_offset(self) -> int | None:
        """Where its first record begins."""
        return self._entry(self._first).physical_offset if self.count else None

    @property
    def end_offset(self) -> int:
        """Where its last record ends."""
        return sum(self._entry(self._end - 1)[:2]) if self.count else 0

    def last_before(self, physical: int) -> int | None:
        """Where the last record begins that does not begin behind `physical`."""
        number = self._bisect(physical + 1) - 1
        entry = self._entry(number) if number >= self._first else None
        return entry.physical_offset if entry and not entry.is_hole else None

    def count_between(self, start: int, end: int) -> int:
        return self._bisect(end) - self._bisect(start)

    def spans(self, start: int, end: int) -> Spans:
        """The records that begin in [start, end)."""
        first, stop = self._bisect(start), self._bisect(end)
        raw = b"".join(self._raw(first * ENTRY_BYTES, stop * ENTRY_BYTES))
        entries = np.frombuffer(raw, _ENTRIES)
        entries = entries[entries["size"] != HOLE_SIZE]
        begins = entries["offset"].astype(np.int64)
        return np.column_stack((begins, begins + entries["size"]))

    def _raw(self, start: int, end: int) -> Iterator[bytes]:
        for segment in self._segments:
            low, high = max(start, segment.base), min(end, segment.end)
            if low < high:
                yield read_at(self._open(segment), low - segment.base, high - low)

    def _skip_holes(self) -> int:
        """RocketMQ and we fill up the beginning of a queue's first file."""
        if not self._segments:
            return 0
        base, count = self._segments[0].base, self._segments[0].size // ENTRY_BYTES
        if not self._entry(base // ENTRY_BYTES).is_hole:
            return base // ENTRY_BYTES
        entries = np.frombuffer(b"".join(self._raw(base, base + count * ENTRY_BYTES)), _ENTRIES)
        held = np.flatnonzero(entries["size"] != HOLE_SIZE)
        return base // ENTRY_BYTES + int(held[0] if held.size else count)

    def _bisect(self, physical: int) -> int:
        """The first entry of a record at `physical` or behind it. Files end in empty entries."""
        low = self._first
        high = self._segments[-1].end // ENTRY_BYTES if self._segments else low
        while low < high:
            middle = (low + high) // 2
            entry = self._entry(middle)
            if entry.size > 0 and entry.physical_offset < physical:
                low = middle + 1
            else:
                high = middle
        return low

    def _entry(self, number: int) -> Entry:
        raw = b"".join(self._raw(number * ENTRY_BYTES, (number + 1) * ENTRY_BYTES))
        return Entry._make(ENTRY.unpack(raw) if len(raw) == ENTRY_BYTES else (0, 0, 0))

    def _open(self, segment: SegmentFile) -> OpenFile:
        if segment.base not in self._opened:
            self._opened[segment.base] = self._files.open(segment.path)
        return self._opened[segment.base]


def guides_of(files: Files, topic: bytes) -> list[QueueGuide]:
    """All queues of a topic."""
    return [QueueGuide(files, path) for path in _queue_directories(files, topic.decode())]


def long_guides(files: Files) -> list[QueueGuide]:
    """Some queues with many entries, whatever their topics: they pass everywhere in the log. And
    the one that goes farthest."""
    directories = (
        directory
        for topic, size in sorted(files.listed(ROOT).items())
        if size is None
        for directory in _queue_directories(files, topic)
    )
    looked_at = itertools.islice(directories, DIRECTORIES_MAX)
    longest: list[QueueGuide] = []
    farthest: list[QueueGuide] = []
    for directory in looked_at:  # One by one: each has files open.
        guide = QueueGuide(files, directory)
        longest = heapq.nlargest(GUIDES, (*longest, guide), key=lambda one: one.count)
        farthest = [max((guide, *farthest), key=lambda one: one.end_offset)]
    return [*longest, *(guide for guide in farthest if guide not in longest)]


def _queue_directories(files: Files, topic: str) -> Iterator[str]:
    for name, size in sorted(files.listed(f"{ROOT}/{topic}").items()):
        if size is None and name.isdigit():
            yield f"{ROOT}/{topic}/{name}"
