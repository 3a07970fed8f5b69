"""What the next batch of a stream has: how far it goes, and whether it is worth while now.

Pure; the time comes as an argument. A stream never goes back: where a queue is away, or ends before
the place that was reached, the stream stays at its place.
"""

from collections.abc import Iterable
from typing import Final

from cometmq.protocol.message_queue import MessageQueue

from .offsets import ByQueue, Progress, QueueRange, ranges_between

GONE_AFTER_S: Final = 10.0
"""For so long a queue must be gone before it counts as lost: its topic may be made anew."""


def reachable(places: ByQueue, ends: ByQueue) -> ByQueue:
    """Where each queue could be read to: its end, but never back."""
    return {queue: max(place, ends.get(queue, place)) for queue, place in places.items()}


def behind_losses(places: ByQueue, latest: ByQueue, begins: ByQueue) -> ByQueue:
    """Where there is something to read at or behind each place: limits are for messages, not for
    what was lost."""
    return {q: min(latest[q], max(at, begins.get(q, at))) for q, at in places.items()}


def ranges_of(start: Progress, end: Progress) -> list[QueueRange]:
    """The ranges of a batch. Queues that are new in it begin where its end says; those that its
    start has already are not new, as in a source that stands still."""
    return ranges_between(end.began | start.ends, end.ends)


class Pace:
    """Waits for `messages_min` messages, but not longer than `delay_max_s`. The first batch is due
    at once."""

    def __init__(self, messages_min: int | None, delay_max_s: float) -> None:
        self._messages_min = messages_min or 0
        self._delay_max_s = delay_max_s
        self._last_s: float | None = None

    def is_due(self, messages: int, now_s: float) -> bool:
        waited_long = self._last_s is None or now_s - self._last_s >= self._delay_max_s
        due = messages >= self._messages_min or waited_long
        if due and messages:
            self._last_s = now_s
        return due


class Gone:
    """Since when queues are gone, at every look."""

    def __init__(self) -> None:
        self._since_s: dict[MessageQueue, float] = {}

    def for_good(self, gone_now: Iterable[MessageQueue], now_s: float) -> set[MessageQueue]:
        """Those that have been gone for long enough."""
        self._since_s = {queue: self._since_s.get(queue, now_s) for queue in gone_now}
        return {q for q, since_s in self._since_s.items() if now_s - since_s >= GONE_AFTER_S}
