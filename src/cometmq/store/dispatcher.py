"""Dispatch: what the log holds becomes queue entries and index items.

ConsumeQueues and index are functions of the log: dispatch adds to them strictly in log order, and
a record is never dispatched twice. Each has its own position, since after a crash they may have
got differently far. When the disk is full in the middle, what is left of a piece waits and goes
first the next time.
"""

import logging
import threading
from collections.abc import Callable

import msgspec

from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.hot import scan_records
from cometmq.protocol.scan import Damage, Run, Scan

from .consume_queues import ConsumeQueues
from .key_index import KeyIndex
from .log_walk import PIECE_BYTES_MAX, Damaged, Piece, joined, walk
from .segments import SegmentChain

log = logging.getLogger(__name__)


class Progress(msgspec.Struct, frozen=True, gc=False):
    """How far queues and index have got, and how much they hold there."""

    queues_offset: int
    index_offset: int
    timestamp: int
    """Store time of the last record that was dispatched."""
    queue_entries: int
    newest_index_items: int


class DamagedRange(msgspec.Struct, frozen=True):
    """Log bytes before the durable point that are no whole records."""

    start: int
    end: int
    damage: Damage


class Dispatcher:
    def __init__(
        self,
        segments: SegmentChain,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        delays_ms: tuple[int, ...],
    ) -> None:
        self._segments = segments
        self._queues = queues
        self._index = index
        self._delays_ms = delays_ms
        self._runs: list[Run] = []
        self._runs_at = 0
        self._keys, self._keys_at = b"", 0
        self._queues_at = self._index_at = 0
        self.timestamp = 0
        """Store time of the last record that was dispatched."""
        self._working = threading.Lock()
        self.trusted_from = 1 << 62
        """Records from here on were encoded or verified by this process: no second checksum."""
        self.damaged: list[DamagedRange] = []
        self._foreseen: list[Piece] = []

    def start(self, queues_at: int, index_at: int, timestamp: int) -> None:
        """Go on from where queues and index are, the last record before having this time."""
        self._runs, self._runs_at, self._keys, self._keys_at = [], 0, b"", 0
        self._foreseen = []
        self._queues_at, self._index_at, self.timestamp = queues_at, index_at, timestamp

    def progress(self) -> Progress:
        """Where dispatch is, for a thread that keeps house; never in the middle of a piece."""
        with self._working:
            items = self._index.newest_items() if self._index is not None else 0
            return Progress(
                self._queues_at, self._index_at, self.timestamp, self._queues.entries(), items
            )

    def foresee(self, piece: Piece) -> None:
        """Records were just appended, and what a scan of them would find is known. That holds
        for the next dispatch, which comes before anything is cut off the log."""
        self._foreseen.append(piece)

    def dispatch(self, end: int, on_piece: Callable[[int], None] | None = None) -> list[bytes]:
        """Dispatch up to `end`; the queues that got messages. Raises OSError on a full disk.

        `on_piece` is told how far it has got, for those who show progress.
        """
        with self._working:
            touched = self._dispatch_fresh(end)
            if touched is not None:
                return touched
            touched = [run.queue for run in self._runs[self._runs_at :]]
            self._apply()
            while (start := min(self._queues_at, self._index_at)) < end:
                behind = max(self._queues_at, self._index_at)
                stop = min(behind, end) if behind > start else end
                verify = start < self.trusted_from
                for part in walk(
                    self._segments, start, stop, self._delays_ms, collect=True, verify=verify
                ):
                    if isinstance(part, Damaged):
                        self.report(part, stop)
                    else:
                        touched += [run.queue for run in part.scan.runs]
                        self._take(part)
                    if on_piece is not None:
                        on_piece(part.start)
                self._move_to(start, stop)
        return touched

    def _dispatch_fresh(self, end: int) -> list[bytes] | None:
        """The daily case without the walk's ado: a few records that were just appended, and
        nothing left over. None if it is another one."""
        foreseen, self._foreseen = self._foreseen, []
        start = self._queues_at
        is_even = start == self._index_at and start >= self.trusted_from
        if not is_even or start >= end or self._has_left_over:
            return None
        scan = joined(foreseen, start, end) or self._scan_fresh(start, end)
        if scan is None:
            return None
        self._take(Piece(start, end, scan))
        return [run.queue for run in scan.runs]

    def _scan_fresh(self, start: int, end: int) -> Scan | None:
        segment = self._segments.find(start)
        if segment is None or end > segment.end or end - start > PIECE_BYTES_MAX:
            return None
        base = segment.base
        scan = scan_records(
            segment.view, start - base, end - base, base, self._delays_ms, True, False
        )
        return scan if base + scan.position == end else None

    @property
    def _has_left_over(self) -> bool:
        return self._runs_at < len(self._runs) or self._keys_at < len(self._keys)

    def report(self, part: Damaged, end: int) -> None:
        """Say once what is damaged and will never be served."""
        place = DamagedRange(part.start, end if part.resume is None else part.resume, part.damage)
        if place not in self.damaged:
            self.damaged.append(place)
            log.error(
                "CommitLog bytes %d to %d are damaged and not served: %s",
                place.start, place.end, place.damage.describe(),
            )  # fmt: skip

    def _take(self, piece: Piece) -> None:
        if self._queues_at <= piece.start:
            self._runs, self._runs_at = piece.scan.runs, 0
        if self._index_at <= piece.start and self._index is not None:
            self._keys, self._keys_at = piece.scan.keys, 0
        self.timestamp = piece.scan.last_timestamp
        self._move_to(piece.start, piece.end)
        self._apply()

    def _move_to(self, start: int, end: int) -> None:
        """What was at `start` or before is at `end` now; who is farther stays there."""
        if self._queues_at <= start:
            self._queues_at = end
        if self._index_at <= start:
            self._index_at = end

    def _apply(self) -> None:
        """Write what was taken; on a full disk the rest waits for the next call."""
        while self._runs_at < len(self._runs):
            run = self._runs[self._runs_at]
            try:
                self._queues.get_or_make(run.queue).append(run.first_offset, run.entries)
            except IllegalMessage as error:
                # Only a foreign or damaged log has such a topic; it must not become a path.
                log.error("messages of a topic that cannot be are not served: %s", error)
            self._runs_at += 1
        while self._index is not None and self._keys_at < len(self._keys):
            self._keys_at = self._index.insert(self._keys, self._keys_at)
