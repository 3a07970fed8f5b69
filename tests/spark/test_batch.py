"""Topics as DataFrames: every message is a row, whatever is asked for."""

import datetime as dt
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.client.blocking import Admin, Producer
from cometmq.client.names import Message
from cometmq.protocol.message_queue import MessageQueue
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .sending import SHORT, bodies, options, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, *, schema: str = "", **more: object
) -> "DataFrame":
    reader = spark.read.format("rocketmq").options(**options(broker, **more))
    return (reader.schema(schema) if schema else reader).load()


def error_of(frame: Any) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark wraps what a worker raises
        frame().collect()
    return str(raised.value)


def test_every_message_is_a_row_with_all_columns(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("rows", 1)
    before = dt.datetime.now()
    result = producer.send(
        Message(
            "rows", b"\x00\xffcoffee", tags="hot", keys=["k1", "k2"], properties={"Größe": "名"}
        )
    )
    producer.send(Message("rows", b"plain"))
    columns = (
        "topic,brokerName,queueId,queueOffset,msgId,bornTimestamp,storeTimestamp,keys,tags,body,"
        "reconsumeTimes,bornHost,storeHost,sysFlag,physicalOffset,properties"
    )
    first, second = read(spark, broker, topic="rows", columns=columns).collect()

    assert first.asDict().keys() == set(columns.split(","))
    assert (first.topic, first.brokerName, first.queueId, first.queueOffset) == (
        "rows", "broker-a", 0, 0,
    )  # fmt: skip
    assert first.msgId == result.message_id
    assert (first.keys, first.tags, bytes(first.body)) == ("k1 k2", "hot", b"\x00\xffcoffee")
    assert (first.reconsumeTimes, first.sysFlag) == (0, 0)
    assert before - dt.timedelta(seconds=1) < first.bornTimestamp <= first.storeTimestamp
    assert first.storeTimestamp < dt.datetime.now() + dt.timedelta(seconds=1)
    assert first.bornHost.startswith("127.0.0.1:")
    assert first.storeHost == broker.address
    assert first.properties["Größe"] == "名"
    assert first.properties["KEYS"] == "k1 k2"
    assert (second.queueOffset, second.keys, second.tags) == (1, None, None)
    assert bytes(second.body) == b"plain"
    assert second.physicalOffset > first.physicalOffset


def test_columns_by_option_or_by_schema_in_any_order(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("columns", 1)
    send(producer, "columns", 3, queues=[0])
    names = read(spark, broker, topic="columns", columns="brokerName").collect()
    assert [tuple(row) for row in names] == [("broker-a",)] * 3
    by_option = read(spark, broker, topic="columns", columns="body,queueOffset")
    assert by_option.columns == ["body", "queueOffset"]
    by_schema = read(spark, broker, topic="columns", schema="queueOffset long, body binary")
    assert by_schema.columns == ["queueOffset", "body"]
    expected = [(number, b"message %d" % number) for number in range(3)]
    assert [(row.queueOffset, bytes(row.body)) for row in by_option.collect()] == expected
    assert [(row.queueOffset, bytes(row.body)) for row in by_schema.collect()] == expected
    strict = read(spark, broker, topic="columns", schema="queueOffset long not null, tags string")
    assert [tuple(row) for row in strict.collect()] == [(number, None) for number in range(3)]
    with_properties = read(spark, broker, topic="columns", columns="tags", includeProperties=True)
    assert with_properties.columns == ["tags", "properties"]
    assert all("UNIQ_KEY" in row.properties for row in with_properties.collect())


@pytest.mark.parametrize(
    ("schema", "more", "said"),
    [
        ("queueOffset int", {}, "schema: column queueOffset is bigint, not int"),
        ("offset long", {}, "schema: no column offset"),
        ("body binary", {"columns": "tags"}, "and a schema with other columns"),
        ("", {"endingOffset": "latest"}, "unknown option endingoffset; did you mean endingOffsets"),
        ("", {"maxOffsetsPerTrigger": 5}, "maxOffsetsPerTrigger is for streaming queries only"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(
    spark: "SparkSession",
    broker: BlockingEmbeddedBroker,
    schema: str,
    more: dict[str, object],
    said: str,
) -> None:
    assert said in error_of(lambda: read(spark, broker, topic="orders", schema=schema, **more))


def test_many_queues_and_empty_ones(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("many", 32)
    broker.create_topic("empty", 4)
    sent = send(producer, "many", 100, queues=range(0, 32, 3))
    frame = read(spark, broker, topic="many")
    assert bodies(frame.collect()) == sent
    assert frame.rdd.getNumPartitions() == 11
    assert read(spark, broker, topic="empty").collect() == []
    assert read(spark, broker, topic="empty").count() == 0


def test_several_topics_a_pattern_and_assigned_queues(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    sent = {}
    for topic in ("several-a", "several-b"):
        broker.create_topic(topic, 2)
        sent[topic] = send(producer, topic, 10, queues=range(2))
    by_name = read(spark, broker, subscribe="several-a,several-b").collect()
    by_pattern = read(spark, broker, subscribePattern="several-[ab]").collect()
    for rows in (by_name, by_pattern):
        assert {topic: bodies(r for r in rows if r.topic == topic) for topic in sent} == sent
    assigned = read(spark, broker, assign='{"several-b": ["broker-a:1"]}').collect()
    assert bodies(assigned) == {at: b for at, b in sent["several-b"].items() if at[1] == 1}


def test_topics_of_retries_are_topics(
    spark: "SparkSession", broker: BlockingEmbeddedBroker
) -> None:
    topic = "%RETRY%spark-shop"
    broker.create_topic(topic, 1)
    with Producer(broker.namesrv, group="retrier") as producer:
        producer.send(Message(topic, b"again", properties={"ORIGIN": "orders"}))
    (row,) = read(spark, broker, topic=topic, includeProperties=True).collect()
    assert (row.topic, bytes(row.body)) == (topic, b"again")
    assert row.properties["ORIGIN"] == "orders"


def test_long_bodies_come_as_they_were_sent(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("long", 1)
    long = [b"%d " % number * 20_000 for number in range(5)]  # Producers pack such bodies.
    send(producer, "long", 5, queues=[0], message=lambda n: Message("long", long[n]))
    rows = read(spark, broker, topic="long", columns="body,sysFlag").collect()
    assert [bytes(row.body) for row in rows] == long
    assert all(row.sysFlag & 1 for row in rows)


def test_offsets_and_times_bound_what_is_read(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("bounded", 2)
    early = send(producer, "bounded", 20, queues=range(2))
    time.sleep(0.02)  # Times are compared in milliseconds.
    moment = round(time.time() * 1000)
    time.sleep(0.02)
    late = send(producer, "bounded", 20, queues=range(2))

    def places(**more: Any) -> dict[tuple[str, int, int], bytes]:
        return bodies(read(spark, broker, topic="bounded", **more).collect())

    assert places() == early | late
    assert places(startingTimestamp=moment) == late
    assert places(endingTimestamp=moment) == early
    assert places(endingOffsetsByTimestamp=json.dumps({"bounded": moment})) == early
    start = json.dumps({"bounded": {"broker-a:0": 5, "broker-a:1": -2}})
    end = json.dumps({"bounded": {"broker-a:0": 8, "broker-a:1": 1}})
    found = places(startingOffsets=start, endingOffsets=end)
    assert sorted(found) == [("broker-a", 0, n) for n in (5, 6, 7)] + [("broker-a", 1, 0)]
    assert places(startingTimestamp=moment, endingTimestamp=moment) == {}
    assert places(queues="1") == {at: b for at, b in (early | late).items() if at[1] == 1}


def test_parts_are_as_many_as_wanted_and_no_larger(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("parts", 2)
    sent = send(producer, "parts", 60, queues=[0, 0, 1])
    frame = read(spark, broker, topic="parts", minPartitions=6)
    assert frame.rdd.getNumPartitions() == 6
    assert bodies(frame.collect()) == sent
    frame = read(spark, broker, topic="parts", maxRecordsPerPartition=7)
    sizes = frame.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
    assert max(sizes) <= 7
    assert sum(sizes) == 60
    assert bodies(frame.collect()) == sent


def test_filters_at_the_broker(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("filtered", 2)
    sent = send(
        producer, "filtered", 30, queues=range(2),
        message=lambda n: Message("filtered", b"%d" % n, tags="ABC"[n % 3]),
    )  # fmt: skip
    rows = read(spark, broker, topic="filtered", tags="A || C").collect()
    assert bodies(rows) == {at: body for at, body in sent.items() if int(body) % 3 != 1}
    assert {row.tags for row in rows} == {"A", "C"}
    assert "enablePropertyFilter" in error_of(
        lambda: read(spark, broker, topic="filtered", sql92="a = 1")
    )


def test_a_groups_offsets_are_a_place_to_begin(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("grouped", 1)
    sent = send(producer, "grouped", 10, queues=[0])
    with Admin(broker.namesrv) as admin:
        admin.groups.create("batch-readers")
        admin.offsets.commit("batch-readers", {MessageQueue("grouped", "broker-a", 0): 6})
    frame = read(
        spark, broker, topic="grouped", startingOffsets="group", consumerGroup="batch-readers"
    )
    assert bodies(frame.collect()) == {at: b for at, b in sent.items() if at[2] >= 6}


def test_a_group_behind_the_end_of_a_topic_made_anew_is_a_loss(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("renewed", 2)
    send(producer, "renewed", 3, queues=[0])
    with Admin(broker.namesrv) as admin:
        admin.groups.create("renewed-readers")
        admin.offsets.commit("renewed-readers", {MessageQueue("renewed", "broker-a", 0): 60})
    given = {"topic": "renewed", "startingOffsets": "group", "consumerGroup": "renewed-readers"}
    said = error_of(lambda: read(spark, broker, **given))
    assert "topic renewed, queue broker-a:0: messages are lost between 3 and 60" in said
    assert read(spark, broker, failOnDataLoss=False, **given).collect() == []


def test_a_frame_can_be_used_again_and_again(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("reuse", 2)
    send(
        producer, "reuse", 40, queues=range(2),
        message=lambda n: Message("reuse", b"%d" % n, tags="AB"[n // 2 % 2], keys=str(n)),
    )  # fmt: skip
    frame = read(spark, broker, topic="reuse")
    only = frame.filter("tags = 'A'")
    assert (only.count(), frame.count(), only.count()) == (20, 40, 20)
    assert frame.filter("queueId = 0").union(frame.filter("queueId = 1")).count() == 40
    assert only.union(frame).count() == 60
    other = frame.filter("tags = 'B'").select("keys", "queueId")
    joined = frame.select("keys", "queueOffset").join(other, "keys")
    assert joined.count() == 20
    assert frame.alias("x").join(frame.alias("y"), "msgId").count() == 40
    frame.createOrReplaceTempView("reuse")
    told = spark.sql("SELECT tags, count(*), max(queueOffset) FROM reuse GROUP BY tags ORDER BY 1")
    assert [tuple(row) for row in told.collect()] == [("A", 20, 18), ("B", 20, 19)]
    (one,) = spark.sql("SELECT * FROM reuse WHERE keys = '7' LIMIT 5").collect()
    assert one.queueOffset == 3


def test_a_limit_reads_no_more_than_it_needs_and_ends_cleanly(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("limit", 1)
    queue = MessageQueue("limit", "broker-a", 0)
    for base in range(0, 80_000, 1000):
        batch = [Message("limit", b"%d" % n) for n in range(base, base + 1000)]
        producer.send_batch(batch, queue=queue)
    frame = read(spark, broker, topic="limit", columns="queueOffset")
    assert [row.queueOffset for row in frame.limit(3).collect()] == [0, 1, 2]
    assert frame.count() == 80_000
    assert frame.agg({"queueOffset": "sum"}).collect()[0][0] == sum(range(80_000))


def test_messages_that_are_gone_are_named_or_left_out(spark: "SparkSession") -> None:
    with EmbeddedBroker(settings=SHORT) as broker:
        broker.create_topic("old", 1)
        with Producer(broker.namesrv, group="old") as producer:
            sent = send(producer, "old", 100, queues=[0])
        with Admin(broker.namesrv) as admin:
            admin.brokers.delete_expired_log()
            begin = admin.offsets.min(MessageQueue("old", "broker-a", 0))
        assert 0 < begin < 100
        left = {at: body for at, body in sent.items() if at[2] >= begin}
        assert bodies(read(spark, broker, topic="old").collect()) == left
        given: dict[str, Any] = {"topic": "old", "startingOffsets": '{"old": {"broker-a:0": 3}}'}
        said = error_of(lambda: read(spark, broker, **given))
        assert f"topic old, queue broker-a:0: messages are lost between 3 and {begin}" in said
        assert bodies(read(spark, broker, failOnDataLoss=False, **given).collect()) == left


def test_secrets_show_neither_in_plans_nor_in_errors(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    broker.create_topic("secret", 1)
    secrets = {"accessKey": "theaccesskey", "secretKey": "thesecret", "securityToken": "thetoken"}
    frame = read(spark, broker, topic="secret", **secrets)
    frame.explain(extended=True)
    frame.explain(mode="formatted")
    assert frame.collect() == []
    said = error_of(lambda: read(spark, broker, topic="secret", minPartitions="x", **secrets))
    shown = capfd.readouterr()
    assert "rocketmq" in shown.out
    for secret in secrets.values():
        assert secret not in shown.out + shown.err + said
