"""Where the timers go on after a start.

With a checkpoint and files that fit it, from there: entries behind it are linked in, and what has
been delivered since is counted in the CommitLog (see `origins`). Files that are missing or damaged
are made anew from the timer topic's queue. A checkpoint that is missing or damaged is made up for
by the whole log behind the first waiting message. What a RocketMQ has left is taken over from its
timer log.
"""

import logging
from collections.abc import Iterator

import msgspec

from cometmq.protocol.data_version import DataVersion
from cometmq.protocol.message import StoredMessage
from cometmq.protocol.record import iter_records
from cometmq.store.errors import StoreMismatch
from cometmq.store.message_store import MessageStore

from ..origins import delivered_since, first_waiting
from ..topics import TIMER_TOPIC
from .checkpoint import REBUILDING, Checkpoint, Progress
from .files import TimerFiles
from .marks import Marks
from .timed import PRECISION_MS, due_time, is_rolled
from .timer_log import ENTRY_BYTES, ROLL, DamagedTimers, Entry

log = logging.getLogger(__name__)
DAY_MS = 86_400_000
OVERDUE_MS_MAX = 6 * DAY_MS
"""How late messages may be and still come in the order of their times, when nothing is known."""
_END = 1 << 62
_READ_COUNT = 256


class Recovered(msgspec.Struct, kw_only=True):
    progress: Progress
    queue_offset: int
    """The next message to take in."""
    entries: int = 0
    """Of the wheel, from the second of `progress` on."""
    complete_at: int = 0
    """From which queue offset on the files have everything: more than `queue_offset` when they
    are made anew."""
    delivered: Marks
    """Messages behind `progress` that have their copies in the log."""
    settled_ms: int = 0
    """When the last of these copies was written."""
    version: DataVersion = DataVersion()


def recover(store: MessageStore, files: TimerFiles, now_ms: int) -> Recovered:
    checkpoint = files.read_checkpoint()
    low, high = _bounds(store)
    if checkpoint is None:
        if low == high:
            progress = Progress(now_ms, store.flushed.value, high)
            return Recovered(progress=progress, queue_offset=high, delivered=Marks(0, 0))
        log.warning("no timer checkpoint: looking through the log for what has been delivered")
        first = first_waiting(store, TIMER_TOPIC, 0)
        return rebuild(store, files, Progress(now_ms - OVERDUE_MS_MAX, first, 0), DataVersion())
    if checkpoint.timer_log_end == REBUILDING and checkpoint.progress is not None:
        log.info("the timer wheel is made from the queue of timed messages")
        return rebuild(store, files, checkpoint.progress, checkpoint.version)
    try:
        if checkpoint.progress is None:
            return _take_over(store, files, checkpoint, now_ms)
        return _go_on(store, files, checkpoint, checkpoint.progress)
    except (DamagedTimers, StoreMismatch, FileNotFoundError) as error:
        log.error("the timer wheel is made anew: %s", error)
        known = checkpoint.progress or Progress(
            checkpoint.second_ms, store.appended.value, checkpoint.queue_offset
        )
        return rebuild(store, files, known, checkpoint.version)


def _bounds(store: MessageStore) -> tuple[int, int]:
    return store.min_offset(TIMER_TOPIC, 0), store.max_offset(TIMER_TOPIC, 0)


# -- files that fit ------------------------------------------------------------------------------


def _go_on(
    store: MessageStore, files: TimerFiles, checkpoint: Checkpoint, progress: Progress
) -> Recovered:
    low, high = _bounds(store)
    if store.appended.value < progress.log_offset or high < checkpoint.queue_offset:
        raise DamagedTimers("the log lacks messages that were durable once")
    files.open()
    queue_offset, added = _link_tail(store, files, checkpoint)
    second = progress.due_ms // PRECISION_MS
    entries = files.wheel.entries_from(second)
    if entries != checkpoint.entries + added:
        raise DamagedTimers(f"the wheel has {entries} entries, not {checkpoint.entries + added}")
    delivered, settled_ms = _delivered(store, progress)
    return Recovered(
        progress=progress, queue_offset=max(queue_offset, low), entries=entries,
        delivered=delivered, settled_ms=settled_ms, version=checkpoint.version,
    )  # fmt: skip


def _link_tail(store: MessageStore, files: TimerFiles, checkpoint: Checkpoint) -> tuple[int, int]:
    """Link in what the log has behind the checkpoint; the next queue offset, and how many."""
    end, queue_offset = checkpoint.timer_log_end, checkpoint.queue_offset
    if not files.log.reaches(end):
        raise DamagedTimers(f"the timer log ends before {end}")
    added = 0
    for position, entry in files.log.scan(end, _END):
        waits = _message(store, entry)
        # A power cut may have taken the message and left its entry.
        if waits is None or waits.queue_offset < queue_offset:
            break
        files.relink(position, entry)
        end, queue_offset = position + ENTRY_BYTES, waits.queue_offset + 1
        added += 1
    files.log.cut(end)
    return queue_offset, added


def _message(store: MessageStore, entry: Entry) -> StoredMessage | None:
    found = store.message_at(entry.offset)
    if found is None or found.topic != TIMER_TOPIC or found.size != entry.size:
        return None
    return found


def _delivered(store: MessageStore, progress: Progress) -> tuple[Marks, int]:
    marks, settled_ms = Marks(*_bounds(store)), 0
    for found in delivered_since(store, progress.log_offset, (TIMER_TOPIC,)):
        marks.add(found.origin.queue_offset)
        settled_ms = max(settled_ms, found.copied_ms)
    if marks.count:
        log.info("%d timed messages were delivered since the last save", marks.count)
    return marks, settled_ms


# -- files made anew -----------------------------------------------------------------------------


def rebuild(
    store: MessageStore, files: TimerFiles, progress: Progress, version: DataVersion
) -> Recovered:
    """Empty files; all messages of the queue are to be taken in again, less those that are marked
    and those that `progress` covers."""
    low, high = _bounds(store)
    version = version.next(progress.due_ms)
    unusable = Checkpoint(
        second_ms=progress.due_ms // PRECISION_MS * PRECISION_MS, timer_log_end=REBUILDING,
        queue_offset=low, version=version, progress=progress,
    )  # fmt: skip
    files.give_up(unusable, store)
    delivered, settled_ms = _delivered(store, progress)
    for waits in _queue(store):
        if is_rolled(waits):
            origin = store.message_at(waits.prepared_transaction_offset)
            if origin is not None and origin.topic == TIMER_TOPIC:
                delivered.add(origin.queue_offset)
    return Recovered(
        progress=progress, queue_offset=low, complete_at=high, delivered=delivered,
        settled_ms=settled_ms, version=version,
    )  # fmt: skip


def _queue(store: MessageStore) -> Iterator[StoredMessage]:
    offset, high = _bounds(store)
    while offset < high:
        result = store.read(TIMER_TOPIC, 0, offset, count_max=_READ_COUNT)
        for piece in result.slices:
            yield from iter_records(piece)
        offset = max(result.next_offset, offset + 1)


# -- what a RocketMQ has left --------------------------------------------------------------------


def _take_over(
    store: MessageStore, files: TimerFiles, theirs: Checkpoint, now_ms: int
) -> Recovered:
    """Enter everything that is waiting in RocketMQ's timer log once more, at its exact time."""
    log.info("the timers of a RocketMQ are taken over")
    low, high = _bounds(store)
    due_ms = max(theirs.second_ms, now_ms - OVERDUE_MS_MAX)
    files.log.load()
    files.wheel.create()
    files.exist = True
    end = files.log.start
    for position, _ in files.log.scan(end, _END, foreign=True):
        end = position + ENTRY_BYTES
    if end < theirs.timer_log_end:
        raise DamagedTimers(f"the timer log ends at {end}, not at {theirs.timer_log_end}")
    files.log.cut(end)
    queue_offset, taken, entries = theirs.queue_offset, Marks(low, high), 0
    for _, entry in files.log.scan(files.log.start, end, foreign=True):
        waits = _message(store, entry)
        if waits is None:
            continue
        queue_offset = max(queue_offset, waits.queue_offset + 1)
        if entry.due_ms // PRECISION_MS * PRECISION_MS >= due_ms and taken.add(waits.queue_offset):
            entries += _enter_again(files, entry, waits, due_ms)
    progress = Progress(due_ms, store.appended.value, queue_offset)
    return Recovered(
        progress=progress, queue_offset=min(max(queue_offset, low), high), entries=entries,
        delivered=Marks(0, 0), version=theirs.version,
    )  # fmt: skip


def _enter_again(files: TimerFiles, entry: Entry, waits: StoredMessage, not_before_ms: int) -> bool:
    due_ms = entry.due_ms if entry.kind & ROLL else due_time(waits)
    if due_ms is None:
        return False
    files.add(waits, entry.kind, max(due_ms, not_before_ms), entry.written_ms)
    return True
