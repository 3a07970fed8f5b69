"""The store's front: append, dispatch, wait, read, look up, clean, recover.

It belongs to one thread (a broker's event loop); the threads inside make data durable, prepare
files and keep house. A message is in the log when `append` returns. `dispatch` makes what was
appended readable; callers do both once a batch. When it may be acknowledged is a matter of
watermarks: see `wait_settled`, and `turns` for an event loop.
"""

import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from cometmq.clock import Clock, SystemClock
from cometmq.ports import BROKER_PORT
from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.express import Rules, Taken
from cometmq.protocol.host import Host, pack_host
from cometmq.protocol.hot import check_record
from cometmq.protocol.message import Appended, Message, StoredMessage
from cometmq.protocol.names import check_topic
from cometmq.protocol.record import decode_record
from cometmq.protocol.scan import queue_key

from .checkpoint import read_checkpoint
from .commit_log import CommitLog
from .config import FlushMode, StoreConfig
from .consume_queues import ConsumeQueues
from .disk import Disk
from .dispatcher import Dispatcher
from .errors import (
    AppendRefused,
    DiskFull,
    MessageTooLarge,
    NotConfirmed,
    ReplicaTimeout,
    StoreClosed,
    StoreError,
    StoreFailed,
    StoreMismatch,
    TooManyQueues,
)
from .flusher import Flusher
from .gate import Gate, OpenGate
from .keeper import Keeper
from .key_index import KeyIndex
from .log_walk import Piece
from .presence import Presence
from .queue_reader import QueueReader
from .raw_tail import whole_end, whole_records
from .reading import Boundary, ReadResult
from .recovery import Recovery, RecoveryReport
from .watermark import Watermark

log = logging.getLogger(__name__)
DEFAULT_HOST = Host("127.0.0.1", BROKER_PORT)
SPACE_RETRY_MS = 1000
"""How often a refused append looks whether there is space again."""


class MessageStore:
    def __init__(
        self,
        config: StoreConfig,
        *,
        host: Host = DEFAULT_HOST,
        disk: Disk | None = None,
        clock: Clock | None = None,
        on_failure: Callable[[StoreFailed], None] | None = None,
        confirm_appended: bool = True,
        gate: Gate | None = None,
    ) -> None:
        """`host` stands in every record and message id. `on_failure` is called, in a thread of
        the store, when data cannot be made durable. Without `confirm_appended` somebody else (a
        replication group) decides by `confirm` what may be dispatched. `gate` holds back from
        deletion what somebody needs."""
        self.config = config
        self._disk = disk or Disk()
        self._clock = clock or SystemClock()
        self._on_failure = on_failure
        self._confirm_appended = confirm_appended
        self._gate = gate or OpenGate()
        self.appended = Watermark("appended")
        self.flushed = Watermark("flushed")
        self.replicated = Watermark("replicated", late=ReplicaTimeout)
        self.confirmed = Watermark("confirmed", late=NotConfirmed)
        self.dispatched = Watermark("dispatched")
        self.commit_log = CommitLog(config, self._disk, pack_host(*host))
        self.queues = ConsumeQueues(config, self._disk)
        self.index = KeyIndex(config, self._disk) if config.index_enabled else None
        self._reader = QueueReader(self.commit_log, self.queues)
        self._dispatcher = Dispatcher(
            self.commit_log.segments, self.queues, self.index, config.delays_ms()
        )
        self._presence = Presence(config.root, self._disk)
        self._flusher = Flusher(
            config, self.commit_log, self.appended, self.flushed, self._sync_failed
        )
        self._next_offsets: dict[tuple[str, int], int] = {}
        self._last_timestamp = 0
        self._failure: StoreFailed | None = None
        self._no_space: DiskFull | None = None
        self._space_checked_ms = 0
        self._opened = False

    # -- life ------------------------------------------------------------------------------------

    def open(self) -> RecoveryReport:
        """Take the directory, recover what is in it, and start."""
        clean = self._presence.enter()
        try:
            report = self._recover(clean=clean)
        except StoreMismatch:
            # Nothing was touched: the next one finds the store as this one did.
            self._presence.leave(clean=clean)
            raise
        except BaseException:
            self._presence.leave(clean=False)
            raise
        self.commit_log.start(report.log_end)
        self._flusher.start()
        self._keeper.start()
        self._opened = True
        return report

    def _recover(self, *, clean: bool) -> RecoveryReport:
        checkpoint = read_checkpoint(self.config.root / "checkpoint")
        report = Recovery(
            self.config, self.commit_log, self.queues, self.index, self._dispatcher,
            checkpoint, clean=clean, confirms=self._confirm_appended,
        ).run()  # fmt: skip
        progress = self._dispatcher.progress()
        self._last_timestamp = progress.timestamp
        self.appended.reset(report.log_end)
        self.confirmed.reset(report.confirmed)
        self.dispatched.reset(min(progress.queues_offset, progress.index_offset))
        # What recovery found in the page cache may still be lost with the power: sync it once.
        self.flushed.reset(report.log_start if not clean else report.log_end)
        self._keeper = Keeper(
            self.config, self._disk, self._clock, self.commit_log, self.queues, self.index,
            self._dispatcher, self.flushed, lambda: self._last_timestamp, checkpoint,
            self._sync_failed, self._gate,
            None if self._confirm_appended else self.confirmed,
        )  # fmt: skip
        self._flusher.flush()
        self._keeper.save_if_space()
        self._dispatcher.trusted_from = report.log_end
        return report

    def close(self) -> None:
        """Dispatch, make everything durable and leave in order.

        After a failure the store is left as after a crash, for recovery to look at.
        """
        if not self._opened:
            return
        self._opened = False
        # The watermark tells of a failed sync first, and whoever heard of it may be closing us.
        clean = self._failure is None and self.flushed.failure is None
        try:
            if clean:
                self.dispatch()
        finally:
            self._flusher.stop()
            self._keeper.stop()
            self.commit_log.stop()
            try:
                if clean:
                    self._flusher.flush()
                    self._keeper.save()
            except (OSError, StoreFailed):
                clean = False
                raise
            finally:
                left_over = self.dispatched.value != self.appended.value
                self._presence.leave(clean=clean and not left_over)
                self._release_files()

    def abandon(self) -> None:
        """Close and leave everything as after a crash, for recovery to look at."""
        self._failure = self._failure or StoreFailed("the store was abandoned")
        self.close()

    def _release_files(self) -> None:
        self.commit_log.close()
        self.queues.close()
        if self.index is not None:
            self.index.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- write -----------------------------------------------------------------------------------

    def append(self, message: Message) -> Appended:
        """Put one message at the end of the log. Raises AppendRefused and leaves no trace."""
        return self.append_all((message,))[0]

    def append_all(self, messages: Sequence[Message]) -> list[Appended]:
        """Put messages at the end of the log. On a refusal in the middle those before it stay."""
        if self._may_refuse:
            self._refuse_if_must()
        placed: list[Appended] = []
        timestamp = self._next_timestamp()
        number, count = 0, len(messages)
        append = self.commit_log.append
        try:
            while True:
                number = append(messages, number, self._next_offsets, timestamp, placed)
                if number == count:
                    break
                self._prepare(messages[number])
        finally:
            self._advance_appended()
        return placed

    def append_sends(
        self, data: bytes, rules: Rules, born_host: bytes, requests_max: int
    ) -> Taken | None:
        """Put the sends that some bytes begin with at the end of the log, as long as there is
        nothing unusual about them; None when everything has to be looked at closely."""
        if self._may_refuse:
            return None
        start = self.appended.value
        taken = self.commit_log.append_sends(
            data, rules, born_host, requests_max, self._next_offsets, self._next_timestamp()
        )
        self._advance_appended()
        if taken.scan is not None and self._confirm_appended:
            self._dispatcher.foresee(Piece(start, self.appended.value, taken.scan))
        return taken

    @property
    def _may_refuse(self) -> bool:
        return bool(not self._opened or self._failure or self._no_space or self._keeper.disk_full)

    def _next_timestamp(self) -> int:
        # Never backwards: searches by time bisect over store times.
        self._last_timestamp = max(self._clock.now_ms(), self._last_timestamp)
        return self._last_timestamp

    def _advance_appended(self) -> None:
        end = self.commit_log.end
        self.appended.advance(end)
        if self._confirm_appended:
            self.confirmed.advance(end)

    def _prepare(self, message: Message) -> None:
        """See to what keeps a message from going in: its size, its queue, or the room for it."""
        body_size = len(message.body)
        if body_size > self.config.message_bytes_max:
            raise MessageTooLarge(
                f"the body has {body_size} bytes, maxMessageSize is {self.config.message_bytes_max}"
            )
        if message.queue_id < 0:
            raise IllegalMessage(f"queue {message.queue_id} of {message.topic}: ids begin at 0")
        key = (message.topic, message.queue_id)
        if key not in self._next_offsets:
            queue = self.queues.get(queue_key(check_topic(message.topic), message.queue_id))
            if queue is None and not self.queues.may_grow:
                raise TooManyQueues(
                    f"{len(self.queues)} queues are open, and no file for another one: raise the "
                    "limit of open files (ulimit -n)"
                )
            self._next_offsets[key] = queue.max_offset if queue is not None else 0
            return
        try:
            self.commit_log.make_room(message)
        except DiskFull as full:
            self._no_space = full
            raise

    def append_raw(self, offset: int, data: memoryview) -> None:
        """Put bytes of another broker's log where they lie there, which must be the end of this
        one; a log without anything begins where they do. They may end anywhere: whole records are
        confirmed. Raises AppendRefused, and StoreMismatch for bytes that cannot be ours."""
        self._require_usable()
        if self._no_space is not None:
            self._look_for_space(self._no_space)
        if not len(self.commit_log.segments) and self.commit_log.end == 0 < offset:
            self._begin_at(offset)
        if offset != self.commit_log.end:
            raise StoreMismatch(f"bytes at {offset}, but the log ends at {self.commit_log.end}")
        try:
            self.commit_log.append_raw(data)
        except DiskFull as full:
            self._no_space = full
            raise
        finally:
            end = self.commit_log.end
            self.appended.advance(end)
            # Not encoded here: every record's checksum is looked at before it is dispatched.
            self._dispatcher.trusted_from = end
        if self._confirm_appended:
            self.confirm(whole_end(self.commit_log.segments, self.confirmed.value, end))

    def _begin_at(self, offset: int) -> None:
        self.commit_log.begin_at(offset)
        self._dispatcher.start(offset, offset, 0)
        for mark in (self.appended, self.flushed, self.confirmed, self.dispatched):
            mark.advance(offset)

    def raw(self, start: int, end: int, bytes_max: int) -> bytes:
        """Whole records as they lie in the log, for another broker: see whole_records."""
        return whole_records(self.commit_log.segments, start, end, bytes_max)

    def cut(self, end: int) -> None:
        """Give up the log from `end` on, durably. Nothing of it was confirmed."""
        if end < self.confirmed.value:
            raise StoreMismatch(f"the log is confirmed up to {self.confirmed.value}, not {end}")
        with self._keeper.held(), self._flusher.held():
            self._keeper.lower(end)
            self.commit_log.cut(end)
            self.appended.lower(end)
            self.flushed.lower(end)
        self.forget_queue_ends()

    def restart(self, start: int) -> None:
        """Give up everything and go on at `start`, which is not before what was confirmed."""
        with self._keeper.held(), self._flusher.held():
            self._keeper.forget()
            self.queues.delete_all()
            if self.index is not None:
                self.index.cut(0, lambda _: None)
            self.commit_log.cut(0)
            self.appended.lower(start)
            self.flushed.lower(start)
            self._begin_at(start)
        self.forget_queue_ends()

    def forget_queue_ends(self) -> None:
        """Where queues go on is to be looked up anew: others wrote to the log, or it was cut.
        Only when everything is dispatched may messages be appended afterwards."""
        self._next_offsets.clear()

    def request_flush(self) -> None:
        """Ask for a sync of what was appended, without waiting."""
        self._flusher.request()

    def has_room(self) -> bool:
        """Whether it is worth a try to append."""
        try:
            self._refuse_if_must()
        except AppendRefused:
            return False
        return True

    def confirm(self, offset: int) -> None:
        """Let records below `offset` be dispatched."""
        self.confirmed.advance(min(offset, self.appended.value))

    def dispatch(self) -> list[bytes]:
        """End a batch: make confirmed messages readable, and ask for a sync of what was appended
        if the flush mode wants one. The queues (see queue_key) that got messages."""
        touched = self._dispatch_confirmed()
        if self._flusher.wakes_on_append and self.flushed.value < self.appended.value:
            self._flusher.request()
        return touched

    def _dispatch_confirmed(self) -> list[bytes]:
        end = self.confirmed.value
        if end <= self.dispatched.value and self._no_space is None:
            return []
        try:
            touched = self._dispatcher.dispatch(end)
        except OSError as error:
            self._no_space = DiskFull(f"no space for ConsumeQueue or index: {error}")
            log.error(
                "%s; messages are in the log, and readable when there is space", self._no_space
            )
            return []
        self.dispatched.advance(end)
        # What was dispatched may be another broker's, with later times than ours.
        self._last_timestamp = max(self._last_timestamp, self._dispatcher.timestamp)
        return touched

    def put(self, message: Message) -> Appended:
        """Append one message and make it readable."""
        appended = self.append(message)
        self.dispatch()
        return appended

    def flush(self) -> None:
        """Make what was appended durable now, whatever the flush mode. Raises StoreFailed."""
        self._flusher.flush()

    def wait_settled(self, appended: Appended) -> None:
        """Block until the flush mode lets a message be acknowledged. Call dispatch() before."""
        if self.config.flush is FlushMode.SYNC:
            self.flushed.wait(appended.end, self.config.sync_flush_timeout_ms)

    def _require_usable(self) -> None:
        if not self._opened:
            raise StoreClosed(f"the store {self.config.root} is not open")
        if self._failure is not None:
            raise self._failure

    @property
    def trouble(self) -> StoreError | None:
        """Why no message is taken just now; None when nothing is wrong."""
        if not self._opened:
            return StoreClosed(f"the store {self.config.root} is not open")
        # The watermark hears first of a failed sync.
        return self._failure or self.flushed.failure or self._disk_full() or self._no_space

    def _disk_full(self) -> DiskFull | None:
        if not self._keeper.disk_full:
            return None
        return DiskFull(
            f"the disk of {self.config.root} is over {self.config.disk_full_percent} % full"
        )

    def _refuse_if_must(self) -> None:
        self._require_usable()
        full = self._disk_full()
        if full is not None:
            raise full
        if self._no_space is not None:
            self._look_for_space(self._no_space)

    def _look_for_space(self, refusal: DiskFull) -> None:
        """Try once a while whether what failed for lack of space succeeds now."""
        now_ms = self._clock.now_ms()
        if now_ms - self._space_checked_ms < SPACE_RETRY_MS:
            raise refusal
        self._space_checked_ms = now_ms
        self._no_space = None
        behind = self.dispatched.value < self.confirmed.value
        if behind:
            self.dispatch()
        if self._no_space is not None:
            raise self._no_space
        log.warning("trying to take messages again after: %s", refusal)

    def _sync_failed(self, failure: StoreFailed) -> None:
        self._failure = failure
        for mark in (self.replicated, self.confirmed, self.dispatched):
            mark.fail(failure)
        if self._on_failure is not None:
            self._on_failure(failure)

    # -- read ------------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        count_max: int = 32,
        bytes_max: int = 256 * 1024,
        tag_hashes: frozenset[int] | None = None,
    ) -> ReadResult:
        """Messages of a queue from `offset` on; with `tag_hashes`, those whose tag may match."""
        key = queue_key(topic, queue_id)
        return self._reader.read(key, offset, count_max, bytes_max, tag_hashes)

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The whole record that begins at an offset; None when none does."""
        view = self._reader.record_at(physical_offset, self.confirmed.value)
        if view is None:
            return None
        size = check_record(view, 0, len(view), physical_offset)
        return view[:size] if size > 0 else None

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """The same, decoded."""
        record = self.record_at(physical_offset)
        return None if record is None else decode_record(record, 0, physical_offset)

    def query(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = 1 << 62, count_max: int = 32
    ) -> list[StoredMessage]:
        """Messages with a key (or unique id, or `T#tag`), newest first."""
        if self.index is None:
            return []
        found = []
        # Others may share the hash, so more are looked up than asked for.
        for physical in self.index.lookup(topic, key, begin_ms, end_ms, count_max * 2 + 64):
            message = self.message_at(physical)
            if (
                message is not None
                and message.topic == topic
                and begin_ms <= message.store_timestamp <= end_ms
                and message.has_key(key)
            ):
                found.append(message)
                if len(found) == count_max:
                    break
        return found

    def last_queued_offset(self) -> int:
        """Where the last record begins that a queue has; -1 when there is none."""
        return max((queue.last_physical_offset() for _, queue in self.queues), default=-1)

    def last_message(self) -> StoredMessage | None:
        """The message that ends the log, if it is one that a queue has."""
        last = self.last_queued_offset()
        message = self.message_at(last) if last >= 0 else None
        if message is None or last + message.size != self.appended.value:
            return None
        return message

    @property
    def last_timestamp(self) -> int:
        """Store time of the last message; 0 when there is none."""
        return self._last_timestamp

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self.queues.get(queue_key(topic, queue_id))
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Where the next message of the queue goes, as far as it is readable."""
        queue = self.queues.get(queue_key(topic, queue_id))
        return queue.max_offset if queue is not None else 0

    def earliest_time(self, topic: str, queue_id: int) -> int:
        """Store time of the queue's first message; -1 when it has none."""
        return self._reader.earliest_time(queue_key(topic, queue_id))

    def store_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Store time of the message at an offset of a queue; None when there is none."""
        return self._reader.time_at(queue_key(topic, queue_id), offset)

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """LOWER: the first message stored at that time or later. UPPER: the last one stored at
        that time or earlier."""
        return self._reader.offset_by_time(queue_key(topic, queue_id), timestamp_ms, boundary)

    def reconfigure(self, config: StoreConfig) -> None:
        """Take new values of settings that may change while the store is open."""
        self.config = config
        self.commit_log.reconfigure(config)
        self._keeper.reconfigure(config)

    # -- keep house ------------------------------------------------------------------------------

    def clean(self, *, by_hand: bool = True) -> int:
        """Delete expired CommitLog files now; `by_hand`, as if it were the hour to do so. How
        many."""
        return self._keeper.clean(by_hand=by_hand)

    def clean_queues(self) -> int:
        """Delete ConsumeQueue and index files that point to nothing any more; how many."""
        return self._keeper.clean_queues()

    def disk_used_percent(self) -> float:
        return self._disk.used_percent(self.config.root)

    def delete_topic(self, topic: str, before: int | None = None) -> int:
        """Forget a topic's queues; its records go with the log. How many queues there were. With
        `before` only if no record from that offset on is of it: it was made anew then."""
        if before is not None and self.queues.last_of_topic(topic) >= before:
            return 0
        count = self.queues.delete_topic(check_topic(topic))
        self._next_offsets = {k: v for k, v in self._next_offsets.items() if k[0] != topic}
        self._keeper.save()
        return count
