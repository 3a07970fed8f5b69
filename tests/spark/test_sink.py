"""DataFrames and streams into topics, through Spark: batches, restarts, tasks that fail."""

import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.client.blocking import Producer
from cometmq.client.names import Message
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .failing_tasks import ROWS
from .sending import options, send
from .streaming import WAIT_S, until
from .test_sink_tasks import bodies_in, stored, undecided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

GUARANTEES = ("at-least-once", "idempotent", "transactional")


def through_spark(spark: "SparkSession", broker: BlockingEmbeddedBroker, topic: str) -> list[str]:
    """What our source reads with dropDuplicates."""
    given = options(broker, topic=topic, dropDuplicates=True, columns="body")
    rows = spark.read.format("rocketmq").options(**given).load().selectExpr("string(body) body")
    return sorted(row.body for row in rows.collect())


# -- batches -------------------------------------------------------------------------------------


def test_a_dataframe_becomes_messages(
    spark: "SparkSession", broker: BlockingEmbeddedBroker
) -> None:
    broker.create_topic("orders", 4)
    rows = spark.range(0, 100, 1, 2).selectExpr(
        "concat('order ', id) body", "concat('tag', id % 3) tags", "concat('k', id) keys",
        "concat('customer', id % 7) shardingKey", "map('half', string(id div 50)) properties",
    )  # fmt: skip
    rows.write.format("rocketmq").options(**options(broker, topic="orders")).mode("append").save()
    found = [m for queue in stored(broker, "orders").values() for m in queue]
    by_body = {m.body.decode(): m for m in found}
    assert sorted(by_body) == sorted(f"order {number}" for number in range(100))
    one = by_body["order 63"]
    assert (one.tags, one.keys, one.properties["half"]) == ("tag0", ["k63"], "1")
    of_customer = [m for m in found if m.properties["__SHARDINGKEY"] == "customer3"]
    assert len({m.queue.queue_id for m in of_customer}) == 1
    assert len({m.message_id for m in found}) == 100


@pytest.mark.parametrize(
    ("mode", "columns", "more", "said"),
    [
        ("overwrite", "string(id) body", {}, "a topic cannot be overwritten"),
        ("error", "string(id) body", {}, "cannot be written in the"),
        ("append", "string(id) body, id", {}, "column id cannot be written"),
        ("append", "id body", {}, "column body is binary or string, not bigint"),
        ("append", "string(id) body", {"deliveryGuarantie": "x"}, "did you mean deliveryGuarantee"),
        ("append", "'' body", {}, "row 0 of partition 0: its body is empty"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(
    spark: "SparkSession",
    broker: BlockingEmbeddedBroker,
    mode: str,
    columns: str,
    more: dict[str, Any],
    said: str,
) -> None:
    rows = spark.range(0, 1, 1, 1).selectExpr(*columns.split(", "))
    writer = rows.write.format("rocketmq").options(**options(broker, topic="refused", **more))
    with pytest.raises(Exception) as refused:  # noqa: PT011 - Spark's own, the text tells
        writer.mode(mode).save()
    assert said in str(refused.value)


def test_tasks_that_fail_and_run_again_cost_no_reader_a_duplicate(
    spark: "SparkSession", broker: BlockingEmbeddedBroker
) -> None:
    for guarantee in GUARANTEES:
        broker.create_topic(f"failing-{guarantee}", 2)
    before = undecided(broker)
    command = ["-m", "tests.spark.failing_tasks", broker.namesrv, "failing", *GUARANTEES]
    subprocess.run([sys.executable, *command], check=True, timeout=3 * WAIT_S, capture_output=True)
    everything = [f"{number:0300d}" for number in range(ROWS)]
    twice = bodies_in(broker, "failing-at-least-once")
    assert len(twice) > ROWS
    assert sorted(set(twice)) == everything
    assert len(bodies_in(broker, "failing-idempotent")) > ROWS
    assert through_spark(spark, broker, "failing-idempotent") == everything
    assert bodies_in(broker, "failing-transactional") == everything
    assert undecided(broker) == before, "what failed attempts sent was rolled back"


# -- streams -------------------------------------------------------------------------------------


def copied(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, source: str, checkpoint: str, **more: Any
) -> "StreamingQuery":
    """Read what is there, and write it to where the options say."""
    reader = spark.readStream.format("rocketmq").options(
        **options(broker, topic=source, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    )
    rows = reader.load().selectExpr("body", "string(queueId) keys")
    writer = rows.writeStream.format("rocketmq").options(**options(broker, **more))
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(round(WAIT_S)), "the query did not end"
    finally:
        query.stop()
    return query


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_driver_that_dies_before_spark_has_noted_the_end_of_a_batch(
    spark: "SparkSession",
    broker: BlockingEmbeddedBroker,
    producer: Producer,
    checkpoint: str,
    guarantee: str,
) -> None:
    source, target = f"from-{guarantee}", f"to-{guarantee}"
    broker.create_topic(source, 2)
    broker.create_topic(target, 2)
    sent = sorted(body.decode() for body in send(producer, source, 60, queues=range(2)).values())
    where = {"topic": target, "deliveryGuarantee": guarantee}
    copied(spark, broker, source, checkpoint, **where)
    assert bodies_in(broker, target) == sent
    forget_last_commit(Path(checkpoint))
    copied(spark, broker, source, checkpoint, **where)
    found = bodies_in(broker, target)
    if guarantee == "transactional":
        assert found == sent
    else:
        assert set(found) == set(sent)
        assert Counter(found).most_common(1)[0][1] == 2, "the last batch ran again"
    if guarantee == "idempotent":
        assert through_spark(spark, broker, target) == sent


def test_a_result_that_changes_is_written_whole_or_by_each_batch(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer, tmp_path: Path
) -> None:
    for name in ("growing", "complete", "update"):
        broker.create_topic(name, 1)
    send(producer, "growing", 6, queues=[0])
    given = options(broker, topic="growing", startingOffsets="earliest", maxOffsetsPerTrigger=3)
    rows = spark.readStream.format("rocketmq").options(**given).load()
    counts = rows.groupBy("topic").count().selectExpr("string(count) body")

    def run(writer: Any, mode: str, checkpoint: str) -> None:
        writer = writer.option("checkpointLocation", str(tmp_path / checkpoint)).outputMode(mode)
        assert writer.trigger(availableNow=True).start().awaitTermination(round(WAIT_S))

    def to(writer: Any, topic: str, **more: Any) -> Any:
        return writer.format("rocketmq").options(**options(broker, topic=topic, **more))

    def each(batch: Any, _: int) -> None:
        write = to(batch.write, "update", deliveryGuarantee="transactional")
        write.mode("append").save()

    run(to(counts.writeStream, "complete"), "complete", "1")
    assert bodies_in(broker, "complete") == ["3", "6"]
    with pytest.raises(Exception, match="rocketmq does not support Update mode"):
        run(to(counts.writeStream, "update"), "update", "2")
    run(counts.writeStream.foreachBatch(each), "update", "3")
    assert bodies_in(broker, "update") == ["3", "6"]
    forget_last_commit(tmp_path / "3")
    run(counts.writeStream.foreachBatch(each), "update", "3")
    assert bodies_in(broker, "update") == ["3", "6", "6"], "another job, whatever the guarantee"


def test_a_query_may_have_a_name(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, checkpoint: str
) -> None:
    """Spark puts it among the options of the sink."""
    broker.create_topic("named", 1)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    writer = rows.selectExpr("string(value) body").writeStream.queryName("by_name")
    writer = writer.format("rocketmq").options(**options(broker, topic="named"))
    query = writer.option("checkpointLocation", checkpoint).start()
    try:
        until(lambda: bodies_in(broker, "named"), query)
        assert query.name == "by_name"
    finally:
        query.stop()


@pytest.mark.parametrize("guarantee", ["at-least-once", "idempotent"])
def test_a_broker_may_be_started_anew_between_two_batches(
    spark: "SparkSession", checkpoint: str, guarantee: str
) -> None:
    """While the only one is away, NameServers do not know the topic."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    rows = source.selectExpr("string(value) body").writeStream.format("rocketmq")
    with EmbeddedBroker() as broker:
        broker.create_topic("anew", 1)
        given = options(broker, topic="anew", deliveryGuarantee=guarantee)
        writer = rows.options(**given).option("checkpointLocation", checkpoint)
        query = writer.trigger(processingTime="1 second").start()
        try:
            until(lambda: _batches(query) >= 1, query)
            broker.stop_broker()
            stopped = time.monotonic()
            until(lambda: time.monotonic() - stopped > 3, query)
            broker.start_broker()
            wanted = _batches(query) + 2
            until(lambda: _batches(query) >= wanted, query)
        finally:
            query.stop()
        found = bodies_in(broker, "anew")
    assert {f"{number}" for number in range(3 * wanted)} <= set(found)


def _batches(query: "StreamingQuery") -> int:
    """So many are done."""
    last = query.lastProgress
    return 0 if last is None else int(last["batchId"]) + 1


def test_a_checkpoint_that_is_an_older_copy_is_refused(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer, checkpoint: str
) -> None:
    """Its batches have the numbers of others that were shown already."""
    broker.create_topic("from-older", 1)
    broker.create_topic("to-older", 1)
    where = {"topic": "to-older", "deliveryGuarantee": "transactional"}
    for number in range(3):
        producer.send(Message("from-older", b"%d" % number))
        copied(spark, broker, "from-older", checkpoint, **where)
        if number == 0:
            shutil.copytree(checkpoint, f"{checkpoint}-older")
    producer.send(Message("from-older", b"3"))
    with pytest.raises(Exception, match=r"know of batch 2 of query .* and this is batch 1"):
        copied(spark, broker, "from-older", f"{checkpoint}-older", **where)
    assert bodies_in(broker, "to-older") == ["0", "1", "2"]


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died between our end of the batch and Spark's note of it."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    (checkpoint / "commits" / f"{last}").unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
