"""Queues that are gone while their broker is there, as a stream's driver sees it. Without Spark."""

import contextlib
from collections.abc import Iterator

import pytest

from cometmq.client.blocking import Admin, Producer
from cometmq.protocol.message_queue import MessageQueue
from cometmq.spark.errors import DataLost
from cometmq.spark.topic.offsets import Progress, QueueRange
from cometmq.spark.topic.options import read_options
from cometmq.spark.topic.planning import GONE_AFTER_S, Gone
from cometmq.spark.topic.stream import Stream
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .sending import options, send

BEFORE_ALL = Progress({}, {}, has_begun=False)
HOWS = pytest.mark.parametrize("how", ["deleted", "reduced"])


class Looks:
    """A stream that has read four of ten messages in each of two queues, and its clock."""

    def __init__(self, broker: BlockingEmbeddedBroker, topic: str, **given: object) -> None:
        broker.create_topic(topic, 2)
        with Producer(broker.namesrv, group="gone") as producer:
            send(producer, topic, 20, queues=range(2))
        self._now_s = 1000.0
        given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 8} | given
        self._options = read_options(options(broker, topic=topic, **given), streaming=True)
        self.stream = Stream(self._options, lambda: self._now_s)
        self.queues = [MessageQueue(topic, "broker-a", number) for number in range(2)]
        first = self.stream.next(BEFORE_ALL, everything=False)
        assert first is not None
        assert first.ends == dict.fromkeys(self.queues, 4)
        self.reached = first

    def restart(self) -> None:
        self.stream.close()
        self.stream = Stream(self._options, lambda: self._now_s)

    def look(self, *, after_s: float = 0.0) -> Progress | None:
        """Also goes on."""
        self._now_s += after_s
        after = self.stream.next(self.reached, everything=False)
        self.reached = after or self.reached
        return after


@contextlib.contextmanager
def looks(broker: BlockingEmbeddedBroker, topic: str, **given: object) -> Iterator[Looks]:
    looking = Looks(broker, topic, **given)
    try:
        yield looking
    finally:
        looking.stream.close()


def take_away(broker: BlockingEmbeddedBroker, topic: str, how: str) -> None:
    """Queue 1, or both."""
    with Admin(broker.namesrv) as admin:
        if how == "deleted":
            admin.topics.delete(topic)
        else:
            admin.topics.update(topic, read_queues=1, write_queues=1)


@HOWS
def test_what_was_seen_and_not_read_of_a_queue_that_is_gone_is_lost(
    broker: BlockingEmbeddedBroker, how: str
) -> None:
    topic = f"vanished-{how}"
    with looks(broker, topic) as looking:
        take_away(broker, topic, how)
        looking.look()
        looking.look(after_s=GONE_AFTER_S - 0.1)
        with pytest.raises(DataLost, match=r"queue broker-a:\d: .* between 4 and 10: .* is gone"):
            looking.look(after_s=0.1)


@HOWS
def test_a_loss_that_is_tolerated_is_told_once_and_the_stream_goes_on(
    broker: BlockingEmbeddedBroker, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    topic = f"missed-{how}"
    with looks(broker, topic, failOnDataLoss=False) as looking:
        take_away(broker, topic, how)
        for _ in range(4):
            looking.look(after_s=GONE_AFTER_S)
        there, gone = looking.queues
        lost = [gone] if how == "reduced" else [there, gone]
        told = [record.message for record in caplog.records if "lost between" in record.message]
        assert len(told) == len(lost)
        assert all("between 4 and 10: the queue is gone" in said for said in told)
        assert looking.reached.ends == {there: 10 if how == "reduced" else 4, gone: 4}
        assert looking.stream._losses.told == [QueueRange(queue, 4, 10) for queue in lost]
        broker.create_topic(topic, 2)
        looking.look()
        # A topic made anew is not read again; what a queue still has when it is back, is read.
        assert looking.reached.ends[gone] == (4 if how == "deleted" else 10)


@pytest.mark.parametrize("what", ["unreadable", "away", "read", "restarted"])
def test_other_queues_that_are_missing_are_not_lost(
    caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """Those that may not be read from, whose broker is away, that were read to their end, and those
    of which this process has seen nothing."""
    with EmbeddedBroker() as broker, looks(broker, "kept") as looking:
        if what == "unreadable":
            with Admin(broker.namesrv) as admin:
                admin.topics.update("kept", permission=2)
        elif what == "away":
            broker.stop_broker()
        else:
            while what == "read" and looking.look():
                pass
            take_away(broker, "kept", "deleted")
        if what == "restarted":
            looking.restart()
        for _ in range(3):
            assert looking.look(after_s=GONE_AFTER_S) is None
    (said,) = [record.message for record in caplog.records if "unread" in record.message]
    assert said == "queues that are away stay unread: kept broker-a:0, kept broker-a:1"


def test_the_cluster_is_asked_only_when_something_unread_is_missing(
    broker: BlockingEmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with looks(broker, "asked") as looking:
        monkeypatch.delattr(looking.stream._overview.__class__, "gone")
        while looking.look():
            pass
        take_away(broker, "asked", "deleted")
        assert looking.look() is None


def test_a_queue_that_comes_back_begins_anew_to_be_gone() -> None:
    queue, gone = MessageQueue("orders", "broker-a", 0), Gone()
    assert gone.for_good([queue], 100.0) == set()
    assert gone.for_good([], 105.0) == set()
    assert gone.for_good([queue], 109.0) == set()
    assert gone.for_good([queue], 100.0 + GONE_AFTER_S) == set()
    assert gone.for_good([queue], 109.0 + GONE_AFTER_S) == {queue}
