"""Recovery: find the log's end, and bring queues and index in line with it.

The marks of the checkpoint say exactly how far log, queues and index were on disk. Without valid
marks (another broker had the store) RocketMQ's times say it roughly. Then:

1. The log is verified from the file of the lowest mark on. A bad record behind the durable point
   is a torn tail: the log ends there. One before that point is damage: it is reported, kept and
   never served, and the walk goes on at the next whole record; if none follows, the log ends.
2. Queues and index forget what lies behind their own durable points or the log's end.
3. What they lack is dispatched again. ConsumeQueue or index missing: all of it.

Recovering twice changes nothing the second time.
"""

import logging
import time

import msgspec

from cometmq.protocol.layout import KEY
from cometmq.protocol.record import record_store_timestamp

from .checkpoint import Checkpoint
from .commit_log import CommitLog
from .config import StoreConfig
from .consume_queues import ConsumeQueues
from .dispatcher import DamagedRange, Dispatcher
from .errors import StoreMismatch
from .key_index import KeyIndex
from .log_walk import RECORD_MAGICS, Damaged, Piece, walk
from .raw_tail import is_padding
from .segment import Segment

log = logging.getLogger(__name__)
CLOCK_SLACK_MS = 3000
"""RocketMQ's own allowance when it goes by the checkpoint's times."""
PROGRESS_INTERVAL_S = 2.0
FOREIGN_FORMATS = {
    "batchconsumequeue": "topics with queues of batches (queue.type=BatchCQ)",
    "consumequeue_ext": "extended ConsumeQueues (enableConsumeQueueExt)",
}
"""Directories of a RocketMQ store whose content would have to be understood."""


class RecoveryReport(msgspec.Struct, kw_only=True):
    clean: bool
    """The last owner closed the store in order."""
    log_start: int = 0
    log_end: int = 0
    confirmed: int = 0
    """Up to here records are dispatched; in a replication group the rest waits for the others."""
    verified_bytes: int = 0
    cut_bytes: int = 0
    """Bytes behind the new end that were not zero: a torn tail, or durable data gone (`lost`)."""
    lost: bool = False
    """The end lies before a point that was durable once: something took data away."""
    dispatched_bytes: int = 0
    queues_rebuilt: bool = False
    index_rebuilt: bool = False
    damaged: list[DamagedRange] = msgspec.field(default_factory=list)
    seconds: float = 0.0


class Recovery:
    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        dispatcher: Dispatcher,
        checkpoint: Checkpoint,
        *,
        clean: bool,
        confirms: bool = True,
    ) -> None:
        """`confirms`: whole records are good enough. If not, those that the checkpoint calls
        confirmed are dispatched, and the others kept."""
        self._confirms = confirms
        self._config = config
        self._log = commit_log
        self._segments = commit_log.segments
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._clean = clean
        self._report = RecoveryReport(clean=clean)
        self._last_timestamp = 0
        self._shown = time.monotonic()

    def run(self) -> RecoveryReport:
        began = time.monotonic()
        report = self._report
        self._require_known_formats()
        self._segments.load(may_be_short=True)
        report.log_start = self._log.start_offset
        if self._index is not None:
            self._index.load()
        verify_from = self._verify_from()
        report.log_end = self._find_end(verify_from)
        if not self._dispatcher.damaged:
            self._dispatcher.trusted_from = verify_from
        self._cut_log(report.log_end)
        report.confirmed = self._confirmed()
        queues_from = self._settle_queues(report.confirmed)
        index_from = self._settle_index(report.confirmed)
        self._dispatch(queues_from, index_from)
        self._queues.expire(report.log_start)
        report.damaged = self._dispatcher.damaged
        report.seconds = time.monotonic() - began
        self._tell()
        return report

    def _require_known_formats(self) -> None:
        for name, what in FOREIGN_FORMATS.items():
            if any(path.is_file() for path in (self._config.root / name).rglob("*")):
                root = self._config.root
                raise StoreMismatch(f"{root} has {what}, which CometMQ cannot read yet")

    # -- the log's end ---------------------------------------------------------------------------

    def _verify_from(self) -> int:
        """Start of the file from which on the log is verified: the last used one at the latest."""
        marks = self._checkpoint.marks
        if marks is not None:
            offset = min(marks.log, marks.queues, marks.index if self._index else marks.queues)
            segment = self._segments.find(min(offset, self._last_written()))
            return segment.base if segment is not None else self._log.start_offset
        if self._clean:
            return self._last_written()
        return self._file_before(self._checkpoint_time())

    def _checkpoint_time(self) -> int:
        times = (self._checkpoint.log_timestamp, self._checkpoint.queue_timestamp)
        return min(times) - CLOCK_SLACK_MS

    def _last_written(self) -> int:
        """Start of the last file that has anything in it (the next one is prepared ahead)."""
        for segment in reversed(tuple(self._segments)):
            if bytes(segment.view[:8]) != bytes(8):
                return segment.base
        return self._log.start_offset

    def _file_before(self, timestamp_ms: int) -> int:
        """Start of the last file whose first record was stored before a time."""
        for segment in reversed(tuple(self._segments)):
            first = _first_timestamp(segment)
            if first is not None and first <= timestamp_ms:
                return segment.base
        return self._log.start_offset

    def _find_end(self, start: int) -> int:
        last = self._segments.last
        end = start
        for part in walk(self._segments, start, last.end if last else 0):
            if isinstance(part, Damaged):
                if part.resume is None or not self._was_durable(part.start):
                    break
                self._dispatcher.report(part, part.resume)
            else:
                end = part.end
                self._last_timestamp = part.scan.last_timestamp
                self._show("verified", end)
        if not self._confirms:
            end = self._behind_padding(end)
        marks = self._checkpoint.marks
        self._report.lost = marks is not None and end < marks.log
        self._report.verified_bytes = end - start
        return end

    def _behind_padding(self, end: int) -> int:
        """Other members of a group count the padding of a file, so it is not taken back."""
        segment = self._segments.find(end)
        if segment is None or not is_padding(segment, end):
            return end
        return segment.end

    def _confirmed(self) -> int:
        report = self._report
        if self._confirms:
            return report.log_end
        return max(min(self._checkpoint.confirmed, report.log_end), report.log_start)

    def _was_durable(self, offset: int) -> bool:
        """Whether a record at `offset` had surely reached the disk."""
        marks = self._checkpoint.marks
        if marks is not None:
            return offset < marks.log
        return self._clean or self._last_timestamp < self._checkpoint.log_timestamp

    def _cut_log(self, end: int) -> None:
        """Leave nothing behind the end: no whole file, and only zeros in the last one."""
        for segment in self._segments:
            if segment.base >= end and not segment.zero_from(0):
                self._report.cut_bytes += segment.size
        self._segments.remove_from(max(end, self._log.start_offset + 1))
        last = self._segments.find(end)
        if last is not None and last.cut(end - last.base):
            self._report.cut_bytes += last.end - end

    # -- queues and index ------------------------------------------------------------------------

    def _settle_queues(self, log_end: int) -> int:
        """Load the queues as far as they can be trusted; from where to dispatch to them."""
        marks = self._checkpoint.marks
        if marks is not None:
            durable = min(marks.queues, log_end)
        elif self._clean:
            durable = log_end
        else:
            durable = min(self._file_before(self._checkpoint_time()), log_end)
        self._queues.load(durable)
        if marks is None and self._clean:
            durable = min(self._queues.physical_end(), log_end)
        if marks is None or marks.queues > log_end or self._queues.entries() == marks.queue_entries:
            return max(durable, self._log.start_offset)
        self._queues.cut(self._log.start_offset)
        self._report.queues_rebuilt = True
        return self._log.start_offset

    def _settle_index(self, log_end: int) -> int:
        """Cut the index to what can be trusted; from where to dispatch to it."""
        if self._index is None:
            return log_end
        marks = self._checkpoint.marks
        if marks is not None:
            durable = min(marks.index, log_end)
        else:
            known = self._index.last_offset()
            if not self._clean:
                known = self._index.durable_offset(self._checkpoint.index_timestamp)
            durable = min(self._first_unindexed(known), log_end)
        if not self._clean or marks is None or durable < marks.index:
            self._index.cut(durable, self._store_time)
        newest = self._index.newest_items()
        if marks is None or marks.index > log_end or newest == marks.newest_index_items:
            return max(durable, self._log.start_offset)
        self._index.cut(self._log.start_offset, self._store_time)
        self._report.index_rebuilt = True
        return self._log.start_offset

    def _first_unindexed(self, limit: int) -> int:
        """The first record below `limit` whose keys the index lacks; `limit` if there is none.

        A RocketMQ that was killed goes on with an index that begins, or has a gap, where it took
        up work again.
        """
        assert self._index is not None
        start = self._log.start_offset
        covered = start - 1
        for begin, end in self._index.spans():
            missing = self._first_keyed(start, min(begin, limit), covered)
            if missing is not None:
                log.warning("the index lacks the records from %d on", missing)
                # The record before may have only some of its keys in a file that was full.
                return max(covered, start)
            start = covered = end
        return limit

    def _first_keyed(self, start: int, end: int, after: int) -> int | None:
        """The first record of [start, end) behind `after` that has any key."""
        for part in walk(self._segments, start, end, collect=True):
            if isinstance(part, Piece):
                for _, offset, _ in KEY.iter_unpack(part.scan.keys):
                    if offset > after:
                        return int(offset)
        return None

    def _store_time(self, offset: int) -> int | None:
        segment = self._segments.find(offset)
        return record_store_timestamp(segment.view, offset - segment.base) if segment else None

    def _dispatch(self, queues_from: int, index_from: int) -> None:
        """Dispatch what is missing. A full disk does not keep a store from opening: messages stay
        readable as far as they are dispatched, and old files can be deleted."""
        end = self._report.confirmed
        self._report.dispatched_bytes = end - min(queues_from, index_from)
        self._dispatcher.start(queues_from, index_from, self._last_timestamp)
        try:
            self._dispatcher.dispatch(end, lambda at: self._show("dispatched", at))
        except OSError as error:
            log.error("no space to dispatch all messages: %s", error)
        self._queues.sync()
        if self._index is not None:
            self._index.sync()

    def _show(self, what: str, offset: int) -> None:
        """Tell of progress now and then, so that nobody takes a long recovery for a hang."""
        if time.monotonic() - self._shown >= PROGRESS_INTERVAL_S:
            self._shown = time.monotonic()
            last = self._segments.last
            log.info("%s up to %d of %d bytes", what, offset, last.end if last else 0)

    def _tell(self) -> None:
        report = self._report
        if report.lost:
            log.error("CommitLog ends at %d, before data that was durable once", report.log_end)
        log.info("recovered: %s", report)


def _first_timestamp(segment: Segment) -> int | None:
    """Store time of a file's first record; None when there is none."""
    if bytes(segment.view[4:8]) not in RECORD_MAGICS:
        return None
    return record_store_timestamp(segment.view, 0)
