"""Topics as streams: batches, limits, restarts, queues that come, messages that go."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.client.blocking import Admin, Producer
from cometmq.client.names import Message
from cometmq.protocol.message_queue import MessageQueue
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .sending import SHORT, Sent, offsets_of, send
from .streaming import Collected, Streams, error_of, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


COLUMNS = "brokerName,queueId,queueOffset,body"


@pytest.fixture
def streams(spark: "SparkSession", broker: BlockingEmbeddedBroker, checkpoint: str) -> Streams:
    return Streams(spark, broker, checkpoint)


def test_a_stream_begins_at_the_end_and_gets_what_comes(
    streams: Streams, broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("coming", 4)
    send(producer, "coming", 20)
    sink = Collected()
    with streams.running(sink, topic="coming") as query:
        sent = send(producer, "coming", 30)
        until(lambda: len(sink.rows) >= 30, query)
        more = send(producer, "coming", 10)
        until(lambda: len(sink.rows) >= 40, query)
    assert sink.sent == sent | more


def test_limits_bound_a_batch_and_all_that_is_there_comes(
    streams: Streams, broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("limited", 4)
    sent = send(producer, "limited", 103, queues=[0, 0, 0, 1, 2, 3])
    sink = Collected()
    query = streams.run(sink, topic="limited", startingOffsets="earliest", maxOffsetsPerTrigger=25)
    assert sink.sent == sent
    assert max(sink.sizes) <= 25
    assert len(sink.sizes) <= 6
    last = query.lastProgress
    assert last is not None
    assert json.loads(last.sources[0].endOffset) == offsets_of("limited", sent)
    assert json.loads(last.sources[0].latestOffset) == offsets_of("limited", sent)


def test_a_limit_in_bytes_bounds_a_batch(
    streams: Streams, broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("heavy", 2)
    sent = send(
        producer, "heavy", 40, queues=range(2),
        message=lambda n: Message("heavy", b"%04d" % n * 500),
    )  # fmt: skip
    sink = Collected()
    streams.run(sink, topic="heavy", startingOffsets="earliest", maxBytesPerTrigger=22_000)
    assert sink.sent == sent
    assert set(sink.sizes[:-1]) <= {8, 10}
    assert max(sink.sizes) <= 10


def test_a_stream_waits_for_enough_messages_or_long_enough(
    streams: Streams, broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("patient", 1)
    sink = Collected()
    given = {"topic": "patient", "minOffsetsPerTrigger": 10, "maxTriggerDelay": "3s"}
    with streams.running(sink, startingOffsets="earliest", **given) as query:
        first = send(producer, "patient", 1, queues=[0])
        until(lambda: len(sink.rows) == 1, query)  # The first batch is due at once.
        begun = time.monotonic()
        few = send(producer, "patient", 4, queues=[0])
        until(lambda: len(sink.rows) == 5, query)
        assert time.monotonic() - begun > 1.5
    assert sink.sent == first | few
    assert [size for size in sink.sizes if size] == [1, 4]


def test_what_is_there_now_is_read_and_no_more(
    streams: Streams, broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("now", 2)
    sent = send(producer, "now", 10, queues=range(2))
    sink = Collected()

    class Sending(Collected):
        """While it reads, more is sent: that is for the next run."""

        def __call__(self, frame: object, number: int) -> None:
            sent_late.update(send(producer, "now", 2, queues=range(2)))
            sink(frame, number)  # type: ignore[arg-type]

    sent_late: Sent = {}
    given = {"topic": "now", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 4}
    streams.run(Sending(), **given)
    assert sink.sent == sent
    assert sent_late
    streams.run(sink, **given)
    assert sink.sent == sent | sent_late
    before = list(sink.batches)
    streams.run(sink, **given)
    assert list(sink.batches) == before


def test_a_stream_goes_on_where_its_checkpoint_is(
    streams: Streams, broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("resumed", 2)
    sink = Collected()
    sent = send(producer, "resumed", 10, queues=range(2))
    with streams.running(sink, topic="resumed", startingOffsets="earliest") as query:
        until(lambda: len(sink.rows) == 10, query)
    sent |= send(producer, "resumed", 7, queues=range(2))
    # Where to begin is a matter of the first start only.
    with streams.running(sink, topic="resumed", startingOffsets="latest") as query:
        until(lambda: len(sink.rows) == 17, query)
    assert sink.sent == sent


def test_nothing_is_lost_when_the_first_batch_fails(
    streams: Streams, broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("first", 2)
    send(producer, "first", 6, queues=range(2))
    sink = Collected()
    sink.fails_at = 0
    assert "batch 0 is to fail" in error_of(streams.start(sink, topic="first"))
    sent = send(producer, "first", 8, queues=range(2))
    assert "batch 0 is to fail" in error_of(streams.start(sink, topic="first"))
    sent |= send(producer, "first", 4, queues=range(2))
    sink.fails_at = None
    streams.run(sink, topic="first")
    assert sink.sent == sent


def test_nothing_is_lost_when_the_driver_is_killed_in_its_first_batch(
    streams: Streams, broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("killed", 2)
    send(producer, "killed", 6, queues=range(2))
    command = ["-m", "tests.spark.stuck_query", broker.namesrv, "killed", str(streams.checkpoint)]
    with subprocess.Popen([sys.executable, *command], start_new_session=True) as driver:
        try:
            until(lambda: streams.has_begun or driver.poll() is not None)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)  # With its Java.
    assert streams.has_begun
    sent = send(producer, "killed", 8, queues=range(2))
    sink = Collected()
    streams.run(sink, topic="killed")
    assert sink.sent == sent


def test_a_first_batch_with_messages_is_the_same_when_it_runs_again(
    streams: Streams, broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("first-again", 2)
    sent = send(producer, "first-again", 10, queues=range(2))
    with Admin(broker.namesrv) as admin:
        admin.groups.create("again-readers")
        admin.offsets.commit("again-readers", {MessageQueue("first-again", "broker-a", 0): 2})
        sink = Collected()
        sink.fails_at = 0
        given: dict[str, Any] = {
            "topic": "first-again",
            "startingOffsets": "group",
            "consumerGroup": "again-readers",
        }
        error_of(streams.start(sink, **given))
        # The group has gone on meanwhile, which is nothing to a stream that has begun.
        admin.offsets.commit("again-readers", {MessageQueue("first-again", "broker-a", 0): 5})
    sink.fails_at = None
    streams.run(sink, **given)
    assert sink.sent == {at: body for at, body in sent.items() if at[1:] not in [(0, 0), (0, 1)]}


def test_a_group_is_told_how_far_the_stream_is(
    streams: Streams, broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("told", 1)
    queue = MessageQueue("told", "broker-a", 0)
    sink = Collected()
    given = {"topic": "told", "consumerGroup": "spark-told", "commitGroupOffsets": True}
    with Admin(broker.namesrv) as admin:
        with streams.running(sink, startingOffsets="earliest", **given) as query:
            for count in (3, 5, 6):  # Spark tells of a batch when the next one begins.
                send(producer, "told", count - len(sink.rows), queues=[0])
                until(lambda: len(sink.rows) == count, query)  # noqa: B023 - used at once
            until(lambda: admin.offsets.committed("spark-told", "told").get(queue, 0) >= 5, query)
        assert admin.offsets.committed("spark-told", "told")[queue] in (5, 6)


def test_queues_and_brokers_that_come_are_read_from_their_beginning(
    spark: "SparkSession", checkpoint: str
) -> None:
    with EmbeddedBroker(brokers=2) as broker:
        broker.stop_broker(1)
        broker.create_topic("growing", 4)
        sink = Collected()
        with Producer(broker.namesrv, group="growing") as producer:
            send(producer, "growing", 8)
            with Streams(spark, broker, checkpoint).running(sink, topic="growing") as query:
                sent = send(producer, "growing", 8)
                until(lambda: len(sink.rows) == 8, query)
                broker.start_broker(1)
                broker.create_topic("growing", 16)
                for name in ("broker-a", "broker-b"):
                    # A new producer, since an older one asks for routes only now and then.
                    with Producer(broker.namesrv, group="growing") as later:
                        sent |= send(later, "growing", 32, queues=range(16), broker=name)
                until(lambda: len(sink.rows) == len(sent), query)
    assert sink.sent == sent


def test_topics_that_come_to_fit_a_pattern_are_read_from_their_beginning(
    streams: Streams, broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    sink = Collected()
    with streams.running(sink, subscribePattern="found-.*") as query:
        broker.create_topic("found-a", 1)
        sent = send(producer, "found-a", 5, queues=[0])
        until(lambda: len(sink.rows) == 5, query)
    assert sink.sent == sent
    assert {row.topic for row in sink.rows} == {"found-a"}


def aged(broker: BlockingEmbeddedBroker) -> int:
    """Have retention delete what it can; where the topic begins then."""
    with Admin(broker.namesrv) as admin:
        admin.brokers.delete_expired_log()
        begin = admin.offsets.min(MessageQueue("aging", "broker-a", 0))
    assert begin > 0
    return begin


@pytest.mark.parametrize("fail", [True, False])
def test_retention_that_overtakes_a_stopped_stream(
    spark: "SparkSession", checkpoint: str, fail: bool
) -> None:
    with EmbeddedBroker(settings=SHORT) as broker:
        broker.create_topic("aging", 1)
        streams, sink = Streams(spark, broker, checkpoint), Collected()
        given = {"topic": "aging", "startingOffsets": "earliest", "failOnDataLoss": fail}
        with Producer(broker.namesrv, group="aging") as producer:
            sent = send(producer, "aging", 10, queues=[0])
            streams.run(sink, **given)
            assert sink.sent == sent
            late = send(producer, "aging", 200, queues=[0])
        begin = aged(broker)
        assert 10 < begin < 210
        if fail:
            said = error_of(streams.start(sink, now=True, **given))
            assert f"queue broker-a:0: messages are lost between 10 and {begin}" in said
        else:
            streams.run(sink, **given)
            left = {at: body for at, body in late.items() if at[2] >= begin}
            assert sink.sent == sent | left


def test_a_topic_made_anew_is_a_loss_and_never_read_twice(
    streams: Streams, broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("anew", 1)
    sent = send(producer, "anew", 10, queues=[0])
    sink = Collected()
    given = {"topic": "anew", "startingOffsets": "earliest"}
    streams.run(sink, **given)
    with Admin(broker.namesrv) as admin:
        admin.topics.delete("anew")
    broker.create_topic("anew", 1)
    send(producer, "anew", 4, queues=[0])
    said = error_of(streams.start(sink, now=True, **given))
    assert "topic anew, queue broker-a:0" in said
    assert "the queue ends at 4" in said
    streams.run(sink, failOnDataLoss=False, **given)
    assert sink.sent == sent


def test_a_broker_that_is_started_anew_mid_batch_is_waited_for(
    spark: "SparkSession", checkpoint: str
) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("restarted", 2)
        sent: Sent = {}
        with Producer(broker.namesrv, group="restarted") as producer:
            for number in (0, 1):
                queue = MessageQueue("restarted", "broker-a", number)
                for base in range(0, 40_000, 1000):
                    batch = [Message("restarted", b"%d" % n) for n in range(base, base + 1000)]
                    producer.send_batch(batch, queue=queue)
                sent |= {("broker-a", number, n): b"%d" % n for n in range(40_000)}
        sink, streams = Collected(), Streams(spark, broker, checkpoint)
        restart = threading.Thread(target=broker.restart, kwargs={"abrupt": True})
        given = {"topic": "restarted", "startingOffsets": "earliest", "columns": COLUMNS}
        query = streams.start(sink, now=True, maxRecordsPerPartition=10_000, **given)
        until(lambda: streams.has_begun, query)
        restart.start()
        assert query.awaitTermination(120)
        query.stop()
        restart.join()
        assert sink.sent == sent


def test_secrets_show_neither_in_progress_nor_in_logs(
    streams: Streams, broker: BlockingEmbeddedBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    broker.create_topic("discreet", 1)
    secrets = {"accessKey": "theaccesskey", "secretKey": "thesecret", "securityToken": "thetoken"}
    query = streams.run(Collected(), topic="discreet", **secrets)
    query.explain(extended=True)
    shown = capfd.readouterr()
    told = shown.out + shown.err + str(query.lastProgress)
    assert "rocketmq" in told.lower()
    assert not any(secret in told for secret in secrets.values())
    kept = [path for path in streams.checkpoint.rglob("*") if path.is_file()]
    assert kept
    assert not any(s.encode() in path.read_bytes() for path in kept for s in secrets.values())
