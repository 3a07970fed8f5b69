"""Which half messages are undecided, and when each is to be asked about.

All of it follows from the log: the queue of half messages less what the queue of decisions names.
Two offsets, kept like a consumer group's, say from where on the next start must look. How often
each was asked about is kept in a file of its own.
"""

import heapq
from collections.abc import Iterator

import msgspec

from cometmq.protocol import flags
from cometmq.protocol.message import StoredMessage
from cometmq.protocol.properties import UNIQUE_KEY, property_value
from cometmq.protocol.record import iter_records
from cometmq.store.config_file import ConfigFile
from cometmq.store.message_store import MessageStore

from ..offsets import ConsumerOffsets
from ..persistent import Persistent
from ..topics import HALF_DONE_TOPIC, HALF_TOPIC
from .half import CHECKS, IMMUNITY_S, decided_offsets

GROUP = "CID_RMQ_SYS_TRANS"
OPEN_MAX = 1_000_000
"""Undecided messages at a time; no further transaction is begun."""
_READ_COUNT = 1024
_DUE_SLACK = 1024
_IMMUNITY_DIGITS_MAX = 9


class Open(msgspec.Struct, gc=False):
    physical_offset: int
    decisions_before: int
    """Where the queue of decisions ended when this one came: its own is behind that."""
    checks: int = 0
    delivered: bool = False
    """Committed, but the decision itself could not be written."""


class Checks(msgspec.Struct):
    """`transactionChecks.json`: how often a half message was asked about, by its offset."""

    checks: dict[int, int] = {}


class OpenHalves(Persistent):
    def __init__(
        self, store: MessageStore, offsets: ConsumerOffsets, file: ConfigFile | None
    ) -> None:
        super().__init__(file)
        self._store = store
        self._offsets = offsets
        self._open: dict[int, Open] = {}
        self._due: list[tuple[int, int]] = []
        self._noted = (0, (0, 0))
        """Where the log ended at the last save, and how far decisions had come."""

    def __len__(self) -> int:
        return len(self._open)

    def content(self) -> Checks:
        return Checks({offset: half.checks for offset, half in self._open.items() if half.checks})

    def get(self, offset: int) -> Open | None:
        return self._open.get(offset)

    def add(self, offset: int, physical_offset: int, due_ms: int) -> None:
        decisions = self._store.max_offset(HALF_DONE_TOPIC, 0)
        self._open[offset] = Open(physical_offset, decisions)
        heapq.heappush(self._due, (due_ms, offset))

    def decide(self, offset: int) -> None:
        del self._open[offset]
        self.touch()
        # Most are decided long before they would be asked about.
        if len(self._due) > 2 * len(self._open) + _DUE_SLACK:
            self._due = [entry for entry in self._due if entry[1] in self._open]
            heapq.heapify(self._due)

    def take_due(self, now_ms: int, count_max: int) -> list[int]:
        """Half messages whose time to be asked about has come; each must be told `again`."""
        found: list[int] = []
        while self._due and self._due[0][0] <= now_ms and len(found) < count_max:
            _, offset = heapq.heappop(self._due)
            if offset in self._open:
                found.append(offset)
        return found

    def again(self, offset: int, due_ms: int) -> None:
        heapq.heappush(self._due, (due_ms, offset))

    def save(self) -> None:
        """Note from where on the next start must look, and how often was asked. Only as far as
        the disk has the decisions: one that is lost with the power must be asked for again."""
        now = (self._store.appended.value, self._progress())
        for log_end, progress in (now, self._noted):
            if self._store.flushed.value >= log_end:
                self._commit(*progress)
                break
        self._noted = now
        super().save()

    def _progress(self) -> tuple[int, int]:
        """The first undecided half message, and from where on decisions may speak of it."""
        first = next(iter(self._open), None)
        if first is not None:
            return first, self._open[first].decisions_before
        max_offset = self._store.max_offset
        return max_offset(HALF_TOPIC, 0), max_offset(HALF_DONE_TOPIC, 0)

    def _commit(self, half: int, decision: int) -> None:
        for topic, offset in ((HALF_TOPIC, half), (HALF_DONE_TOPIC, decision)):
            if half and self._offsets.committed(GROUP, topic, 0) != offset:
                self._offsets.commit(GROUP, topic, 0, offset)

    # -- after a start ---------------------------------------------------------------------------

    def recover(self, timeout_ms: int) -> list[int]:
        """Find what is undecided. Those that were delivered without a record of it, because the
        last broker died in between, are given back: they lack just that."""
        saved: Checks = self.load_as(Checks) or Checks()
        decisions_from, newest = self._start(HALF_DONE_TOPIC), dict[bytes, int]()
        for half in self._read(HALF_TOPIC):
            due_ms = half.store_timestamp + immunity_ms(half.properties, timeout_ms)
            self.add(half.queue_offset, half.physical_offset, due_ms)
            found = self._open[half.queue_offset]
            found.decisions_before = decisions_from
            found.checks = saved.checks.get(half.queue_offset, 0)
            self._forget_older(half, newest)
        for record in self._read(HALF_DONE_TOPIC):
            for offset in decided_offsets(record):
                self._open.pop(offset, None)
        return self._delivered_last()

    def _forget_older(self, half: StoredMessage, newest: dict[bytes, int]) -> None:
        """Of a half message that RocketMQ wrote anew, only the newest counts. How far it has come
        says its group's offset, which a broker that takes over need not have."""
        key = property_value(half.properties, UNIQUE_KEY.encode())
        if key is None:
            return
        if key in newest and property_value(half.properties, CHECKS) is not None:
            self._open.pop(newest[key], None)
        newest[key] = half.queue_offset

    def _delivered_last(self) -> list[int]:
        """A commit and its record are written one behind the other, so at most the last record
        of the log can be a commit without its record."""
        last = self._store.last_message()
        if last is None or last.sys_flag & flags.TRANSACTION_MASK != flags.TRANSACTION_COMMIT:
            return []
        where = last.prepared_transaction_offset
        return [offset for offset, half in self._open.items() if half.physical_offset == where]

    def _start(self, topic: str) -> int:
        saved = self._offsets.committed(GROUP, topic, 0) or 0
        return max(saved, self._store.min_offset(topic, 0))

    def _read(self, topic: str) -> Iterator[StoredMessage]:
        offset = self._start(topic)
        while True:
            result = self._store.read(topic, 0, offset, count_max=_READ_COUNT)
            for piece in result.slices:
                yield from iter_records(piece)
            if result.next_offset <= offset:
                return
            offset = result.next_offset


def immunity_ms(properties: bytes, timeout_ms: int) -> int:
    """How long after it was stored a half message is first asked about."""
    own = property_value(properties, IMMUNITY_S) or b""
    if own.isdigit() and len(own) <= _IMMUNITY_DIGITS_MAX:
        return int(own) * 1000
    return timeout_ms
