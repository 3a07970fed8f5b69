"""What clients that trace have reported: the cost of sends and consumptions, and how long messages
waited for their consumers.

Reports are decoded in Spark's workers. A message's wait ends with the first attempt of a group.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from cometmq.client.admin.traces import traces_in

from .report_figures import ConsumeTrace, SendTrace
from .report_frames import spread_columns, spread_in

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

COLUMNS: Final = ("body",)
_EVENT: Final = {
    "kind": "string",
    "msgId": "string",
    "at_ms": "bigint",
    "group": "string",
    "topic": "string",
    "cost_ms": "bigint",
    "success": "boolean",
    "request": "string",
}
"""The columns of an event, as Spark's DDL names their types."""


def events(reports: "DataFrame") -> "DataFrame":
    """One row for each line of the reports."""
    return reports.select("body").mapInArrow(
        _decoded, ", ".join(f"{name} {kind}" for name, kind in _EVENT.items())
    )


def send_traces(found: "DataFrame") -> list[SendTrace]:
    from pyspark.sql import functions as f

    sends = found.where("kind = 'Pub'").groupBy("topic")
    counted = sends.agg(
        f.count("*").alias("sends"),
        f.count_if(~f.col("success")).alias("failed"),
        *spread_columns("cost_ms"),
    )
    return [_send(row) for row in counted.orderBy(f.desc("sends"), "topic").collect()]


def consume_traces(found: "DataFrame", messages: "DataFrame") -> list[ConsumeTrace]:
    """`messages` with `msgId` and `stored_ms`: those of which the waiting time can be told."""
    from pyspark.sql import functions as f

    taken = found.where("kind = 'SubBefore'")
    groups = taken.select("request", "msgId", f.col("group").alias("taker")).distinct()
    done = found.where("kind = 'SubAfter'").join(groups, ["request", "msgId"], "left")
    # Old clients tell the group only when they begin.
    done = done.withColumn("group", f.coalesce(f.nullif("group", f.lit("")), "taker", f.lit("?")))
    counted = done.groupBy("group").agg(
        f.count("*").alias("consumptions"),
        f.count_if(~f.col("success")).alias("failed"),
        *spread_columns("cost_ms"),
    )
    first = taken.groupBy("group", "msgId").agg(f.min("at_ms").alias("at_ms"))
    stored = messages.groupBy("msgId").agg(f.min("stored_ms").alias("stored_ms"))
    waits = first.join(stored, "msgId").withColumn("wait_ms", f.col("at_ms") - f.col("stored_ms"))
    waited = waits.groupBy("group").agg(*spread_columns("wait_ms"))
    rows = counted.join(waited, "group", "full").orderBy("group").collect()
    return [_consumption(row) for row in rows]


def consumptions_of(found: "DataFrame", messages: "DataFrame") -> "DataFrame":
    """The events of these messages: a consumption does not tell its topic."""
    return found.join(messages.select("msgId").distinct(), "msgId", "left_semi")


def _decoded(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    kinds = {"string": pa.string(), "bigint": pa.int64(), "boolean": pa.bool_()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in _EVENT.items()])
    for batch in batches:
        rows = [
            (t.kind, t.message_id, t.timestamp, t.group, t.topic, t.cost_ms, t.success,
             t.request_id)
            for body in batch.column(0).to_pylist()
            for t in traces_in(body or b"")
        ]  # fmt: skip
        columns = zip(*rows, strict=True) if rows else [()] * len(schema)
        arrays = [
            pa.array(list(values), field.type)
            for values, field in zip(columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _send(row: Any) -> SendTrace:
    cost = spread_in(row, "cost_ms")
    assert cost is not None
    return SendTrace(row.topic, row.sends, row.failed, cost)


def _consumption(row: Any) -> ConsumeTrace:
    cost = spread_in(row, "cost_ms") if row.consumptions else None
    waited = spread_in(row, "wait_ms")
    return ConsumeTrace(row.group, row.consumptions or 0, row.failed or 0, cost, waited)
