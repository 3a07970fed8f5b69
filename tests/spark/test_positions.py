"""Where places are in real queues, and which queues a read is about. Without Spark."""

import asyncio
import json
import threading
import time
from typing import Any

import pytest

from cometmq.client.admin.offsets import Offsets
from cometmq.client.blocking import Admin, Producer
from cometmq.client.names import Message
from cometmq.protocol.message_queue import MessageQueue
from cometmq.spark.errors import BadOption, ClusterAway
from cometmq.spark.topic import patience
from cometmq.spark.topic.offsets import QueueRange, to_json
from cometmq.spark.topic.options import read_options
from cometmq.spark.topic.overview import Overview
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .sending import options, send
from .test_ranges import MAGIC, SIZE, damage

TOPIC = "places"


@pytest.fixture(scope="module")
def moment_ms(cometmq_shared_broker: BlockingEmbeddedBroker) -> int:
    """A time before which queues 0 and 1 have three messages each, and after it two more each.
    Queue 2 has its three messages before it, queue 3 has none."""
    broker = cometmq_shared_broker
    broker.create_topic(TOPIC, 4)
    with Producer(broker.namesrv, group="places") as producer:
        send(producer, TOPIC, 9, queues=[0, 1, 2])
        time.sleep(0.02)  # Times are compared in milliseconds.
        moment = round(time.time() * 1000)
        time.sleep(0.02)
        send(producer, TOPIC, 4, queues=[0, 1])
    return moment


def places(
    broker: BlockingEmbeddedBroker, *, ending: bool = False, **more: object
) -> dict[str, int]:
    """Offsets of the topic's queues as the options say; where the read begins, or ends."""
    read = read_options(options(broker, topic=TOPIC, **more), streaming=False)
    with Overview(read) as overview:
        queues = overview.queues()
        found = overview.resolve(read.ending if ending else read.starting, queues)
    return {text.split(":")[1]: at for text, at in to_json(found)[TOPIC].items()}


def test_named_places(broker: BlockingEmbeddedBroker, moment_ms: int) -> None:
    assert places(broker) == {"0": 0, "1": 0, "2": 0, "3": 0}
    assert places(broker, ending=True) == {"0": 5, "1": 5, "2": 3, "3": 0}


def test_offsets_with_the_two_names_among_them(
    broker: BlockingEmbeddedBroker, moment_ms: int
) -> None:
    given = {TOPIC: {f"broker-a:{n}": at for n, at in enumerate([-2, 4, 1, 0])}}
    assert places(broker, startingOffsets=json.dumps(given)) == {"0": 0, "1": 4, "2": 1, "3": 0}
    given[TOPIC]["broker-a:0"] = -1
    assert places(broker, ending=True, endingOffsets=json.dumps(given))["0"] == 5


def test_a_groups_places_and_the_beginning_where_it_has_none(
    broker: BlockingEmbeddedBroker, moment_ms: int
) -> None:
    with Admin(broker.namesrv) as admin:
        admin.groups.create("readers")
        admin.offsets.commit("readers", {MessageQueue(TOPIC, "broker-a", 1): 2})
    found = places(broker, startingOffsets="group", consumerGroup="readers")
    assert found == {"0": 0, "1": 2, "2": 0, "3": 0}


def test_times(broker: BlockingEmbeddedBroker, moment_ms: int) -> None:
    late: dict[str, Any] = {"startingOffsetsByTimestampStrategy": "latest"}
    expected = {"0": 3, "1": 3, "2": 3, "3": 0}
    assert places(broker, startingTimestamp=moment_ms, **late) == expected
    by_topic = json.dumps({TOPIC: moment_ms})
    assert places(broker, startingOffsetsByTimestamp=by_topic, **late) == expected
    assert places(broker, ending=True, endingTimestamp=moment_ms) == expected
    mixed = {TOPIC: {f"broker-a:{n}": at for n, at in enumerate([0, moment_ms, 0, 0])}}
    found = places(broker, startingOffsetsByTimestamp=json.dumps(mixed), **late)
    assert found == {"0": 0, "1": 3, "2": 0, "3": 0}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({TOPIC: {"broker-a:0": 0}}, "does not name places broker-a:1, places broker-a:2"),
        ({TOPIC: {f"broker-a:{n}": 0 for n in range(5)}}, "names places broker-a:4, which is not"),
        (
            {TOPIC: {f"broker-a:{n}": 4 for n in range(4)}},
            "startingOffsets: 4 is behind the end of topic places, queue broker-a:2, which is 3",
        ),
    ],
)
def test_offsets_name_every_queue_and_no_other(
    broker: BlockingEmbeddedBroker, moment_ms: int, given: object, said: str
) -> None:
    with pytest.raises(BadOption) as refused:
        places(broker, startingOffsets=json.dumps(given))
    assert said in str(refused.value)


def test_a_time_after_a_queues_last_message_is_refused_unless_the_end_will_do(
    broker: BlockingEmbeddedBroker, moment_ms: int
) -> None:
    with pytest.raises(BadOption, match=r"queue broker-a:2 has no message since .*Strategy=latest"):
        places(broker, startingTimestamp=moment_ms, queues="2")


@pytest.mark.parametrize("option", ["startingOffsetsByTimestamp", "endingOffsetsByTimestamp"])
def test_times_of_topics_that_are_not_read_are_refused(
    broker: BlockingEmbeddedBroker, moment_ms: int, option: str
) -> None:
    times = json.dumps({TOPIC: 0, "placse": moment_ms})
    given = {option: times, "queues": "0,1,2"}
    with pytest.raises(BadOption, match=f"{option} names topic placse, which is not read"):
        places(broker, ending=option.startswith("ending"), **given)


def test_a_group_that_goes_on_while_it_is_asked_begins_at_the_end_that_was_seen(
    broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("moving", 1)
    queue = MessageQueue("moving", "broker-a", 0)
    given = {"topic": "moving", "startingOffsets": "group", "consumerGroup": "movers"}
    read = read_options(options(broker, **given), streaming=False)
    with Admin(broker.namesrv) as admin, Overview(read) as overview:
        admin.groups.create("movers")
        send(producer, "moving", 3, queues=[0])
        queues = overview.queues()
        send(producer, "moving", 2, queues=[0])
        admin.offsets.commit("movers", {queue: 5})
        assert overview.resolve(read.starting, queues) == {queue: 3}
        admin.offsets.commit("movers", {queue: 9})
        assert overview.resolve(read.starting, queues) == {queue: 9}


@pytest.mark.parametrize("names", [["broker-a"], ["broker-a", "broker-b"]], ids=["alone", "two"])
def test_a_broker_that_leaves_while_a_groups_places_are_asked_for_is_waited_for(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said by those that stay is not that the group has no offset at the others."""
    committed = Offsets.committed
    with EmbeddedBroker(brokers=len(names)) as broker:
        broker.create_topic("left", 1)
        queues = [MessageQueue("left", name, 0) for name in names]
        with Producer(broker.namesrv, group="places") as producer, Admin(broker.namesrv) as admin:
            for queue in queues:
                send(producer, "left", 5, queues=[0], broker=queue.broker_name)
            admin.groups.create("stayers")
            admin.offsets.commit("stayers", dict.fromkeys(queues, 4))
        given = {"topic": "left", "startingOffsets": "group", "consumerGroup": "stayers"}
        read = read_options(options(broker, **given), streaming=False)
        last = len(names) - 1
        back = threading.Timer(1.0, broker.start_broker, [last])

        async def asked_too_late(*asked: Any) -> dict[MessageQueue, int]:
            if not back.is_alive() and not back.finished.is_set():
                await asyncio.to_thread(broker.stop_broker, last)
                back.start()
            return await committed(*asked)

        with Overview(read) as overview:
            found = overview.queues()
            monkeypatch.setattr(Offsets, "committed", asked_too_late)
            assert overview.resolve(read.starting, found) == dict.fromkeys(queues, 4)
        back.join()


def found_queues(broker: BlockingEmbeddedBroker, **more: object) -> list[str]:
    read = read_options(options(broker, **more), streaming=False)
    with Overview(read) as overview:
        return [f"{queue.topic} {queue.queue_id}" for queue in overview.queues()]


def test_topics_by_name_by_pattern_and_by_queue(broker: BlockingEmbeddedBroker) -> None:
    for name in ("seek-a", "seek-b", "%DLQ%seek"):
        broker.create_topic(name, 2)
    expected = ["seek-a 0", "seek-a 1", "seek-b 0", "seek-b 1"]
    assert found_queues(broker, subscribe="seek-b, seek-a") == expected
    assert found_queues(broker, subscribePattern="seek-.*") == expected
    dead = ["%DLQ%seek 0", "%DLQ%seek 1"]
    assert found_queues(broker, subscribePattern="%DLQ%se.*") == dead
    everything = found_queues(broker, subscribePattern=".*|%DLQ%.*")
    assert set(everything) >= {*expected, *dead}
    assert not {queue for queue in everything if queue.startswith(("RMQ_SYS_", "TBW102"))}
    assert found_queues(broker, subscribePattern="nothing-.*") == []
    assigned = json.dumps({"seek-b": ["broker-a:1"], "seek-a": ["broker-a:0"]})
    assert found_queues(broker, assign=assigned) == ["seek-a 0", "seek-b 1"]


def test_queues_are_chosen_by_number_or_by_broker_and_number(
    broker: BlockingEmbeddedBroker,
) -> None:
    broker.create_topic("chosen", 4)
    assert found_queues(broker, topic="chosen", queues="3, broker-a:1") == ["chosen 1", "chosen 3"]
    with pytest.raises(BadOption, match="queues: there is no 7, broker-b:1"):
        found_queues(broker, topic="chosen", queues="broker-b:1, 3, 7")


def test_queues_that_cannot_be_read_are_left_out(broker: BlockingEmbeddedBroker) -> None:
    with Admin(broker.namesrv) as admin:
        admin.topics.create("narrow", read_queues=2, write_queues=4)
    assert found_queues(broker, topic="narrow") == ["narrow 0", "narrow 1"]


def test_what_is_not_there_is_refused(broker: BlockingEmbeddedBroker) -> None:
    with pytest.raises(BadOption, match="there is no topic nowhere: create it first"):
        found_queues(broker, topic="nowhere")
    broker.create_topic("small", 1)
    with pytest.raises(BadOption, match="assign: topic small has no broker-a:7"):
        found_queues(broker, assign='{"small": ["broker-a:7"]}')


ASSIGNED = '{"away": ["broker-b:0"]}'
WHERES = pytest.mark.parametrize(
    "where", [{"topic": "away"}, {"subscribePattern": "aw.*"}, {"assign": ASSIGNED}]
)


@WHERES
def test_brokers_that_have_signed_off_are_waited_for(where: dict[str, str]) -> None:
    with EmbeddedBroker(brokers=2) as broker:
        broker.create_topic("away", 1)
        broker.stop_broker(0)
        broker.stop_broker(1)
        back = threading.Timer(1.0, broker.start_broker, [1])
        back.start()
        assert found_queues(broker, **where) == ["away 0"]
        back.join()


@WHERES
def test_brokers_that_stay_away_are_told(
    where: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.3)
    with EmbeddedBroker() as broker:
        broker.create_topic("away", 1)
        if "assign" not in where:
            broker.stop_broker()
        with pytest.raises(ClusterAway, match=r"(no broker is|broker-b is not) registered now"):
            found_queues(broker, **where)


def test_the_size_of_messages_is_sampled(
    broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("sizes", 2)
    for queue, size in ((0, 100), (1, 3000)):
        send(producer, "sizes", 40, queues=[queue], message=lambda _: Message("sizes", b"x" * size))  # noqa: B023 - used at once
    with Overview(read_options(options(broker, topic="sizes"), streaming=False)) as overview:
        ranges = [QueueRange(queue, 0, 40) for queue in overview.queues()]
        sizes = {queue.queue_id: size for queue, size in overview.message_bytes(ranges).items()}
    assert 200 < sizes[0] < 400
    assert 3100 < sizes[1] < 3300


@pytest.mark.parametrize("field", [SIZE, MAGIC])
def test_the_size_of_messages_is_sampled_also_when_some_are_damaged(
    broker: BlockingEmbeddedBroker,
    producer: Producer,
    monkeypatch: pytest.MonkeyPatch,
    field: slice,
) -> None:
    """Whether they are lost or an error is for their task to say."""
    topic = f"damaged-sizes-{field.start}"
    broker.create_topic(topic, 1)
    send(producer, topic, 40, queues=[0], message=lambda _: Message(topic, b"x" * 1000))
    damage(monkeypatch, {4}, field)
    with Overview(read_options(options(broker, topic=topic), streaming=False)) as overview:
        (queue,) = overview.queues()
        assert 1100 < overview.message_bytes([QueueRange(queue, 0, 40)])[queue] < 1300
