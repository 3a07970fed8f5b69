"""Brokers that are listed and do not answer, connections that die silently. Without Spark."""

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Iterator

import pytest

from cometmq.client.blocking import Producer
from cometmq.client.names import Message
from cometmq.protocol.command import Command
from cometmq.protocol.message_queue import MessageQueue
from cometmq.spark.errors import ClusterAway
from cometmq.spark.topic import patience, pulls
from cometmq.spark.topic.offsets import Progress, QueueRange
from cometmq.spark.topic.options import SourceOptions, read_options
from cometmq.spark.topic.planning import GONE_AFTER_S
from cometmq.spark.topic.stream import Stream
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .sending import options, send

TOPIC = "quiet"
AT_A, AT_B = (MessageQueue(TOPIC, name, 0) for name in ("broker-a", "broker-b"))
TIMEOUT_S = 0.3
BEFORE_ALL = Progress({}, {}, has_begun=False)


def read(broker: BlockingEmbeddedBroker, **given: object) -> SourceOptions:
    """Options with requests that time out soon."""
    where = {} if "subscribe" in given else {"topic": TOPIC}
    found = read_options(options(broker, **where, **given), streaming=True)
    cluster = dataclasses.replace(found.cluster, request_timeout_s=TIMEOUT_S)
    return dataclasses.replace(found, cluster=cluster)


@contextlib.contextmanager
def streaming(broker: BlockingEmbeddedBroker, **given: object) -> Iterator[Stream]:
    stream = Stream(read(broker, **given))
    try:
        yield stream
    finally:
        stream.close()


@pytest.fixture
def pair() -> Iterator[BlockingEmbeddedBroker]:
    """Two brokers; each has five messages in its queue."""
    with EmbeddedBroker(in_memory=True, brokers=2, through_proxy=True) as broker:
        broker.create_topic(TOPIC, 1)
        with Producer(broker.namesrv, group="quiet") as producer:
            for queue in (AT_A, AT_B):
                send(producer, TOPIC, 5, queues=[0], broker=queue.broker_name)
        yield broker


# -- connections that die without a word -----------------------------------------------------------


def test_a_stream_gets_over_a_connection_that_died_silently(pair: BlockingEmbeddedBroker) -> None:
    with streaming(pair, startingOffsets="earliest") as stream:
        assert stream.next(BEFORE_ALL, everything=True)
        pair.proxy(1).silence()  # A new connection reaches the broker.
        before = Progress({AT_A: 5, AT_B: 0}, {})
        looks = [stream.next(before, everything=True) for _ in range(2)]
    assert looks == [None, Progress({AT_A: 5, AT_B: 5}, {})]


def test_a_task_gets_over_a_connection_that_died_silently(
    monkeypatch: pytest.MonkeyPatch, pair: BlockingEmbeddedBroker
) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'cometmq[spark]'")
    from cometmq.spark.topic.ranges import read_range

    with Producer(pair.namesrv, group="quiet") as producer:
        for _ in range(5):
            producer.send_batch([Message(TOPIC, b"x")] * 500, queue=AT_A)
    answer, answered = pulls.Pulls.answer, 0

    async def silenced(one: pulls.Pulls, asked: "asyncio.Future[Command]") -> pulls.Pulled:
        nonlocal answered
        told = await answer(one, asked)
        answered += 1
        if answered == 1:
            pair.proxy(0).silence()
        return told

    monkeypatch.setattr(pulls, "ANSWER_TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setattr(patience, "PATIENCE_S", 8.0)
    monkeypatch.setattr(pulls.Pulls, "answer", silenced)
    batches = read_range(read(pair), QueueRange(AT_A, 0, 2505), ["queueOffset"])
    found = [offset for batch in batches for offset in batch.column(0).to_pylist()]
    assert found == list(range(2505))


# -- brokers that are listed and do not answer -----------------------------------------------------


def test_a_stream_goes_on_without_a_broker_that_does_not_answer(
    pair: BlockingEmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with streaming(pair) as stream:
        pair.proxy(1).drop()
        goes_on = stream.next(Progress({AT_A: 2, AT_B: 3}, {}), everything=False)
        assert goes_on == Progress({AT_A: 5, AT_B: 3}, {})
        pair.proxy(1).restore()
        goes_on = stream.next(goes_on, everything=False)
    assert goes_on == Progress({AT_A: 5, AT_B: 5}, {})
    said = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert said == [f"queues that are away stay unread: {TOPIC} broker-b:0"]


def test_its_queues_are_not_taken_for_gone(pair: BlockingEmbeddedBroker) -> None:
    now_s = 1000.0
    stream = Stream(read(pair), lambda: now_s)
    before = Progress({AT_A: 5, AT_B: 3}, {})
    try:
        assert stream.next(before, everything=False) == Progress({AT_A: 5, AT_B: 5}, {})
        pair.proxy(1).drop()
        for _ in range(3):
            assert stream.next(before, everything=False) is None
            now_s += GONE_AFTER_S
    finally:
        stream.close()


def test_it_costs_a_look_one_time_out_however_many_topics_it_has(
    pair: BlockingEmbeddedBroker,
) -> None:
    topics = [f"{TOPIC}-{number}" for number in range(24)]
    for topic in topics:
        pair.create_topic(topic, 1)
    names = ("broker-a", "broker-b")
    before = Progress({MessageQueue(t, name, 0): 0 for t in topics for name in names}, {})
    with streaming(pair, subscribe=",".join(topics)) as stream:
        assert stream.next(before, everything=False) is None
        pair.proxy(1).drop()
        asked = pair.proxy(1).traffic.connections
        begun = time.monotonic()
        assert stream.next(before, everything=False) is None
        assert time.monotonic() - begun < len(topics) / 4 * TIMEOUT_S
        assert pair.proxy(1).traffic.connections - asked <= 1


@pytest.mark.parametrize("what", ["first start", "present"])
def test_where_a_stream_begins_and_what_is_there_at_the_present_is_for_all_brokers_to_say(
    pair: BlockingEmbeddedBroker, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.5)
    before = BEFORE_ALL
    with streaming(pair) as stream:
        if what == "present":
            before = Progress({AT_A: 2, AT_B: 3}, {})
            stream.stop_at_the_present()
        pair.proxy(1).drop()
        with pytest.raises(ClusterAway, match="broker broker-b at "):
            stream.next(before, everything=False)
