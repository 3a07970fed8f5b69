"""What befalls pipelines that run for long: clusters that grow, retention, frames used many ways.

Crashes before the first batch, queues that come while a stream runs, losses and broker restarts are
in `test_stream`; frames without a cache in `test_batch`.
"""

from typing import TYPE_CHECKING

from cometmq.client.blocking import Admin, Producer
from cometmq.client.names import Message
from cometmq.protocol.message_queue import MessageQueue
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .sending import SHORT, bodies, options, send
from .streaming import Collected, Streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_a_frame_is_of_one_moment_however_it_is_used_and_a_new_one_sees_what_came(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("cached", 2)

    def tagged(number: int) -> Message:
        return Message("cached", b"%d" % number, tags="AB"[number // 2 % 2], keys=str(number))

    def load() -> "DataFrame":
        return spark.read.format("rocketmq").options(**options(broker, topic="cached")).load()

    before = send(producer, "cached", 20, queues=range(2), message=tagged)
    frame = load()
    only = frame.filter("tags = 'A'").cache()
    assert only.count() == 10
    after = send(producer, "cached", 8, queues=range(2), message=lambda n: tagged(n + 20))
    # Its offsets are those of its first use: what is joined or counted twice is the same twice.
    assert (only.count(), frame.count()) == (10, 20)
    assert bodies(frame.collect()) == before
    now = load()
    assert bodies(now.collect()) == before | after
    joined = only.alias("cached").join(now.alias("now"), "msgId")
    assert sorted(int(row.body) for row in joined.select("now.body").collect()) == [
        number for number in range(20) if number // 2 % 2 == 0
    ]
    assert only.union(now.filter("tags = 'B'")).count() == 10 + 14
    now.createOrReplaceTempView("cached")
    told = spark.sql(
        "SELECT a.tags, count(*) FROM cached a JOIN cached b ON a.msgId = b.msgId "
        "GROUP BY a.tags ORDER BY 1"
    )
    assert [tuple(row) for row in told.collect()] == [("A", 14), ("B", 14)]
    only.unpersist()
    assert (only.count(), now.filter("tags = 'A'").count()) == (10, 14)


def test_queues_and_brokers_that_came_while_a_stream_was_stopped_are_read_whole(
    spark: "SparkSession", checkpoint: str
) -> None:
    with EmbeddedBroker(brokers=2) as broker:
        broker.stop_broker(1)
        broker.create_topic("grown", 4)
        sink, streams = Collected(), Streams(spark, broker, checkpoint)
        with Producer(broker.namesrv, group="grown") as producer:
            send(producer, "grown", 8)  # Before the first start: not for a stream of what comes.
            streams.run(sink, topic="grown")
            sent = send(producer, "grown", 8)
        broker.start_broker(1)
        broker.create_topic("grown", 16)
        for name in ("broker-a", "broker-b"):
            with Producer(broker.namesrv, group="grown") as later:
                sent |= send(later, "grown", 32, queues=range(16), broker=name)
        streams.run(sink, topic="grown")
        assert sink.sent == sent
        # And with half of the cluster away nothing is read twice, or taken for lost.
        broker.stop_broker(1)
        with Producer(broker.namesrv, group="grown") as producer:
            sent |= send(producer, "grown", 16, queues=range(16))
        streams.run(sink, topic="grown")
        broker.start_broker(1)
        streams.run(sink, topic="grown")
        assert sink.sent == sent


def test_a_broker_deletes_what_a_stream_has_read_and_nothing_else(
    spark: "SparkSession", checkpoint: str
) -> None:
    """The retention gate, opened by the offsets that the session's listener commits."""
    from cometmq.spark.listener import attach

    queue = MessageQueue("gated", "broker-a", 0)
    gate = {"archive.requiredBeforeDelete": True, "archive.group": "gate-keepers"}
    with EmbeddedBroker(settings={**SHORT, **gate}) as broker, Admin(broker.namesrv) as admin:
        broker.create_topic("gated", 1)
        with Producer(broker.namesrv, group="gated") as producer:
            sent = send(producer, "gated", 100, queues=[0])
            admin.brokers.delete_expired_log()
            assert admin.offsets.min(queue) == 0
            sink, streams = Collected(), Streams(spark, broker, checkpoint)
            given = {"consumerGroup": "gate-keepers", "commitGroupOffsets": True}
            query = streams.run(sink, topic="gated", startingOffsets="earliest", **given)
            assert attach(spark).settled(query)
            more = send(producer, "gated", 100, queues=[0])
        admin.brokers.delete_expired_log()
        assert 0 < admin.offsets.min(queue) <= 100
        streams.run(sink, topic="gated", startingOffsets="earliest", **given)
        assert sink.sent == sent | more
