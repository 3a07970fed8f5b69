"""A stream at the driver: how far its batches go, against real brokers. Without Spark."""

import contextlib
from collections.abc import Iterator

import pytest

from cometmq.client.blocking import Admin, Producer
from cometmq.protocol.message_queue import MessageQueue
from cometmq.spark.topic.offsets import ByQueue, Progress
from cometmq.spark.topic.options import read_options
from cometmq.spark.topic.stream import Stream
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .sending import SHORT, options, send

BEFORE_ALL = Progress({}, {}, has_begun=False)


@contextlib.contextmanager
def streaming(broker: BlockingEmbeddedBroker, **given: object) -> Iterator[Stream]:
    stream = Stream(read_options(options(broker, **given), streaming=True))
    try:
        yield stream
    finally:
        stream.close()


def queue_of(topic: str, number: int = 0) -> MessageQueue:
    return MessageQueue(topic, "broker-a", number)


def next_ends(stream: Stream, before: Progress) -> ByQueue:
    after = stream.next(before, everything=False)
    assert after is not None
    return after.ends


# -- what is there now ---------------------------------------------------------------------------


@pytest.mark.parametrize("where", [{"assign": '{"apart": ["broker-a:0"]}'}, {"topic": "apart"}])
def test_a_run_that_goes_on_does_without_brokers_that_are_away(where: dict[str, str]) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("apart", 1)
        with streaming(broker, **where) as stream:
            broker.stop_broker()
            stream.stop_at_the_present()
            assert stream.next(Progress({queue_of("apart"): 3}, {}), everything=False) is None


def test_a_topic_that_comes_before_the_first_batch_begins_where_the_user_says(
    broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("prompt", 1)
    with streaming(broker, subscribe="prompt,tardy", startingOffsets="latest") as stream:
        stream.stop_at_the_present()
        broker.create_topic("tardy", 1)
        send(producer, "tardy", 4, queues=[0])
        ends = {queue_of("prompt"): 0, queue_of("tardy"): 4}
        assert stream.next(BEFORE_ALL, everything=False) == Progress(ends, ends)


def test_what_is_there_now_is_found_out_once(
    broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("present", 1)
    queue = queue_of("present")
    send(producer, "present", 5, queues=[0])
    given = {"topic": "present", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 3}
    with streaming(broker, **given) as stream:
        stream.stop_at_the_present()
        assert next_ends(stream, BEFORE_ALL) == {queue: 3}
        send(producer, "present", 5, queues=[0])
        assert next_ends(stream, Progress({queue: 3}, {})) == {queue: 5}
        assert stream.next(Progress({queue: 5}, {}), everything=False) is None


# -- its group -----------------------------------------------------------------------------------


def test_a_group_hears_of_the_batch_that_was_run_again_before_the_first_look(
    broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    """Of such a batch, Spark's progress does not tell enough for a listener to commit it."""
    broker.create_topic("replayed", 1)
    queue = queue_of("replayed")
    send(producer, "replayed", 5, queues=[0])
    given = {"topic": "replayed", "consumerGroup": "followers", "commitGroupOffsets": True}
    with Admin(broker.namesrv) as admin, streaming(broker, **given) as stream:
        assert stream.next(BEFORE_ALL, everything=False) is not None
        assert queue not in admin.offsets.committed("followers", "replayed")
        stream.next(Progress({queue: 3}, {}), everything=False)
        assert admin.offsets.committed("followers", "replayed")[queue] == 3
        # From now on Spark tells when a batch is durable.
        stream.next(Progress({queue: 5}, {}), everything=False)
        assert admin.offsets.committed("followers", "replayed")[queue] == 3


# -- limits --------------------------------------------------------------------------------------


def test_a_loss_does_not_use_up_what_a_batch_may_have() -> None:
    with EmbeddedBroker(settings=SHORT) as broker, Admin(broker.namesrv) as admin:
        broker.create_topic("gappy", 2)
        lossy, healthy = queue_of("gappy", 0), queue_of("gappy", 1)
        with Producer(broker.namesrv, group="gappy") as producer:
            send(producer, "gappy", 100, queues=[0])
            admin.brokers.delete_expired_log()
            begin = admin.offsets.min(lossy)
            send(producer, "gappy", 100 - begin, queues=[1])
        assert 20 < begin < 95
        given = {"topic": "gappy", "failOnDataLoss": False, "maxOffsetsPerTrigger": 10}
        with streaming(broker, **given) as stream:
            ends = next_ends(stream, Progress({lossy: 0, healthy: 0}, {}))
        assert ends == {lossy: begin + 5, healthy: 5}
