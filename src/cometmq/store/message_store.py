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
from cometmq.protocol.errors import IllegalMessage
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
    DiskFull,
    MessageTooLarge,
    StoreClosed,
    StoreFailed,
    StoreMismatch,
    TooManyQueues,
)
from .flusher import Flusher
from .gate import Gate, OpenGate
from .keeper import Keeper
from .key_index import KeyIndex
from .presence import Presence
from .queue_reader import QueueReader
from .reading import Boundary, ReadResult
from .recovery import Recovery, RecoveryReport
from .watermark import Watermark

log = logging.getLogger(__name__)
DEFAULT_HOST = Host("127.0.0.1", 10911)
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
        self.replicated = Watermark("replicated")
        self.confirmed = Watermark("confirmed")
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
            checkpoint, clean=clean,
        ).run()  # fmt: skip
        progress = self._dispatcher.progress()
        self._last_timestamp = progress.timestamp
        for mark in (self.appended, self.confirmed):
            mark.reset(report.log_end)
        self.dispatched.reset(min(progress.queues_offset, progress.index_offset))
        # What recovery found in the page cache may still be lost with the power: sync it once.
        self.flushed.reset(report.log_start if not clean else report.log_end)
        self._keeper = Keeper(
            self.config, self._disk, self._clock, self.commit_log, self.queues, self.index,
            self._dispatcher, self.flushed, lambda: self._last_timestamp, checkpoint,
            self._sync_failed, self._gate,
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
        if not self._opened or self._failure or self._no_space or self._keeper.disk_full:
            self._refuse_if_must()
        placed: list[Appended] = []
        # Never backwards: searches by time bisect over store times.
        self._last_timestamp = timestamp = max(self._clock.now_ms(), self._last_timestamp)
        number, count = 0, len(messages)
        append = self.commit_log.append
        try:
            while True:
                number = append(messages, number, self._next_offsets, timestamp, placed)
                if number == count:
                    break
                self._prepare(messages[number])
        finally:
            end = self.commit_log.end
            self.appended.advance(end)
            if self._confirm_appended:
                self.confirmed.advance(end)
        return placed

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

    def _refuse_if_must(self) -> None:
        if not self._opened:
            raise StoreClosed(f"the store {self.config.root} is not open")
        if self._failure is not None:
            raise self._failure
        if self._keeper.disk_full:
            raise DiskFull(
                f"the disk of {self.config.root} is over {self.config.disk_full_percent} % full"
            )
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
        view = self._reader.record_at(physical_offset, self.appended.value)
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

    def last_message(self) -> StoredMessage | None:
        """The message that ends the log, if it is one that a queue has."""
        last = max((queue.last_physical_offset() for _, queue in self.queues), default=-1)
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

    def delete_topic(self, topic: str) -> int:
        """Forget a topic's queues; its records go with the log. How many queues there were."""
        count = self.queues.delete_topic(check_topic(topic))
        self._next_offsets = {k: v for k, v in self._next_offsets.items() if k[0] != topic}
        self._keeper.save()
        return count
