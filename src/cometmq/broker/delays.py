"""Delayed messages on their way back: one reader a level, in order, never early.

A message is delivered when it is in the log of its real topic. How far each level has come is saved
every few seconds, with the end of the log that it belongs to; what the log has behind that is
counted at the next start (see `origins`): no crash loses a message or lets it come twice. Only what
a power cut takes from the log itself comes again.
"""

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from cometmq.clock import Clock
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.data_version import DataVersion
from cometmq.protocol.host import pack_host
from cometmq.protocol.message import StoredMessage
from cometmq.protocol.record import iter_records
from cometmq.protocol.scan import split_queue_key
from cometmq.store.config_file import ConfigFile
from cometmq.store.message_store import MessageStore
from cometmq.store.reading import ReadResult
from cometmq.transport.connection import Refusal

from .delayed import due
from .inbox import Inbox
from .origins import delivered_since, first_waiting
from .persistent import Persistent
from .topics import SCHEDULE_TOPIC

log = logging.getLogger(__name__)
LOOK_INTERVAL_S = 1.0
"""The longest sleep: clocks are set now and then."""
RETRY_S = 1.0
BATCH = 64
_TOPIC = SCHEDULE_TOPIC.encode()
LOG_BYTES_UNSAVED_MAX = 64 * 1024 * 1024
"""How much of the log a start has to look through at most, however few delays there are."""


class DelayProgress(msgspec.Struct, rename="camel"):
    """`delayOffset.json`: the next offset of each level."""

    offset_table: dict[int, int] = {}
    data_version: DataVersion | None = None
    log_offset: int | None = None
    """Copies behind this offset of the log are not counted. RocketMQ has no such field."""


class Delays(Persistent):
    def __init__(
        self, store: MessageStore, inbox: Inbox, clock: Clock, file: ConfigFile | None
    ) -> None:
        super().__init__(file)
        self._store = store
        self._inbox = inbox
        self._clock = clock
        self._delays_ms = store.config.delays_ms()
        found: DelayProgress | None = self.load_as(DelayProgress)
        saved = found or DelayProgress(log_offset=_first_waiting(store, len(self._delays_ms)))
        self._next = dict(saved.offset_table)
        self._durable = self._next.copy()
        self._durable_at = saved.log_offset
        """The end of the log that `_durable` belongs to."""
        if saved.log_offset is not None:
            self._count_delivered(saved.log_offset)
        self._noted = (0, self._durable)
        """Where the log ended at the last save, and how far the levels had come."""
        self._version = saved.data_version or DataVersion(0, clock.now_ms(), 0)
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._stopped = False

    def content(self) -> DelayProgress:
        return DelayProgress(self._durable, self._version, self._durable_at)

    def now(self) -> DelayProgress:
        """How far they are, for a record behind all that they have delivered."""
        return DelayProgress(self._next.copy(), self._version, self._store.appended.value)

    def save(self) -> None:
        now = (self._store.appended.value, self._next.copy())
        for log_end, progress in (now, self._noted):
            if self._store.flushed.value >= log_end:
                if progress != self._durable or self._is_long_ago(log_end):
                    self._durable, self._durable_at = progress, log_end
                    self._version = self._version.next(self._clock.now_ms())
                    self.touch()
                break
        self._noted = now
        super().save()

    def copy(self, told: DelayProgress) -> None:
        """Take over how far a master is, once our log has what it had then."""
        if told == self.content():
            return
        self._next, self._durable = dict(told.offset_table), dict(told.offset_table)
        self._durable_at = told.log_offset
        self._version = told.data_version or self._version
        self.touch()
        super().save()

    def _is_long_ago(self, log_end: int) -> bool:
        """Whether the next start would have much of the log to look through."""
        return log_end - (self._durable_at or 0) >= LOG_BYTES_UNSAVED_MAX

    def _count_delivered(self, log_offset: int) -> None:
        """Go on behind what was delivered since the last save."""
        for found in delivered_since(self._store, log_offset, (SCHEDULE_TOPIC,)):
            level = found.origin.queue_id + 1
            self._next[level] = max(self._next.get(level, 0), found.origin.queue_offset + 1)

    def start(self) -> None:
        for level in range(1, len(self._delays_ms) + 1):
            self._deliver(level)

    def stop(self) -> None:
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def arrived(self, queues: Iterable[bytes]) -> None:
        """These queues got messages; those of the delayed ones may need a look."""
        for queue in queues:
            if not queue.startswith(_TOPIC):
                continue
            topic, queue_id = split_queue_key(queue)
            if topic == SCHEDULE_TOPIC and queue_id + 1 not in self._timers:
                self._deliver(queue_id + 1)

    def poke(self) -> None:
        """Look at the clock now."""
        for level, timer in list(self._timers.items()):
            timer.cancel()
            self._deliver(level)

    def next_offset(self, level: int) -> int:
        queue_id = level - 1
        low = self._store.min_offset(SCHEDULE_TOPIC, queue_id)
        return max(self._next.get(level, 0), low)

    def _deliver(self, level: int) -> None:
        """Deliver what is due of a level, and come back when the next one is."""
        self._timers.pop(level, None)
        if self._stopped or not 1 <= level <= len(self._delays_ms):
            return
        wait_s = 0.0
        offset = self.next_offset(level)
        result = self._store.read(SCHEDULE_TOPIC, level - 1, offset, count_max=BATCH)
        if not result.count:
            # Nothing there yet, or what is there is lost, or the log ends before the saved offset.
            self._next[level] = result.next_offset
            return
        for stored in _decode(result):
            left_ms = stored.store_timestamp + self._delays_ms[level - 1] - self._clock.now_ms()
            if left_ms > 0:
                wait_s = min(left_ms / 1000, LOOK_INTERVAL_S)
                break
            if not self._put(stored):
                wait_s = RETRY_S
                break
            self._next[level] = stored.queue_offset + 1
        loop = asyncio.get_running_loop()
        self._timers[level] = loop.call_later(wait_s, self._deliver, level)

    def _put(self, stored: StoredMessage) -> bool:
        message = due(stored, pack_host(*stored.born_host))
        if message is None:
            log.error("a delayed message without its real topic: offset %d", stored.queue_offset)
            return True
        try:
            self._inbox.put_due(message, _told)
        except Refusal as refusal:
            log.error("a delayed message for %s must wait: %s", message.topic, refusal)
            # What can never be stored must not hold up the others.
            return refusal.response.code == ResponseCode.MESSAGE_ILLEGAL
        return True


def _first_waiting(store: MessageStore, levels: int) -> int:
    """Where in the log the first message lies that may be waiting."""
    firsts = (first_waiting(store, SCHEDULE_TOPIC, queue_id) for queue_id in range(levels))
    return min(firsts, default=store.appended.value)


def _told(code: ResponseCode, remark: str | None) -> None:
    if code != ResponseCode.SUCCESS:
        log.error("a delayed message may not be durable: %s", remark)


def _decode(result: ReadResult) -> Iterable[StoredMessage]:
    for piece in result.slices:
        yield from iter_records(piece)
