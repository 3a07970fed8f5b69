"""Reads by queue: entries choose records, records are handed out as slices of the log."""

import bisect
import logging

from cometmq.protocol.hot import check_record, join_slices, select_records
from cometmq.protocol.layout import ENTRY_BYTES
from cometmq.protocol.record import record_store_timestamp
from cometmq.protocol.scan import Damage, Selection

from .commit_log import CommitLog
from .consume_queue import ConsumeQueue
from .consume_queues import ConsumeQueues
from .reading import Boundary, DamagedMessage, ReadResult, ReadStatus
from .segment import Segment

log = logging.getLogger(__name__)
ENTRIES_MAX = 16_384
"""How many entries one read looks at, so that a filter that matches nothing cannot run on."""
END_OF_TIME_MS = 1 << 62
SLICES_MAX = 4
"""More pieces of the log than these are copied into one: each has its price all the way out."""


class QueueReader:
    def __init__(self, commit_log: CommitLog, queues: ConsumeQueues) -> None:
        self._log = commit_log
        self._segments = commit_log.segments
        self._queues = queues

    def read(
        self,
        key: bytes,
        offset: int,
        count_max: int,
        bytes_max: int,
        tag_hashes: frozenset[int] | None,
    ) -> ReadResult:
        queue = self._queues.get(key)
        if queue is None:
            return ReadResult(
                status=ReadStatus.NO_MATCHED_LOGIC_QUEUE, next_offset=0, min_offset=0, max_offset=0
            )
        low, high = queue.min_offset, queue.max_offset
        elsewhere = _outside(offset, low, high)
        if elsewhere is not None:
            status, next_offset = elsewhere
            return ReadResult(
                status=status, next_offset=next_offset, min_offset=low, max_offset=high
            )
        return self._collect(queue, offset, count_max, bytes_max, tag_hashes)

    def _collect(
        self,
        queue: ConsumeQueue,
        offset: int,
        count_max: int,
        bytes_max: int,
        tag_hashes: frozenset[int] | None,
    ) -> ReadResult:
        found = _Found()
        at, last = offset, min(queue.max_offset, offset + max(ENTRIES_MAX, count_max))
        while at < last and found.count < count_max:
            window = queue.window(at, last - at)
            segment = self._segment_for(queue, at)
            if window is None or segment is None:
                # Retention took the files away since the look at min_offset: go where they begin.
                at = max(queue.first_from(self._log.start_offset), at + 1)
                continue
            entries, start, end = window
            room = min(self._log.end - segment.base, segment.size)
            chosen = select_records(
                entries, start, end, at, segment.view, segment.base, room, tag_hashes,
                count_max - found.count, bytes_max - found.size,
            )  # fmt: skip
            if found.count and found.size + chosen.size > bytes_max:
                break
            found.add(chosen, segment, at)
            at += chosen.entries_used
            if chosen.outside and not chosen.entries_used:
                # An entry that points behind the log's end: never true in a recovered store.
                found.damaged.append(DamagedMessage(at, segment.base + room, Damage.POSITION))
                at += 1
            elif not chosen.outside and start + chosen.entries_used * ENTRY_BYTES < end:
                break
        found.tell(queue)
        return ReadResult(
            status=ReadStatus.FOUND if found.count else ReadStatus.NO_MATCHED_MESSAGE,
            next_offset=at,
            min_offset=queue.min_offset,
            max_offset=queue.max_offset,
            slices=found.slices,
            count=found.count,
            size=found.size,
            damaged=found.damaged,
            behind_bytes=self._log.end - found.end,
        )

    def _segment_for(self, queue: ConsumeQueue, offset: int) -> Segment | None:
        entry = queue.entry(offset)
        if entry is None:
            return None
        # A hole points nowhere; which segment it is looked up with makes no difference.
        where = self._log.start_offset if entry.is_hole else entry.physical_offset
        return self._segments.find(where)

    def record_at(self, physical_offset: int, limit: int) -> memoryview | None:
        """The log from an offset on, at most to `limit`, if the offset is in a file."""
        segment = self._segments.find(physical_offset)
        if segment is None or physical_offset >= limit:
            return None
        end = min(limit - segment.base, segment.size)
        return segment.view[physical_offset - segment.base : end].toreadonly()

    def earliest_time(self, key: bytes) -> int:
        queue = self._queues.get(key)
        if queue is None or queue.min_offset >= queue.max_offset:
            return -1
        return self._time_from(queue, queue.min_offset)

    def time_at(self, key: bytes, offset: int) -> int | None:
        queue = self._queues.get(key)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return None
        return self._time_at(queue, offset)

    def offset_by_time(self, key: bytes, timestamp_ms: int, boundary: Boundary) -> int:
        queue = self._queues.get(key)
        if queue is None:
            return 0
        if boundary is Boundary.LOWER:
            return self._first_stored_from(queue, timestamp_ms)
        return max(self._first_stored_from(queue, timestamp_ms + 1) - 1, queue.min_offset)

    def _first_stored_from(self, queue: ConsumeQueue, timestamp_ms: int) -> int:
        """The first message stored at a time or later; the queue's end when there is none."""
        return bisect.bisect_left(
            range(queue.max_offset),
            timestamp_ms,
            lo=queue.min_offset,
            key=lambda offset: self._time_from(queue, offset),
        )

    def _time_from(self, queue: ConsumeQueue, offset: int) -> int:
        """Store time of the message at an offset, or of the next one where that is lost."""
        while offset < queue.max_offset:
            time_ms = self._time_at(queue, offset)
            if time_ms is not None:
                return time_ms
            offset += 1
        return END_OF_TIME_MS

    def _time_at(self, queue: ConsumeQueue, offset: int) -> int | None:
        entry = queue.entry(offset)
        segment = self._segment_for(queue, offset)
        if entry is None or entry.is_hole or segment is None:
            return None
        position = entry.physical_offset - segment.base
        if check_record(segment.view, position, segment.size, entry.physical_offset) <= 0:
            return None
        return record_store_timestamp(segment.view, position)


class _Found:
    """What a read has gathered so far."""

    def __init__(self) -> None:
        self.slices: list[memoryview] = []
        self.damaged: list[DamagedMessage] = []
        self.count = self.size = self.end = 0

    def add(self, chosen: Selection, segment: Segment, first_offset: int) -> None:
        pairs = chosen.slices
        if len(pairs) > SLICES_MAX * 2:
            self.slices.append(memoryview(join_slices(segment.view, pairs)))
        else:
            self.slices += (
                segment.view[position : position + length].toreadonly()
                for position, length in zip(pairs[::2], pairs[1::2], strict=True)
            )
        if pairs:
            self.end = segment.base + pairs[-2] + pairs[-1]
        self.count += chosen.records
        self.size += chosen.size
        self.damaged += (
            DamagedMessage(first_offset + number, where, what)
            for number, where, what in chosen.damaged
        )

    def tell(self, queue: ConsumeQueue) -> None:
        for lost in self.damaged:
            log.error(
                "%s: the message at offset %d (log offset %d) is lost: %s",
                queue, lost.queue_offset, lost.physical_offset, lost.damage.describe(),
            )  # fmt: skip


def _outside(offset: int, low: int, high: int) -> tuple[ReadStatus, int] | None:
    """Status and where to go on when an offset is not one of the queue's; None when it is."""
    if high == 0:
        return ReadStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < low:
        return ReadStatus.OFFSET_TOO_SMALL, low
    if offset == high:
        return ReadStatus.OFFSET_OVERFLOW_ONE, high
    if offset > high:
        return ReadStatus.OFFSET_OVERFLOW_BADLY, high
    return None
