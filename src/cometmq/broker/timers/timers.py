"""Messages with a time of their own, on their way in and back: never early, in the order of their
times, each exactly once.

What arrives in the timer topic's queue is entered into wheel and log; the seconds that are due next
are read into memory, and each message is written to its real topic at its millisecond. How far that
has come is saved every second; what the log has behind that is counted at the next start. When the
clock is set back, messages wait until it is where it was.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.data_version import DataVersion
from cometmq.protocol.message import Message, StoredMessage
from cometmq.protocol.record import iter_records
from cometmq.protocol.scan import queue_key
from cometmq.store.disk import Disk, is_disk_full
from cometmq.store.errors import StoreFailed
from cometmq.transport.connection import Refusal

from ..context import Context
from ..inbox import Inbox
from ..topics import TIMER_TOPIC
from . import recovery
from .checkpoint import REBUILDING, TOLD_BYTES, Checkpoint, Progress
from .due_slot import DueSlot
from .files import TimerFiles
from .marks import Marks
from .timed import PRECISION_MS, RecallKey, delivered, due_time, key_of, recalled_key, rolled
from .timer_log import MESSAGE, RECALL, ROLL, DamagedTimers, Entry

log = logging.getLogger(__name__)
LOOK_INTERVAL_S = 1.0
"""The longest sleep: clocks are set now and then."""
RETRY_S = 1.0
TAKE_IN_BATCH = 64
DELIVER_BATCH = 64
READ_BATCH = 2000
"""Entries of the timer log read in one turn."""
SKIP_BATCH = 10_000
"""Seconds without messages passed over in one turn."""
CHANGES_MAX = 32_768
"""Slots whose change is only in memory; beyond that messages wait in the queue for a save."""
RECALLS_PER_SECOND_MAX = 50_000
ROLL_S_MIN = 60
FAR_BEHIND_MS = 7 * recovery.DAY_MS
"""The wheel has no place for new messages beside what is overdue for longer."""
LOG_BYTES_UNSAVED_MAX = 64 * 1024 * 1024
"""How much of the log a start has to look through at most, however little the timers do."""
_QUEUE = queue_key(TIMER_TOPIC, 0)


class Timers:
    def __init__(
        self,
        context: Context,
        inbox: Inbox,
        disk: Disk,
        on_failure: Callable[[StoreFailed], None] | None = None,
    ) -> None:
        """`on_failure` is told when the files cannot be made durable."""
        self._context = context
        self._store = context.store
        self._inbox = inbox
        self._clock = context.clock
        self._on_failure = on_failure
        config = context.config
        self._files = TimerFiles(context.store.config.root, config.timer_log_file_bytes, disk)
        self._due_ms = 0
        """The millisecond that is being delivered; everything before it has been."""
        self._slots: dict[int, DueSlot] = {}
        self._recalled_before: set[RecallKey] = set()
        """Recalls of the second before: RocketMQ may have put one there."""
        self._await_offset = 0
        """Nothing is delivered before everything below this queue offset is taken in."""
        self._entries_left = 0
        """Entries of seconds that are over, as long as the saved progress is not."""
        self._handed_out = 0
        self._saved: tuple[int, ...] = ()
        self._saving: asyncio.Future[Any] | None = None
        """What the thread is at."""
        self._thread = ThreadPoolExecutor(1, "cometmq-timers")
        self._timer: asyncio.TimerHandle | None = None
        self._is_soon = False
        self._retry = False
        self._running = False
        self._recovery: Callable[[], recovery.Recovered] | None = None
        """How to find out where to go on; None when that is known."""
        nothing = Progress(0, 0, 0)
        self._go_on_from(
            recovery.Recovered(progress=nothing, queue_offset=0, delivered=Marks(0, 0))
        )

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        self._running = True
        self._recovery = lambda: recovery.recover(self._store, self._files, self._clock.now_ms())
        self._recover()
        self._plan(0)

    def _recover(self) -> None:
        """Find out where to go on, if that is to be found out; on a full disk it is later."""
        if self._recovery is None or self._saving is not None:
            return
        if self._context.quorum is not None:
            self._recover_beside(self._recovery)
            return
        try:
            self._go_on_from(self._recovery())
            self._recovery = None
        except OSError as error:
            self._tell_unopened(error)

    def _recover_beside(self, recover: Callable[[], recovery.Recovered]) -> None:
        """The same in another thread: it may take long, and a leader that says nothing for a
        second is replaced."""

        def done(future: "asyncio.Future[recovery.Recovered]") -> None:
            self._saving = None
            error = future.exception()
            if error is None:
                self._go_on_from(future.result())
                self._recovery = None
                self._plan(0)
            elif isinstance(error, OSError):
                self._tell_unopened(error)
            else:
                self._tell(error)

        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._thread, recover)
        work.add_done_callback(done)
        self._saving = work

    def _tell_unopened(self, error: OSError) -> None:
        log.error("the timer wheel cannot be opened, timed messages wait: %s", error)

    def _go_on_from(self, found: recovery.Recovered) -> None:
        self._progress = self._floor = found.progress
        self._due_ms = found.progress.due_ms
        self._queue_offset = found.queue_offset
        self._complete_at = found.complete_at
        self._delivered = found.delivered
        self._settled_ms = found.settled_ms
        self._entries = found.entries
        self._version = found.version
        self._entries_left = 0
        self._slots.clear()
        self._recalled_before = set()
        self._saved = ()
        self._await_offset = self._store.max_offset(TIMER_TOPIC, 0)

    async def stop(self) -> None:
        """Deliver no more; `finish` may follow."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
        if self._saving is not None:
            await asyncio.wait([self._saving])
        self._thread.shutdown()

    def arrived(self, queues: Iterable[bytes]) -> None:
        """These queues got messages."""
        if _QUEUE in queues:
            self.poke()

    def poke(self) -> None:
        """Look at queue and clock now."""
        # A plan that is put off again and again would never come true.
        if not self._is_soon:
            self._plan(0)

    def told(self) -> bytes | None:
        """How far they have come, for a slave; None as long as that is not known."""
        if self._recovery is not None:
            return None
        return self._checkpoint_of(self._version).encode()[:TOLD_BYTES]

    @property
    def waiting(self) -> int:
        """Messages and recalls that wait, those of the current second included."""
        return self._entries

    @property
    def behind(self) -> int:
        """Messages that arrived and are not in the wheel yet."""
        return max(self._store.max_offset(TIMER_TOPIC, 0) - self._queue_offset, 0)

    # -- recalls ---------------------------------------------------------------------------------

    def may_recall(self, due_ms: int) -> bool:
        """Whether a message that is due then can still be kept from being delivered."""
        return due_ms > max(self._due_ms, self._clock.now_ms())

    def has_room_for_recall(self, due_ms: int) -> bool:
        slot = self._files.wheel.slot(due_ms // PRECISION_MS) if self._files.exist else None
        return slot is None or slot.recalls < RECALLS_PER_SECOND_MAX

    def await_offset(self, queue_offset: int) -> None:
        """A recall, or what was written anew, stands at this offset of the queue: deliver nothing
        that is due later before it is known."""
        self._await_offset = max(self._await_offset, queue_offset + 1)

    # -- clockwork -------------------------------------------------------------------------------

    def _plan(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._running:
            self._is_soon = wait_s == 0
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        """Do some of everything that is to be done, and come back when there is more."""
        self._timer, self._is_soon, self._retry = None, False, False
        wait_s = RETRY_S
        try:
            self._recover()
            if self._recovery is None:
                more = self._work()
                wait_s = RETRY_S if self._retry else 0 if more else self._idle_s()
        except DamagedTimers as error:
            log.error("the timer wheel is made anew: %s", error)
            self._recovery = lambda: recovery.rebuild(
                self._store, self._files, self._progress, self._version
            )
            wait_s = 0
        finally:
            self._plan(wait_s)

    def _work(self) -> bool:
        """Some of everything; whether there is more."""
        more = self._take_in()
        more = self._read_on() or more
        more = self._deliver() or more
        if self._files.wheel.changes >= CHANGES_MAX // 2:
            self.save_soon()
        return more

    def _idle_s(self) -> float:
        """How long there is nothing to do."""
        now_ms = self._clock.now_ms()
        second = self._due_ms // PRECISION_MS
        next_ms = (second + 1) * PRECISION_MS
        slot = self._slots.get(second)
        head = slot.head() if slot is not None else None
        if head is not None:
            next_ms = second * PRECISION_MS + head[0]
        return min(max(next_ms - now_ms, 1) / 1000, LOOK_INTERVAL_S)

    # -- in --------------------------------------------------------------------------------------

    def _take_in(self) -> bool:
        """Enter messages that arrived into wheel and log; whether there are more."""
        now_ms = self._clock.now_ms()
        offset = max(self._queue_offset, self._store.min_offset(TIMER_TOPIC, 0))
        if offset >= self._store.max_offset(TIMER_TOPIC, 0) or self._far_behind(now_ms):
            return False
        if self._files.wheel.changes >= CHANGES_MAX:
            self._retry = self._saving is None  # The last save failed: not at once again.
            return False
        result = self._store.read(TIMER_TOPIC, 0, offset, count_max=TAKE_IN_BATCH)
        try:
            if not self._files.exist:
                self._files.create()
            for piece in result.slices:
                for waits in iter_records(piece):
                    self._enter(waits, now_ms)
                    self._queue_offset = waits.queue_offset + 1
        except OSError as error:
            log.error("the timer log cannot grow, timed messages wait in the queue: %s", error)
            self._retry = True
            return False
        self._queue_offset = max(result.next_offset, self._queue_offset)
        return True

    def _far_behind(self, now_ms: int) -> bool:
        return now_ms - self._due_ms > FAR_BEHIND_MS

    def _enter(self, waits: StoredMessage, now_ms: int) -> None:
        due_ms = due_time(waits)
        if due_ms is None:
            log.error("a timed message without its time: offset %d", waits.queue_offset)
            return
        if self._is_known(waits.queue_offset, due_ms):
            return
        # What comes too late for its own millisecond goes with the one that is being delivered.
        due_ms, kind = self._planned(max(due_ms, self._due_ms), now_ms)
        recalled = recalled_key(waits)
        if recalled is not None:
            kind |= RECALL
            if not kind & ROLL and not self.has_room_for_recall(due_ms):
                log.error("too many recalls for one second: offset %d", waits.queue_offset)
                return
        position = self._files.add(waits, kind, due_ms, now_ms)
        self._entries += 1
        slot = self._slots.get(due_ms // PRECISION_MS)
        if slot is None:
            return
        if recalled is not None and not kind & ROLL:
            slot.recalled.add(recalled)
        else:
            slot.add_newer(due_ms % PRECISION_MS, position)

    def _is_known(self, queue_offset: int, due_ms: int) -> bool:
        """Whether a message that is taken in once more, because files are made anew, has been
        delivered."""
        if queue_offset >= self._complete_at:
            return False
        floor = self._floor
        return (queue_offset < floor.queue_offset and due_ms < floor.due_ms) or (
            queue_offset in self._delivered
        )

    def _planned(self, due_ms: int, now_ms: int) -> tuple[int, int]:
        """When to look at a message again: when it is due, or earlier to write it anew. The log
        deletes old files, and the wheel does not go on for ever."""
        window_ms = self._roll_window_ms()
        ahead_ms = due_ms - now_ms
        if ahead_ms < window_ms:
            return due_ms, MESSAGE
        if ahead_ms - window_ms < window_ms // 3:  # Not twice in short succession.
            window_ms //= 2
        return max(now_ms + window_ms, self._due_ms), MESSAGE | ROLL

    def _roll_window_ms(self) -> int:
        kept_s = self._store.config.reserved_hours * 3600 * 2 // 3
        return max(min(self._context.config.timer_roll_s, kept_s), ROLL_S_MIN) * 1000

    # -- into memory -----------------------------------------------------------------------------

    def _read_on(self) -> bool:
        """Read on the entries of this second and the next; whether there are more."""
        if not self._files.exist:
            return False
        second = self._due_ms // PRECISION_MS
        for number in (second, second + 1):
            slot = self._slots.get(number)
            if slot is None:
                start = (self._due_ms % PRECISION_MS if number == second else 0, 0)
                slot = DueSlot(number, self._files.newest(number), start)
                self._slots[number] = slot
            if not slot.is_read:
                self._read(slot)
                return True
        return False

    def _read(self, slot: DueSlot) -> None:
        for _ in range(READ_BATCH):
            if slot.is_read:
                return
            position = slot.unread
            entry = self._files.log.entry(position)
            if entry is None:  # The log has deleted it, and all before it.
                slot.unread = -1
                return
            if entry.due_ms // PRECISION_MS != slot.second or entry.previous >= position:
                raise DamagedTimers(f"the entry at {position} is none of second {slot.second}")
            if entry.kind & RECALL and not entry.kind & ROLL:
                self._note_recall(slot, entry)
            else:
                slot.add_older(entry.due_ms % PRECISION_MS, position)
            slot.unread = entry.previous

    def _note_recall(self, slot: DueSlot, entry: Entry) -> None:
        waits = self._waiting_at(entry)
        key = recalled_key(waits) if waits is not None else None
        if key is not None:
            slot.recalled.add(key)

    def _waiting_at(self, entry: Entry) -> StoredMessage | None:
        waits = self._store.message_at(entry.offset)
        if waits is None or waits.topic != TIMER_TOPIC or waits.size != entry.size:
            log.error("a timed message is not in the log any more: offset %d", entry.offset)
            return None
        return waits

    # -- out -------------------------------------------------------------------------------------

    def _deliver(self) -> bool:
        """Write messages that are due to their real topics; whether there are more."""
        now_ms = self._clock.now_ms()
        if not self._files.exist:
            self._advance(now_ms)
            return False
        if self._awaits_more(now_ms):
            return False
        for _ in range(DELIVER_BATCH):
            slot = self._slots.get(self._due_ms // PRECISION_MS)
            if slot is None or not slot.is_read or self._take_rest(slot):
                return True
            head = slot.head()
            head_ms = slot.second * PRECISION_MS + head[0] if head is not None else now_ms + 1
            if head_ms != self._due_ms and self._awaits_more(now_ms):
                return False
            if head is None or head_ms > now_ms:
                if not self._pass(slot, now_ms):
                    return False
                continue
            self._advance(head_ms)
            if not self._hand_out(slot, head[1]):
                self._retry = True
                return False
            slot.pop()
        return True

    def _awaits_more(self, now_ms: int) -> bool:
        return self._queue_offset < self._await_offset and not self._far_behind(now_ms)

    def _take_rest(self, slot: DueSlot) -> bool:
        """Go on with what of a second there was no room for; False when that is nothing."""
        rest = slot.rest(self._files.newest(slot.second)) if slot.head() is None else None
        if rest is None:
            return False
        rest.recalled = slot.recalled
        self._slots[slot.second] = rest
        return True

    def _pass(self, slot: DueSlot, now_ms: int) -> bool:
        """Nothing of a second is due: go on with the next one; False when that has not begun."""
        now = now_ms // PRECISION_MS
        if now <= slot.second:
            self._advance(now_ms)
            return False
        limit = min(now, slot.second + SKIP_BATCH)
        second = self._files.wheel.next_used(slot.second + 1, limit)
        self._advance(second * PRECISION_MS)
        return True

    def _advance(self, due_ms: int) -> None:
        """Go on to a later millisecond: all before it are delivered."""
        if due_ms <= self._due_ms:
            return
        second, left = due_ms // PRECISION_MS, self._due_ms // PRECISION_MS
        self._due_ms = due_ms
        if second > left and self._files.exist:
            self._leave(left, second)
        # As long as copies are known that lie behind the saved progress, it must stay there.
        if due_ms > self._settled_ms and self._queue_offset >= self._complete_at:
            self._progress = Progress(due_ms, self._store.appended.value, self._queue_offset)
            self._entries -= self._entries_left
            self._entries_left = 0

    def _leave(self, left: int, second: int) -> None:
        """Forget the seconds before `second`; only the one that was left had entries."""
        slot = self._files.wheel.slot(left)
        self._entries_left += slot.entries if slot is not None else 0
        before = self._slots.get(second - 1)
        self._recalled_before = before.recalled if before is not None else set()
        self._slots = {number: s for number, s in self._slots.items() if number >= second}

    def _hand_out(self, slot: DueSlot, position: int) -> bool:
        """Deliver one message, or write it anew; False when that must wait."""
        entry = self._files.log.entry(position)
        waits = self._waiting_at(entry) if entry is not None else None
        if entry is None or waits is None or waits.queue_offset in self._delivered:
            return True
        now_ms = self._clock.now_ms()
        if entry.kind & ROLL:
            return self._put(rolled(waits, entry.written_ms, now_ms))
        if self._is_recalled(slot, waits):
            return True
        copy = delivered(waits, entry.written_ms, now_ms)
        if copy is None:
            log.error("a timed message without its real topic: offset %d", waits.queue_offset)
            return True
        return self._put(copy)

    def _put(self, copy: Message) -> bool:
        try:
            (placed,) = self._inbox.put_due(copy, _told)
        except Refusal as refusal:
            log.error("a timed message for %s must wait: %s", copy.topic, refusal)
            # What can never be stored must not hold up the others.
            return refusal.response.code == ResponseCode.MESSAGE_ILLEGAL
        self._handed_out += 1
        if copy.topic == TIMER_TOPIC:
            self.await_offset(placed.queue_offset)
        return True

    def _is_recalled(self, slot: DueSlot, waits: StoredMessage) -> bool:
        if not slot.recalled and not self._recalled_before:
            return False
        key = key_of(waits)
        return key in slot.recalled or key in self._recalled_before

    # -- saves -----------------------------------------------------------------------------------

    def save_soon(self) -> None:
        """Begin a save in another thread, if there is anything to save and none is under way."""
        if self._saving is not None or not self._running or not self._has_changed():
            return
        checkpoint = self._checkpoint()
        state = self._state()
        self._files.wheel.freeze()
        self._saving = asyncio.get_running_loop().run_in_executor(
            self._thread, self._files.write, checkpoint, self._store
        )
        self._saving.add_done_callback(lambda done: self._written(done, state))

    def _written(self, done: "asyncio.Future[None]", state: tuple[int, ...]) -> None:
        self._saving = None
        error = done.exception()
        self._files.wheel.thaw(written=error is None)
        if error is None:
            self._saved = state
            self._files.log.expire(self._store.commit_log.start_offset)
            self.poke()  # Messages may have waited for it.
        else:
            self._tell(error)

    def _tell(self, error: BaseException) -> None:
        if isinstance(error, StoreFailed):
            return  # The store has told it already.
        if isinstance(error, OSError) and is_disk_full(error):
            log.error("no space to save the timer wheel: %s; trying again", error)
            return
        failure = StoreFailed(f"the timer wheel could not be made durable: {error}")
        log.critical("%s", failure)
        if self._on_failure is not None:
            self._on_failure(failure)

    def finish(self) -> None:
        """Save at once and let go of the files, after `stop`. Raises OSError if that cannot be."""
        try:
            # Also when only the clock went on: a RocketMQ that takes over goes by that.
            if self._files.exist and self._recovery is None and self._state() != self._saved:
                self._files.wheel.freeze()
                self._files.write(self._checkpoint(), self._store)
        except StoreFailed as failure:
            log.error("the timer wheel is not saved: %s", failure)
        finally:
            self._files.close()

    def abandon(self) -> None:
        """Let go of the files as they are, after `stop`."""
        self._files.close()

    def _state(self) -> tuple[int, ...]:
        return (
            self._files.log.end, self._queue_offset, self._handed_out, self._progress.log_offset,
            self._progress.due_ms,
        )  # fmt: skip

    def _has_changed(self) -> bool:
        """Whether a save would be worth it. That the clock goes on is not."""
        if not self._files.exist or self._recovery is not None:
            return False
        if not self._saved or self._state()[:3] != self._saved[:3]:
            return True
        _, _, _, log_offset, due_ms = self._saved
        return (
            self._progress.log_offset - log_offset >= LOG_BYTES_UNSAVED_MAX
            or self._progress.due_ms - due_ms >= recovery.DAY_MS
        )

    def _checkpoint(self) -> Checkpoint:
        self._version = self._version.next(self._clock.now_ms())
        return self._checkpoint_of(self._version)

    def _checkpoint_of(self, version: DataVersion) -> Checkpoint:
        complete = self._queue_offset >= self._complete_at
        return Checkpoint(
            second_ms=self._progress.due_ms // PRECISION_MS * PRECISION_MS,
            timer_log_end=self._files.log.end if complete else REBUILDING,
            queue_offset=self._queue_offset,
            version=version,
            progress=self._progress,
            entries=self._entries,
        )


def _told(code: ResponseCode, remark: str | None) -> None:
    if code != ResponseCode.SUCCESS:
        log.error("a timed message may not be durable: %s", remark)
