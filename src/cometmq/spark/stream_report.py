"""How a streaming query is doing, made of the progress that Spark tells: lag, and what was lost.

Pure. Only sources of ours are looked at; they are known by the form of their offsets.
"""

import contextlib
import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from cometmq.protocol.message_queue import MessageQueue

from .errors import BadOption
from .topic.notes import Notes, split_notes
from .topic.offsets import ByQueue, Progress, QueueRange, from_json, queue_text
from .topic.planning import ranges_of


class SourceProgress(NamedTuple):
    """One source of ours in one batch."""

    ranges: list[QueueRange]
    """What the batch was to read."""
    ends: ByQueue
    latest: ByQueue
    notes: Notes | None

    @property
    def lag(self) -> ByQueue:
        return {queue: max(0, at - self.ends.get(queue, at)) for queue, at in self.latest.items()}


class Loss(NamedTuple):
    """Messages that a query did not get."""

    range: QueueRange
    is_certain: bool
    """False: they were gone when the batch had ended; whether it had read them before is in the
    logs of its executors."""

    def __str__(self) -> str:
        queue, start, end = self.range
        are = "are" if self.is_certain else "may be"
        return f"topic {queue.topic}, queue {queue_text(queue)}: {start} to {end - 1} {are} lost"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """A query after one batch."""

    query_id: str
    run_id: str
    name: str
    """As the user called it, else its id."""
    batch_id: int
    timestamp: str
    lag: ByQueue
    """Messages behind the batch that were there when it was planned."""
    lost: tuple[Loss, ...] = ()
    """Found with this batch, and not told before."""

    @property
    def lag_by_topic(self) -> dict[str, int]:
        return _by_topic(self.lag.items())

    @property
    def lost_by_topic(self) -> dict[str, int]:
        """Of what is certain."""
        return _by_topic((x.range.queue, x.range.size) for x in self.lost if x.is_certain)

    def __str__(self) -> str:
        lag = ", ".join(f"{topic} {count}" for topic, count in self.lag_by_topic.items())
        return f"query {self.name}, batch {self.batch_id}: messages to come: {lag or 'none'}"


def sources_of(progress: Any) -> list[SourceProgress]:
    """Our sources in a progress of Spark's."""
    found = []
    for source in progress.sources:
        with contextlib.suppress(BadOption, msgspec.MsgspecError, AttributeError, TypeError):
            found.append(_source(source.startOffset, source.endOffset, source.latestOffset))
    return found


def _source(start: str | None, end: str, latest: str | None) -> SourceProgress:
    # Spark's Python writes "None" where there is none.
    before = _object(start) if start not in (None, "None") else {}
    offsets, notes = split_notes(_object(latest) if latest not in (None, "None") else {})
    after = Progress.from_json(_object(end))
    ranges = ranges_of(Progress.from_json(before), after)
    return SourceProgress(ranges, after.ends, from_json(offsets), notes)


def _object(text: str | None) -> dict[str, Any]:
    return msgspec.json.decode(text or "", type=dict[str, dict[str, Any]])


def report_of(progress: Any, sources: Iterable[SourceProgress], lost: Iterable[Loss]) -> Report:
    lag: ByQueue = {}
    for source in sources:
        lag |= source.lag
    query_id = str(progress.id)
    return Report(
        query_id=query_id,
        run_id=str(progress.runId),
        name=progress.name or query_id,
        batch_id=progress.batchId,
        timestamp=str(progress.timestamp),
        lag=lag,
        lost=tuple(lost),
    )


def _by_topic(counts: Iterable[tuple[MessageQueue, int]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for queue, count in counts:
        totals[queue.topic] = totals.get(queue.topic, 0) + count
    return totals
