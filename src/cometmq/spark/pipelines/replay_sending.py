"""What Spark's tasks do in a step: the messages of each source queue to its target queue, in order.

Rows come sorted by source queue and offset. Each source queue is sent as a partition of the sink
of its own, with fixed ids; the first ones are left out when the driver knows that they are there.
What fails is told as a result: Spark would run a task again that raises it.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from cometmq.client.errors import ClientError

from ..connection import cluster_of
from ..errors import BadOption, ClusterAway, NotSent, SparkError
from ..own_properties import ADDED, ADDED_PREFIX, FIELDS
from ..pace import Pace
from ..sink.ids import BATCH_DIGITS, Origin, fixed_ids
from ..sink.options import read_sink_options
from ..sink.task import Task
from ..topic.offsets import Offsets, from_json
from .replay_attempts import BegunBefore, Present, check_attempt
from .replay_places import Places
from .replay_plan import Plan
from .replay_sources import OFFSET, SOURCE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FROM: Final = "REPLAYED_FROM"
"""A property of what was sent again: topic, broker, queue and offset of the message it is."""
SENT: Final = f"{SOURCE} int, rows bigint, failure string, said string"
"""What a task tells: how many of a source queue it has sent, and at last what has failed."""
PORTIONS_A_SECOND: Final = 10
"""So finely is a rate kept."""
_COLUMNS: Final = ("body", "tags", "keys", "shardingKey", "properties")
_PROPERTIES: Final = _COLUMNS.index("properties")
_FAILURES: Final = {kind.__name__: kind for kind in (BadOption, ClusterAway, NotSent, BegunBefore)}


def sink_options(target: Mapping[str, str]) -> dict[str, str]:
    """A message that its broker has counts as sent, however safe it is there: sent again, it would
    be there twice, and no safer."""
    return {**target, "deliveryGuarantee": "idempotent", "acknowledge": "stored"}


class Step(msgspec.Struct, frozen=True):
    """What a task needs to know; it travels there."""

    sink: dict[str, str]
    plan: Plan
    number: int
    skip: dict[int, int]
    """How many messages of a source queue are there already."""
    rate: float | None
    """Of one task."""
    began_at: Offsets
    """Where the target's queues ended before the step."""

    def send(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For Spark's `mapInArrow`: rows to be sent become rows of `SENT`."""
        try:
            check_attempt()
            for source, rows in self._sent(batches):
                yield _told(source=source, rows=rows)
        except (SparkError, ClientError) as error:
            yield _told(failure=type(error).__name__, said=str(error))

    def _sent(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int]]:
        """Source queues, and how many messages of each were sent."""
        began_at = from_json(self.began_at)
        present = Present(cluster_of(self.sink), ids_of(self.plan, self.number), began_at)
        pace = Pace(self.rate)
        for source, pieces in itertools.groupby(_pieces(batches), key=lambda piece: piece[0]):
            present.check(source, self.plan.queues[source].target, self.skip.get(source, 0))
            yield source, self._send_queue(source, (batch for _, batch in pieces), pace)
        pace.rest()  # Else the next step would begin too early.

    def _send_queue(self, source: int, batches: Iterable[pa.RecordBatch], pace: Pace) -> int:
        queue = self.plan.queues[source].target
        options = read_sink_options({**self.sink, "topic": queue.topic})
        origin = Origin(self.plan.id, self.number, source)
        skip, places = self.skip.get(source, 0), Places(self.plan.queues[source])
        rows = _without(places.noted(batches), skip)
        with Task(options, origin, _COLUMNS, {queue.topic: [queue]}) as task:
            task.rows = skip
            try:
                if self.rate is None:
                    task.send(map(_apart, rows))
                else:  # Each portion by itself: else it would wait for more to travel with.
                    for portion in _paced(rows, pace):
                        task.send([_apart(portion)])
            except NotSent as error:
                raise places.named(error) from error
            return task.rows - skip


def rows_sent(told: Sequence[Any]) -> int:
    """By all tasks, as they tell it. What one failed with is raised; that another attempt was there
    is so only if nothing worse has happened."""
    failed = [row for row in told if row.failure is not None]
    for row in sorted(failed, key=lambda row: row.failure == BegunBefore.__name__):
        raise _FAILURES.get(row.failure, SparkError)(row.said)
    return sum(row.rows for row in told)


def _told(
    *,
    source: int | None = None,
    rows: int | None = None,
    failure: str | None = None,
    said: str | None = None,
) -> pa.RecordBatch:
    return pa.record_batch(
        {
            SOURCE: pa.array([source], pa.int32()),
            "rows": pa.array([rows], pa.int64()),
            "failure": pa.array([failure], pa.string()),
            "said": pa.array([said], pa.string()),
        }
    )


def ready(frame: "DataFrame", partitions: int, order: str = OFFSET) -> "DataFrame":
    """Rows as they are sent, in order: sorted inside of each partition, a queue in one of them."""
    from pyspark.sql import functions as f

    frame = frame.repartitionById(partitions, SOURCE).sortWithinPartitions(SOURCE, order)
    missing = f.lit(None).cast("string")
    stored = f.col("properties") if "properties" in frame.columns else None
    return frame.select(
        SOURCE,
        f.col(OFFSET).cast("bigint"),
        "body",
        *(
            f.col(name) if name in frame.columns else missing.alias(name)
            for name in ("tags", "keys")
        ),
        (stored["__SHARDINGKEY"] if stored is not None else missing).alias("shardingKey"),
        _properties(frame, stored).alias("properties"),
    )


def _properties(frame: "DataFrame", stored: "Column | None") -> "Column":
    from pyspark.sql import functions as f

    broker = f.col("brokerName") if "brokerName" in frame.columns else f.lit(None)
    place = f.concat_ws(":", f.coalesce(broker, f.lit("?")), "queueId")
    origin = f.create_map(f.lit(FROM), f.concat_ws(" ", "topic", place, OFFSET))
    if stored is None:
        return origin
    others = [*sorted(ADDED), *FIELDS, FROM]
    own = f.map_filter(stored, lambda name, _: ~name.isin(*others) & ~name.startswith(ADDED_PREFIX))
    return f.map_concat(f.coalesce(own, f.create_map().cast("map<string,string>")), origin)


def ids_of(plan: Plan, step: int) -> str:
    """How the ids of a step begin."""
    return fixed_ids(Origin(plan.id, step, 0), 0, 0).text(0)[:BATCH_DIGITS]


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Parts of batches with rows of one source queue, without that column."""
    for batch in batches:
        sources = np.asarray(batch.column(0))
        rest = pa.RecordBatch.from_arrays(batch.columns[1:], names=[OFFSET, *_COLUMNS])
        edges = [0, *(np.flatnonzero(np.diff(sources)) + 1).tolist(), len(sources)]
        for start, end in itertools.pairwise(edges):
            if start < end:
                yield int(sources[start]), rest.slice(start, end - start)


def _without(batches: Iterable[pa.RecordBatch], skip: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        left_out = min(skip, batch.num_rows)
        skip -= left_out
        if left_out < batch.num_rows:
            yield batch.slice(left_out)


def _apart(rows: pa.RecordBatch) -> pa.RecordBatch:
    """With the properties of these rows only. The sink would look at all of the batch that they
    are a part of, and refuse them for what is wrong with others."""
    maps = rows.column(_PROPERTIES)
    starts = np.asarray(maps.offsets)
    first, entries = int(starts[0]), int(starts[-1] - starts[0])
    own = pa.MapArray.from_arrays(
        pa.array(starts - first), maps.keys.slice(first, entries), maps.items.slice(first, entries)
    )
    return rows.set_column(_PROPERTIES, _COLUMNS[_PROPERTIES], own)


def _paced(batches: Iterable[pa.RecordBatch], pace: Pace) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        size = pace.portion(max(1, batch.num_rows), PORTIONS_A_SECOND)
        for start in range(0, batch.num_rows, size):
            part = batch.slice(start, size)
            pace.wait(part.num_rows)
            yield part
