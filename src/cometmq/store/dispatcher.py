"""Dispatch: what the log holds becomes queue entries and index items.

ConsumeQueues and index are functions of the log: dispatch adds to them strictly in log order, and
a record is never dispatched twice. When the disk is full in the middle, what is left of the batch
waits and goes first the next time.
"""

import logging
from collections import deque

import msgspec

from cometmq.protocol.scan import Run

from .consume_queues import ConsumeQueues
from .errors import StoreFailed
from .key_index import KeyIndex
from .log_walk import Damaged, Piece, walk
from .segments import SegmentChain

log = logging.getLogger(__name__)


class Progress(msgspec.Struct, frozen=True):
    """A point of the log, and what queues and index hold of the records below it."""

    offset: int
    timestamp: int
    """Store time of the last record below."""
    queue_entries: int
    newest_index_items: int


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
        self._runs: deque[Run] = deque()
        self._keys, self._keys_at = b"", 0
        self._reached = (0, 0)
        self.progress = Progress(0, 0, 0, 0)

    def start(self, offset: int, timestamp: int) -> None:
        self._reached = (offset, timestamp)
        self.note_progress()

    def dispatch(self, end: int) -> list[bytes]:
        """Dispatch up to `end`; the queues that got messages. Raises OSError on a full disk."""
        touched: list[bytes] = []
        if self._runs or self._keys_at < len(self._keys):
            touched += (run.queue for run in self._runs)
            self._apply()
        for part in walk(self._segments, self._reached[0], end, self._delays_ms, collect=True):
            if isinstance(part, Damaged):
                raise StoreFailed(
                    f"the record at {part.start} was appended and is damaged:"
                    f" {part.damage.describe()}"
                )
            touched += (run.queue for run in part.scan.runs)
            self.apply(part)
        return touched

    def apply(self, piece: Piece, *, to_queues: bool = True, to_index: bool = True) -> None:
        """Add a scanned piece of the log to queues and index."""
        if to_queues:
            self._runs.extend(piece.scan.runs)
        if to_index and self._index is not None:
            self._keys, self._keys_at = piece.scan.keys, 0
        self._reached = (piece.end, piece.scan.last_timestamp)
        self._apply()

    def _apply(self) -> None:
        while self._runs:
            self._queues.append(self._runs[0])
            self._runs.popleft()
        while self._index is not None and self._keys_at < len(self._keys):
            self._keys_at = self._index.insert(self._keys, self._keys_at)
        self.note_progress()

    def note_progress(self) -> None:
        items = self._index.newest_items() if self._index is not None else 0
        self.progress = Progress(*self._reached, self._queues.entries, items)
