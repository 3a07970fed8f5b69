"""How a streaming query is doing, made of the progress that Spark tells: lag, and what was lost.

Pure. Only sources of ours are looked at; they are known by the form of their offsets.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from cometmq.protocol.message_queue import MessageQueue

from .errors import BadOption
from .topic.notes import Notes, split_notes
from .topic.offsets import ByQueue, Progress, QueueRange, from_json, queue_text
from .topic.planning import ranges_of

_NULL: Final = msgspec.Raw(b"null")
_Offsets = dict[str, dict[str, Any]]


class SourceTold(msgspec.Struct, rename="camel"):
    """What Spark tells of one source, of whatever kind: offsets are JSON, or null."""

    start_offset: msgspec.Raw = _NULL
    end_offset: msgspec.Raw = _NULL
    latest_offset: msgspec.Raw = _NULL


class BatchTold(msgspec.Struct, rename="camel"):
    """What Spark tells of a batch, as far as it is needed here."""

    id: str
    run_id: str
    batch_id: int
    timestamp: str
    sources: list[SourceTold]
    name: str | None = None


def batch_told(progress: str) -> BatchTold:
    """A progress of Spark's, which it gives as JSON."""
    return msgspec.json.decode(progress, type=BatchTold)


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
    ends: ByQueue = dataclasses.field(default_factory=dict)
    """Up to where each queue is read."""
    latest: ByQueue = dataclasses.field(default_factory=dict)
    """Where it ended when the batch was planned."""

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


def sources_of(batch: BatchTold) -> list[SourceProgress]:
    """Those that are ours."""
    found = []
    for source in batch.sources:
        with contextlib.suppress(BadOption, msgspec.MsgspecError):
            found.append(_source(source))
    return found


def _source(told: SourceTold) -> SourceProgress:
    offsets, notes = split_notes(_object(told.latest_offset))
    after = Progress.from_json(msgspec.json.decode(told.end_offset, type=_Offsets))
    ranges = ranges_of(Progress.from_json(_object(told.start_offset)), after)
    return SourceProgress(ranges, after.ends, from_json(offsets), notes)


def _object(offset: msgspec.Raw) -> _Offsets:
    """Before its first batch a source has none, and it need not tell the latest one."""
    return msgspec.json.decode(offset, type=_Offsets | None) or {}


def report_of(batch: BatchTold, sources: Iterable[SourceProgress], lost: Iterable[Loss]) -> Report:
    lag: ByQueue = {}
    ends: ByQueue = {}
    latest: ByQueue = {}
    for source in sources:
        _join(lag, source.lag, max)
        _join(ends, source.ends, min)
        _join(latest, source.latest, max)
    return Report(
        query_id=batch.id,
        run_id=batch.run_id,
        name=batch.name or batch.id,
        batch_id=batch.batch_id,
        timestamp=batch.timestamp,
        lag=lag,
        lost=tuple(lost),
        ends=ends,
        latest=latest,
    )


def _join(all_queues: ByQueue, more: ByQueue, choose: Callable[[int, int], int]) -> None:
    """Several sources may read one queue: that which is behind counts."""
    for queue, at in more.items():
        all_queues[queue] = choose(at, all_queues.get(queue, at))


def _by_topic(counts: Iterable[tuple[MessageQueue, int]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for queue, count in counts:
        totals[queue.topic] = totals.get(queue.topic, 0) + count
    return totals
