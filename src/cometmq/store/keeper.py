"""The thread that keeps house: queues and index to disk, the checkpoint, old files away."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from cometmq.clock import Clock

from . import retention
from .checkpoint import Checkpoint, Marks, write_checkpoint
from .commit_log import CommitLog
from .config import StoreConfig
from .consume_queues import ConsumeQueues
from .disk import Disk, is_disk_full
from .dispatcher import Dispatcher
from .errors import StoreFailed
from .gate import Gate
from .key_index import KeyIndex
from .segment import Segment
from .watermark import Watermark

log = logging.getLogger(__name__)


class Keeper:
    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        clock: Clock,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        dispatcher: Dispatcher,
        flushed: Watermark,
        last_timestamp: Callable[[], int],
        checkpoint: Checkpoint,
        on_failure: Callable[[StoreFailed], None],
        gate: Gate,
        confirmed: Watermark | None,
    ) -> None:
        """`confirmed` is noted, too, where it is not the same as the log's end."""
        self._config = config
        self._disk = disk
        self._clock = clock
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._flushed = flushed
        self._last_timestamp = last_timestamp
        self._checkpoint = checkpoint
        self._on_failure = on_failure
        self._gate = gate
        self._confirmed = confirmed
        self._working = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cometmq-keep", daemon=True)
        self.disk_full = False

    @property
    def checkpoint_path(self) -> Path:
        return self._config.root / "checkpoint"

    def reconfigure(self, config: StoreConfig) -> None:
        self._config = config

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def save(self) -> None:
        """Make queues and index durable, then note in the checkpoint how far they are.

        What is noted was true before the syncs began, so it holds whatever comes meanwhile.
        """
        with self._working:
            progress = self._dispatcher.progress()
            log_timestamp, log_durable = self._last_timestamp(), self._flushed.value
            confirmed = self._checkpoint.confirmed
            if self._confirmed is not None:
                confirmed = min(self._confirmed.value, log_durable)
            self._queues.sync()
            if self._index is not None:
                self._index.sync()
            old = self._checkpoint
            checkpoint = Checkpoint(
                log_timestamp=max(old.log_timestamp, log_timestamp),
                queue_timestamp=max(old.queue_timestamp, progress.timestamp),
                index_timestamp=max(old.index_timestamp, progress.timestamp),
                master_flushed=old.master_flushed,
                confirmed=confirmed,
                # The last record begins somewhere before its end; all that RocketMQ does with this
                # number is to compare it with the starts of records.
                last_queued=max(progress.queues_offset - 1, 0),
                marks=Marks(
                    log=log_durable,
                    queues=progress.queues_offset,
                    # Without an index nothing is indexed: should there be one later, all of it is.
                    index=progress.index_offset if self._index is not None else 0,
                    queue_entries=progress.queue_entries,
                    newest_index_items=progress.newest_index_items,
                ),
            )
            self._write(checkpoint)

    def held(self) -> threading.Lock:
        """Held by whoever cuts the log, so that nothing is noted of what is cut."""
        return self._working

    def lower(self, log_end: int) -> None:
        """Note that the log is to end at `log_end`, before it does: what is missing then was not
        lost. Call it while holding `held`."""
        marks = self._checkpoint.marks
        if marks is not None and marks.log > log_end:
            lowered = msgspec.structs.replace(marks, log=log_end)
            self._write(msgspec.structs.replace(self._checkpoint, marks=lowered))

    def forget(self) -> None:
        """Note that there is nothing, before everything is deleted. Also under `held`."""
        nothing = Marks(log=0, queues=0, index=0, queue_entries=0, newest_index_items=0)
        self._write(Checkpoint(marks=nothing))

    def _write(self, checkpoint: Checkpoint) -> None:
        if checkpoint != self._checkpoint:
            write_checkpoint(self.checkpoint_path, checkpoint, self._disk)
            self._checkpoint = checkpoint

    def save_if_space(self) -> None:
        """Save; on a full disk it can wait, since the next recovery only has more to do then.

        Any other error is final: what a failed sync left behind cannot be told.
        """
        try:
            self.save()
        except OSError as error:
            if not is_disk_full(error):
                raise StoreFailed(
                    f"ConsumeQueues or index could not be made durable: {error};"
                    " no more messages are taken"
                ) from error
            log.error("no space for the checkpoint: %s", error)

    def clean(self, *, by_hand: bool = False) -> int:
        """Delete the CommitLog files that may go, and what points to them; how many."""
        with self._working:
            if not self._gate.is_ready:
                return 0
            # What is not dispatched nobody has seen yet, and a group may not have confirmed it.
            dispatched = self._dispatcher.progress().queues_offset
            segments = [s for s in tuple(self._log.segments)[:-1] if s.end <= dispatched]
            now_ms = self._clock.now_ms()
            verdict = retention.decide(
                self._config,
                [segment.modified_ms() for segment in segments],
                now_ms,
                time.localtime(now_ms / 1000).tm_hour,
                self._used_percent(),
                by_hand=by_hand,
                was_full=self.disk_full,
            )
            self._tell_fullness(full=verdict.disk_full)
            deleted = self._delete(segments[: verdict.files], forced=verdict.forced)
            if deleted:
                self._follow_the_log()
            return deleted

    def _delete(self, due: Sequence[Segment], *, forced: bool) -> int:
        """Delete files that are due, as far as the gate lets them go; how many.

        For lack of space even those go that are needed: one by one, as long as space is lacking,
        and only when there are no others.
        """
        if not due:
            return 0
        keep_from = self._gate.keep_from()
        free = [s for s in due if keep_from is None or s.end <= keep_from]
        needed = due[len(free) :]
        for segment in free:
            self._remove_first(segment)
        if not needed:
            self._gate.released()
            return len(free)
        if free or not forced:
            self._gate.held(needed[0].base, needed[-1].end)
            return len(free)
        return self._overrule(needed)

    def _overrule(self, needed: Sequence[Segment]) -> int:
        for deleted, segment in enumerate(needed):
            if deleted and self._used_percent() <= self._config.disk_force_percent:
                return deleted
            self._gate.overruled(segment.base, segment.end)
            self._remove_first(segment)
        return len(needed)

    def _remove_first(self, segment: Segment) -> None:
        self._log.segments.remove_first()
        log.info("deleted %s", segment.path)

    def _used_percent(self) -> float:
        return self._disk.used_percent(self._config.root)

    def clean_queues(self) -> int:
        """Delete the files that point to records which are gone; how many."""
        with self._working:
            return self._follow_the_log()

    def _follow_the_log(self) -> int:
        start = self._log.start_offset
        deleted = self._queues.expire(start)
        if self._index is not None:
            deleted += self._index.expire(start)
        return deleted

    def _tell_fullness(self, *, full: bool) -> None:
        if full and not self.disk_full:
            log.error(
                "the disk is over %d %% full: no more messages are taken",
                self._config.disk_full_percent,
            )
        if self.disk_full and not full:
            log.warning("the disk has space again: messages are taken")
        self.disk_full = full

    def _run(self) -> None:
        interval_s = self._config.queue_flush_interval_ms / 1000
        clean_every_s = self._config.clean_interval_ms / 1000
        next_clean = time.monotonic()
        while not self._stop.wait(interval_s):
            try:
                if time.monotonic() >= next_clean:
                    next_clean = time.monotonic() + clean_every_s
                    self.clean()
                self.save_if_space()
            except OSError as error:
                log.error("old files could not be deleted: %s; trying again", error)
            except StoreFailed as failure:
                log.critical("%s", failure)
                self._on_failure(failure)
                return
