"""What a report counts in messages: topics, their bars over time, sizes, tags, latency.

Works on rows as both formats give them. Messages are read once, kept small, and counted in Spark;
only figures come to the driver.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from .report_figures import (
    Series,
    Spread,
    TagCount,
    Timeline,
    TopicFigures,
    bucket_ms,
    spread,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS: Final = (
    "topic", "brokerName", "queueId", "msgId", "bornTimestamp", "storeTimestamp", "tags", "body",
)  # fmt: skip
TAGS_MAX: Final = 8
"""Of each topic in the report."""
_PERCENTILES: Final = (0.5, 0.9, 0.99)
_ACCURACY: Final = 2000
"""Of percentiles: off by one part in so many."""


@contextmanager
def small(messages: "DataFrame") -> "Iterator[DataFrame]":
    """What the figures need of each message, kept while they are counted."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as f

    stored = f.unix_millis("storeTimestamp")
    frame = messages.select(
        "topic",
        f.concat_ws(":", "brokerName", "queueId").alias("queue"),
        "msgId",
        stored.alias("stored_ms"),
        (stored - f.unix_millis("bornTimestamp")).alias("waited_ms"),
        f.coalesce(f.octet_length("body"), f.lit(0)).alias("size"),  # Some cannot be unpacked.
        f.coalesce("tags", f.lit("")).alias("tag"),
    ).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()


def topic_figures(messages: "DataFrame") -> list[TopicFigures]:
    """The topics with most messages first."""
    from pyspark.sql import functions as f

    counted = messages.groupBy("topic").agg(
        f.count("*").alias("messages"),
        f.sum("size").alias("bytes"),
        f.count_distinct("queue").alias("queues"),
        f.min("stored_ms").alias("first_ms"),
        f.max("stored_ms").alias("last_ms"),
        *spread_columns("size"),
        *spread_columns("waited_ms"),
    )
    tags = _tags(messages)
    rows = sorted(counted.collect(), key=lambda row: (-row.messages, row.topic))
    return [_topic(row, tags.get(row.topic, [])) for row in rows]


def timeline(messages: "DataFrame", topics: list[TopicFigures]) -> Timeline | None:
    from pyspark.sql import functions as f

    if not topics:
        return None
    first, last = min(t.first_ms for t in topics), max(t.last_ms for t in topics)
    width = bucket_ms(first, last)
    start, count = first // width, last // width - first // width + 1
    bucket = (f.floor(f.col("stored_ms") / width) - start).cast("int").alias("bucket")
    by_topic = messages.groupBy("topic", bucket).agg(
        f.count("*").alias("messages"), f.sum("size").alias("bytes")
    )
    latency = messages.groupBy(bucket).agg(*spread_columns("waited_ms"))
    p50: list[float | None] = [None] * count
    p99: list[float | None] = [None] * count
    for row in latency.collect():
        p50[row.bucket], _, p99[row.bucket] = map(float, row.waited_ms_percentiles)
    series = _series(by_topic.collect(), [topic.topic for topic in topics], count)
    return Timeline(start * width, width, count, series, p50, p99)


def counts(messages: "DataFrame") -> dict[str, int]:
    """By topic."""
    return {row.topic: row["count"] for row in messages.groupBy("topic").count().collect()}


def spread_columns(name: str) -> "tuple[Column, Column, Column]":
    """What `spread_in` reads of a row."""
    from pyspark.sql import functions as f

    return (
        f.count(name).alias(f"{name}_count"),
        f.percentile_approx(name, list(_PERCENTILES), _ACCURACY).alias(f"{name}_percentiles"),
        f.max(name).alias(f"{name}_max"),
    )


def spread_in(row: Any, name: str) -> Spread | None:
    count = row[f"{name}_count"]
    if not count:
        return None
    return spread(count, [*row[f"{name}_percentiles"], row[f"{name}_max"]])


def _topic(row: Any, tags: list[TagCount]) -> TopicFigures:
    size, waited = spread_in(row, "size"), spread_in(row, "waited_ms")
    assert size is not None
    assert waited is not None
    return TopicFigures(
        row.topic, row.messages, row.bytes, row.queues, row.first_ms, row.last_ms, size, waited,
        tags, sum(tag.messages for tag in tags),
    )  # fmt: skip


def _tags(messages: "DataFrame") -> dict[str, list[TagCount]]:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    counted = messages.groupBy("topic", "tag").agg(f.count("*").alias("messages"))
    by_count = Window.partitionBy("topic").orderBy(f.desc("messages"), "tag")
    ranked = counted.withColumn("rank", f.row_number().over(by_count))
    found = defaultdict(list)
    for row in ranked.where(f.col("rank") <= TAGS_MAX).orderBy("topic", "rank").collect():
        found[row.topic].append(TagCount(row.tag, row.messages))
    return found


def _series(rows: list[Any], topics: list[str], count: int) -> list[Series]:
    series = {topic: Series(topic, [0] * count, [0] * count) for topic in topics}
    for row in rows:
        series[row.topic].messages[row.bucket] = row.messages
        series[row.topic].bytes[row.bucket] = row.bytes
    return list(series.values())
