"""A stream at the driver: asks the cluster before each batch, and says how far the batch goes.

Knows no Spark. It keeps in memory only what may be forgotten: all that a query needs to go on
stands in its offsets, which Spark keeps.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from .discovery import KnownQueues
from .loss import Losses
from .notes import Notes, lost_by_topic, with_notes
from .offsets import (
    ByQueue,
    Progress,
    QueueRange,
    limited,
    queue_text,
    ranges_between,
    to_json,
)
from .options import SourceOptions
from .overview import Overview
from .planning import Gone, Pace, behind_losses, reachable
from .positions import beginnings, ends

log = logging.getLogger(__name__)
IDLE_S: Final = 0.1
"""Between two looks at a cluster that has nothing new."""


class Stream:
    def __init__(self, options: SourceOptions, now_s: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._now_s = now_s
        self._overview = Overview(options).__enter__()
        self._losses = Losses(fail=options.fail_on_data_loss)
        self._pace = Pace(options.min_offsets, options.max_trigger_delay_s)
        self._ends_at_present = False
        self._target: ByQueue | None = None
        self._latest: ByQueue | None = None
        self._away: set[str] = set()
        self._seen_ends: ByQueue = {}
        """Where queues ended when they were last there."""
        self._gone = Gone()
        self._is_idle = False
        self._has_told_group = False

    def close(self) -> None:
        self._overview.__exit__(None, None, None)

    def next(self, before: Progress, *, everything: bool) -> Progress | None:
        """The end of the next batch; None when there is nothing for it yet. `everything`: limits
        do not hold."""
        self._rest()
        queues = self._queues(before)
        self._commit_first(before)
        began = self._began(before, queues)
        places = before.ends | began
        self._check_losses(places, queues)
        self._latest = reachable(places, ends(queues) if self._target is None else self._target)
        after = self._latest if everything else self._within_limits(places, self._latest, queues)
        self._is_idle = before.has_begun and not began and after == before.ends
        return None if self._is_idle else Progress(after, began)

    def stop_at_the_present(self) -> None:
        """Read only what is there at the next look, as `Trigger.AvailableNow` wants it. The next
        look, since only then it is known how far the stream is, and so which queues may be away."""
        self._ends_at_present, self._target = True, None

    def latest_seen(self) -> dict[str, Any] | None:
        """How far the stream could have gone when it was last asked, and its notes."""
        return None if self._latest is None else with_notes(to_json(self._latest), self._notes())

    def committed(self, progress: Progress) -> None:
        """A batch is durable: its consumer group may know."""
        if self._options.commit_group_offsets and progress.ends:
            self._overview.commit(progress.ends)

    # -- parts -----------------------------------------------------------------------------------

    def _commit_first(self, before: Progress) -> None:
        """A batch that was run again after a crash is durable when the next one is looked for. No
        listener commits it: Spark's progress has no notes of such a batch (`latest_seen`)."""
        if before.has_begun and not self._has_told_group:
            self._has_told_group = True
            self.committed(before)

    def _notes(self) -> Notes | None:
        options = self._options
        if options.fail_on_data_loss and not options.commit_group_offsets:
            return None
        return Notes(
            namesrv_addr=";".join(options.cluster.addresses),
            group=options.consumer_group if options.commit_group_offsets else "",
            tolerates_loss=not options.fail_on_data_loss,
            lost=lost_by_topic(self._losses.told),
        )

    def _rest(self) -> None:
        """Spark asks a hundred times a second; brokers that have nothing new are asked less."""
        if self._is_idle and not self._ends_at_present:
            time.sleep(IDLE_S)

    def _queues(self, before: Progress) -> KnownQueues:
        is_present = self._ends_at_present and self._target is None
        places = before.ends if before.has_begun else None
        # What a broker has that does not answer in time belongs to the present, too.
        queues = self._overview.queues(places, all_answer=is_present)
        self._tell_away(before, queues)
        self._check_gone(before, queues)
        if is_present:
            self._target = ends(queues)
        if self._target is not None:
            queues = {queue: stats for queue, stats in queues.items() if queue in self._target}
        return queues

    def _began(self, before: Progress, queues: KnownQueues) -> ByQueue:
        """Where queues begin that the stream has not read from: the place that the user chose if
        this is the very beginning, their own beginning if they came later."""
        if not before.has_begun:
            return self._overview.resolve(self._options.starting, queues)
        return {q: at for q, at in beginnings(queues).items() if q not in before.ends}

    def _check_losses(self, places: ByQueue, queues: KnownQueues) -> None:
        for queue, stats in queues.items():
            place = QueueRange(queue, places[queue], stats.max_offset)
            self._losses.check_place(place)
            self._losses.check_start(place, stats.min_offset)

    def _check_gone(self, before: Progress, queues: KnownQueues) -> None:
        """Queues without which the stream would wait for ever for what it has seen in them."""
        self._seen_ends |= ends(queues)
        missing = {queue: at for queue, at in before.ends.items() if queue not in queues}
        unread = ranges_between(missing, self._seen_ends)
        gone = self._overview.gone([part.queue for part in unread]) if unread else ()
        lost = self._gone.for_good(gone, self._now_s())
        for part in unread:
            if part.queue in lost:
                self._losses.found(part, "the queue is gone, and its broker is there")
                del self._seen_ends[part.queue]  # It is told, and not looked for any more.

    def _within_limits(self, places: ByQueue, latest: ByQueue, queues: KnownQueues) -> ByQueue:
        left = behind_losses(places, latest, beginnings(queues))
        ranges = ranges_between(left, latest)
        messages = sum(part.size for part in ranges)
        if self._target is None and not self._pace.is_due(messages, self._now_s()):
            return places
        options, sizes = self._options, None
        if options.max_bytes is not None:
            sizes = self._overview.message_bytes(ranges)
        return limited(left, latest, options.max_offsets, options.max_bytes, sizes)

    def _tell_away(self, before: Progress, queues: KnownQueues) -> None:
        away = {f"{q.topic} {queue_text(q)}" for q in before.ends if q not in queues}
        if away - self._away:
            log.warning("queues that are away stay unread: %s", ", ".join(sorted(away)))
        self._away = away
