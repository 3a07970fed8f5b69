"""Messages that are gone before they were read: an error, or a line in the log (`failOnDataLoss`).

Either way the queue and the offsets are named. Nothing here moves a reader: it goes on behind what
was lost, and never back.
"""

import logging

from cometmq.protocol.message_queue import MessageQueue

from ..errors import DataLost
from .offsets import QueueRange, queue_text

log = logging.getLogger(__name__)


class Losses:
    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self._told: dict[MessageQueue, QueueRange] = {}

    def found(self, lost: QueueRange, why: str) -> None:
        """DataLost, unless losses are only to be told: then once."""
        if self._fail:
            raise DataLost(f"{_said(lost, why)}; failOnDataLoss=false reads what is left")
        known = self._told.get(lost.queue)
        # A stream with a limit comes upon what is left of a loss again and again, or upon more.
        new = lost.behind(known)
        if new.size > 0:
            log.warning("%s; reading what is left", _said(new, why))
            self._told[lost.queue] = lost.joined(known)

    @property
    def told(self) -> list[QueueRange]:
        """What was lost last in each queue."""
        return list(self._told.values())

    def check_start(self, queue_range: QueueRange, queue_begin: int) -> None:
        """A range whose beginning is older than all that its queue still has."""
        if queue_range.start < queue_begin:
            end = min(queue_range.end, queue_begin)
            lost = queue_range._replace(end=max(end, queue_range.start))
            self.found(lost, f"the queue now begins at {queue_begin}")

    def check_place(self, place: QueueRange) -> None:
        """A place (`start`) behind the end of its queue (`end`): the queue was cut or made anew."""
        if place.start > place.end:
            self.found(
                QueueRange(place.queue, place.end, place.start),
                f"they were read or skipped before, but the queue ends at {place.end}: "
                "it was cut, or its topic made anew",
            )


def _said(lost: QueueRange, why: str) -> str:
    where = f"topic {lost.queue.topic}, queue {queue_text(lost.queue)}"
    return f"{where}: messages are lost between {lost.start} and {lost.end}: {why}"
