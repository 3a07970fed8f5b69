"""Queries that must give the same everywhere: in this process, on a cluster, over Spark Connect.

Each takes a session and texts, and gives what JSON can tell. Functions for workers are made inside
others, so that they travel whole: workers cannot import the tests.
"""

import contextlib
import io
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

WAIT_S: Final = 120
ROW: Final = ("brokerName", "queueId", "queueOffset", "tags", "keys", "body")
WRITTEN: Final = (
    "concat('row ', id) body", "concat('k', id) keys", "concat('t', id % 3) tags",
    "concat('shard', id % 7) shardingKey",
)  # fmt: skip

Rows = list[list[Any]]


def codec(spark: "SparkSession") -> list[list[Any]]:
    """Where the code of the driver and of the workers is from, and whether it is compiled."""
    import cometmq
    from cometmq.protocol import hot

    def told(_: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        import cometmq
        from cometmq.protocol import hot

        yield pa.RecordBatch.from_pylist([{"file": cometmq.__file__, "fast": hot.COMPILED}])

    rows = spark.range(0, 4, 1, 4).mapInArrow(told, "file string, fast boolean").distinct()
    ours = [cometmq.__file__, hot.COMPILED]
    return [ours, *sorted([row.file, row.fast] for row in rows.collect())]


def doctor(_: "SparkSession", master: str) -> list[str]:
    from cometmq.spark.doctor import workers_at

    return list(workers_at(master))


def batch(spark: "SparkSession", **options: str) -> Rows:
    return told(spark.read.format("rocketmq").options(**options).load())


def counted(spark: "SparkSession", **options: str) -> Rows:
    """With a join and a shuffle behind: the source is read twice."""
    rows = spark.read.format("rocketmq").options(**options).load()
    lasts = rows.groupBy("queueId").agg({"queueOffset": "max"}).toDF("queueId", "last")
    joined = rows.join(lasts, "queueId").groupBy("queueId", "last").count().orderBy("queueId")
    return [list(row) for row in joined.collect()]


def stream(spark: "SparkSession", name: str, checkpoint: str, **options: str) -> Rows:
    """All that is there, in several batches."""
    rows = spark.readStream.format("rocketmq").options(**options).load()
    writer = rows.writeStream.format("memory").queryName(name)
    query = _run_to_its_end(writer, checkpoint)
    assert len(query.recentProgress) > 1
    return told(spark.table(name))


def log(spark: "SparkSession", store: str, **options: str) -> Rows:
    return told(spark.read.format("rocketmq-log").options(**options).load(store))


def halting(spark: "SparkSession", directory: str, **options: str) -> Rows:
    """Tasks hand over their rows, write who they are into a directory, and wait there for a file
    `go`, so that something can happen to them meanwhile."""
    rows = spark.read.format("rocketmq").options(**options).load()
    return told(rows.mapInArrow(_halt(directory), rows.schema))


def _halt(
    directory: str, wait_s: float = WAIT_S
) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    def halted(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        yield from batches
        place, deadline = Path(directory), time.monotonic() + wait_s
        (place / f"worker-{os.getpid()}").touch()
        while not (place / "go").exists():
            assert time.monotonic() < deadline, "nobody said go"
            time.sleep(0.05)

    return halted


def sink(spark: "SparkSession", count: str, **options: str) -> None:
    rows = spark.range(0, int(count), 1, 3).selectExpr(*WRITTEN)
    rows.write.format("rocketmq").options(**options).mode("append").save()


def forward(
    spark: "SparkSession", checkpoint: str, namesrv: str, source: str, target: str, guarantee: str
) -> None:
    """A stream from topic to topic, in several batches."""
    reader = spark.readStream.format("rocketmq").option("namesrvAddr", namesrv)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "80")
    rows = reader.option("topic", source).load().selectExpr("body", "tags", "keys")
    writer = rows.writeStream.format("rocketmq").option("namesrvAddr", namesrv)
    writer = writer.option("topic", target).option("deliveryGuarantee", guarantee)
    _run_to_its_end(writer, checkpoint)


def view(spark: "SparkSession", **options: str) -> int:
    """By the texts of SQL."""
    said = ", ".join(f"{name} '{value}'" for name, value in options.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW said USING rocketmq OPTIONS ({said})")
    return spark.sql("SELECT * FROM said").count()


def exposed(spark: "SparkSession", checkpoint: str, level: str, **options: str) -> list[str]:
    """All texts in which a query shows itself; Spark's log tells all it can meanwhile."""
    spark.sparkContext.setLogLevel(level)
    rows = spark.read.format("rocketmq").options(**options).load()
    rows.collect()
    written = spark.createDataFrame([(b"written",)], "body binary").write.format("rocketmq")
    written.options(**options).mode("append").save()
    stream = spark.readStream.format("rocketmq").options(**options).load()
    query = _run_to_its_end(stream.writeStream.format("noop"), checkpoint)
    progress = "".join(one.json for one in query.recentProgress)
    spark.sparkContext.setLogLevel("OFF")
    return [_explained(rows), _explained(stream), str(rows), str(query.status), progress]


def _explained(rows: "DataFrame") -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        rows.explain(True)
    assert "Physical Plan" in text.getvalue()
    return text.getvalue()


def _run_to_its_end(writer: Any, checkpoint: str) -> Any:
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(WAIT_S), "the query did not end"
    finally:
        query.stop()
    return query


def told(rows: "DataFrame") -> Rows:
    """Rows in the order of where they are kept; none is left out and none dropped."""
    found = rows.select(*ROW).collect()
    return sorted([*row[:-1], bytes(row.body).decode()] for row in found)


QUERIES: Final[dict[str, Callable[..., Any]]] = {
    query.__name__: query
    for query in (batch, codec, counted, doctor, exposed, forward, halting, log, sink, stream, view)
}
