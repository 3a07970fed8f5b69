"""A log cut into ranges: what the driver plans and each task reads.

A range begins and ends where records do, so every record lies in exactly one. Where records begin
is told by entries of queues, and from there by hops from size to size; nothing is decoded here.
The plan sees the log as it is at that moment: what is written later belongs to the next read.
"""

import itertools
import logging
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from cometmq.protocol.columns import Choice
from cometmq.protocol.record import record_store_timestamp

from ..errors import DataLost
from .files import Files, SegmentFile, log_segments
from .options import LogOptions
from .queues import QueueGuide, Spans, guides_of, long_guides
from .records import HEAD_BYTES, LogFile, record_size

log = logging.getLogger(__name__)

GAP_BYTES: Final = 64 << 10
"""Reading through a gap of this size takes no longer than leaving it out."""
CLOCK_SLACK_MS: Final = 10 * 60_000
"""By how much a broker's clock may have been set back between two files."""
ENTRIES_LATE_MS: Final = 5 * 60_000
"""How much older than the last entry of all queues entries may be that a power cut took: each
queue's are synced once a minute, whatever others have."""
LOOK_BYTES: Final = 16 << 20
"""How far behind the last record that a queue knows of, or one that is damaged, others may follow.
Without queues the rest of the file is searched, where it is not a hole."""
ATTEMPTS: Final = 5
_NOWHERE: Final = 2**63 - 1
_STORED_BYTES: Final = 128
"""Enough of a record to see its store time."""


class LogRange(NamedTuple):
    """The records of one file that begin in [start, end): physical offsets."""

    segment: SegmentFile
    start: int
    end: int
    is_tail: bool = False
    """Whether the log ends here: what was its end may be cut off since."""

    @property
    def size(self) -> int:
        return self.end - self.start


Part = tuple[LogRange, ...]
"""What one task reads, in this order."""


def plan(files: Files, options: LogOptions) -> list[Part]:
    """Parts of about `partition_bytes` each that together have every record that is wanted."""
    for _ in range(ATTEMPTS):
        try:
            return _Plan(files, options).parts()
        except FileNotFoundError as error:
            log.info("planned anew, since retention took a file meanwhile: %s", error)
    raise DataLost(f"{files.shown('')}: files vanish faster than a read can be planned")


class _Plan:
    def __init__(self, files: Files, options: LogOptions) -> None:
        self._files = files
        self._options = options
        self._guides = Guides(files, options.choice)
        self._segments = self._written(log_segments(files))

    def parts(self) -> list[Part]:
        self._check_chain()
        complete = self._complete()
        pieces = [
            piece
            for segment in self._in_time()
            for whole in self._wanted(segment)
            for needed in self._guides.needed(whole, complete)
            for piece in self._split(needed)
        ]
        return _grouped(pieces, self._options.partition_bytes)

    def _complete(self) -> int:
        """Up to where queues have all their entries, also those of a broker that lost its power."""
        last = self._guides.record_before(self._guides.end, 0)
        for segment in reversed(self._segments[1:]):
            if segment.base <= last:
                latest, begin = self._stored(last), self._stored(segment.base)
                if latest and begin and latest - begin >= ENTRIES_LATE_MS:
                    return segment.base
        return 0

    def _open(self, segment: SegmentFile) -> LogFile:
        return LogFile(self._files.open(segment.path), segment)

    def _written(self, segments: list[SegmentFile]) -> list[SegmentFile]:
        """Without the files at the end that wait for their first record."""
        while segments and self._waits(segments[-1]):
            segments.pop()
        return segments

    def _waits(self, segment: SegmentFile) -> bool:
        file = self._open(segment)
        if any(file.read(segment.base, HEAD_BYTES)):
            return False
        return file.search(segment.base, self._look_until(file, segment.base)) is None

    def _check_chain(self) -> None:
        """A file that is missing at the beginning, or between others, was deleted."""
        if not self._segments:
            return
        starting, ending = self._options.starting_offset, self._options.ending_offset
        reached = self._segments[0].base if starting is None else starting
        for segment in self._segments:
            if reached < segment.base and (ending is None or reached < ending):
                self._lost(reached, segment.base)
            reached = max(reached, segment.end)

    def _lost(self, start: int, end: int) -> None:
        said = f"{self._files.shown('')}: the log has no file for offsets {start} to {end}"
        if self._options.fail_on_data_loss:
            raise DataLost(f"{said}; failOnDataLoss=false reads what is left")
        log.warning("%s; reading what is left", said)

    def _in_time(self) -> list[SegmentFile]:
        """The files that may have records of the time that is asked for. Store times do not
        decrease, but for a clock that was set back."""
        choice, always, segments = self._options.choice, Choice(), self._segments
        first, before = choice.stored_from, choice.stored_before
        if (first, before) == (always.stored_from, always.stored_before):
            return segments
        begins = [self._stored(segment.base) for segment in segments]
        return [
            segment
            for segment, begin, end in zip(segments, begins, [*begins[1:], None], strict=True)
            if (begin is None or begin - CLOCK_SLACK_MS < before)
            and (end is None or end + CLOCK_SLACK_MS >= first)
        ]

    def _stored(self, at: int) -> int | None:
        """When the record there was stored; None if there is none."""
        for segment in self._segments:
            if segment.base <= at < segment.end:
                head = self._open(segment).read(at, _STORED_BYTES)
                if record_size(head, at) is not None:
                    return record_store_timestamp(memoryview(head), 0)
        return None

    def _wanted(self, segment: SegmentFile) -> Iterator[LogRange]:
        """The file, or what is asked for of it."""
        starting, ending = self._options.starting_offset, self._options.ending_offset
        is_tail = segment == self._segments[-1]
        end = self._log_end(segment) if is_tail else segment.end
        one = whole = LogRange(segment, segment.base, end, is_tail)
        if starting is not None:
            one = one._replace(start=self._record_from(whole, starting))
        if ending is not None and ending < end:
            one = one._replace(end=self._record_from(whole, ending), is_tail=False)
        if one.start < one.end:
            yield one

    def _record_from(self, one: LogRange, wanted: int) -> int:
        """Where the first record of a range begins at `wanted` or behind it; the range's end when
        there is none."""
        if not one.start < wanted < one.end:
            return min(max(wanted, one.start), one.end)
        file = self._open(one.segment)
        found = file.hop(self._guides.record_before(wanted, one.start), wanted)
        if found >= wanted:
            return min(found, one.end)
        if file.is_filled_up(found):
            return one.end
        found_behind = file.search(wanted, one.end)  # What lies between is damaged.
        return one.end if found_behind is None else found_behind

    def _log_end(self, segment: SegmentFile) -> int:
        """Behind the last whole record: a read's end must not depend on when its tasks look."""
        file = self._open(segment)
        end = file.whole_end(self._guides.record_before(segment.end - 1, segment.base))
        while (found := self._behind(file, end)) is not None:
            end = file.whole_end(found)
        return end

    def _behind(self, file: LogFile, at: int) -> int | None:
        """A whole record behind a place where none began: then that place is damaged. None at the
        log's end, whether nothing stands there or a record in the making."""
        if at >= file.end or file.is_filled_up(at):
            return None
        found = file.search(at, self._look_until(file, at))
        return None if found == at else found  # That one has just come to be whole.

    def _look_until(self, file: LogFile, at: int) -> int:
        known = self._guides.end
        if not known:
            return file.end
        size = record_size(file.read(at, HEAD_BYTES), at) or 0
        return min(file.end, max(at + size, known) + LOOK_BYTES)

    def _split(self, one: LogRange) -> Iterator[LogRange]:
        """The range in pieces of about `partition_bytes`."""
        step = self._options.partition_bytes
        while one.size > step + step // 4:
            cut = self._record_from(one, one.start + step)
            if cut >= one.end:
                break
            yield one._replace(end=cut, is_tail=False)
            one = one._replace(start=cut)
        yield one


class Guides:
    """What queues tell about the log, as far as they can be relied on.

    A queue tells everything about its topic from its first entry on: what came before may be of a
    topic of the same name that was deleted. At the log's end records may be there whose entries are
    not, or not yet.
    """

    def __init__(self, files: Files, choice: Choice) -> None:
        self._long = long_guides(files)
        by_topic = [guides_of(files, topic) for topic in choice.topics or ()]
        of_topics = list(itertools.chain.from_iterable(by_topic))
        self._chosen = [
            guide
            for guide in of_topics
            if choice.queue_ids is None or guide.queue_id in choice.queue_ids
        ]
        self._start = max((_start(guides) for guides in by_topic), default=_NOWHERE)
        self.end = max((guide.end_offset for guide in (*self._long, *of_topics)), default=0)
        """How far they tell of the log; 0 if they tell nothing."""

    def record_before(self, offset: int, start: int) -> int:
        """Where a record begins in [start, offset], as far on as is known; `start` otherwise."""
        found = (guide.last_before(offset) for guide in self._long)
        return max((at for at in found if at is not None and at >= start), default=start)

    def needed(self, one: LogRange, complete: int) -> list[LogRange]:
        """The parts of a range in which there may be records of the topics. Up to `complete`, they
        have entries."""
        if one.start < self._start or one.segment.end > complete:
            return [one]
        count = sum(guide.count_between(one.start, one.end) for guide in self._chosen)
        if count * GAP_BYTES > one.size:
            return [one]
        if not count:
            return []
        spans = np.concatenate([guide.spans(one.start, one.end) for guide in self._chosen])
        return [
            one._replace(start=start, end=end, is_tail=one.is_tail and end == one.end)
            for start, end in merged(spans)
        ]


def _start(guides: list[QueueGuide]) -> int:
    firsts = [guide.first_offset for guide in guides if guide.first_offset is not None]
    return min(firsts, default=_NOWHERE)


def merged(spans: Spans) -> list[tuple[int, int]]:
    """Spans in their order, and as one where little lies between them."""
    if not len(spans):
        return []
    spans = spans[np.argsort(spans[:, 0])]
    begins, ends = spans[:, 0], spans[:, 1]
    apart = np.flatnonzero(begins[1:] - ends[:-1] > GAP_BYTES)
    firsts, lasts = [0, *(apart + 1)], [*apart, len(spans) - 1]
    return [(int(begins[a]), int(ends[b])) for a, b in zip(firsts, lasts, strict=True)]


def _grouped(ranges: Sequence[LogRange], bytes_max: int) -> list[Part]:
    """Small ranges share a task."""
    parts: list[list[LogRange]] = []
    room = 0
    for one in ranges:
        if one.size > room:
            parts.append([])
            room = bytes_max
        parts[-1].append(one)
        room -= one.size
    return [tuple(part) for part in parts]
