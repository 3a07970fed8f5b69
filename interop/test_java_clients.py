"""The Java clients of both lines, with both kinds of headers, against CometMQ and RocketMQ.

The short set runs everything with the newest client and JSON headers, and what is marked
`every_kind` with the others too; the full set runs everything with every kind.
"""

from __future__ import annotations

import itertools
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from interop import systems
from interop.java_bench import (
    Bench,
    by_queue,
    numbered,
    on_each_queue,
    sent_bodies,
    topic_is_known,
)
from interop.java_client import (
    KINDS,
    NEWEST,
    Admin,
    ClientError,
    JavaClient,
    Kind,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    Queue,
    bodies,
    body,
    wait_until,
)
from interop.rocketmq import HOST, ConfigValue, JsonObject
from interop.systems import Cluster, System

MIB = 1 << 20
BODY_BYTES_MAX = 4 * MIB
ZLIB, LZ4, ZSTD = 0x300, 0x100, 0x200
COMPRESSION_MASK = 0x700
READ_AND_WRITE = 6
ILLEGAL_MESSAGE = 13
NO_MESSAGE = 208
NO_ROUTE = 10005
NEVER = 99
PROMPT_S = 5.0
TRIMMED_S = 150.0
WIRE_TIMEOUT_S = 30.0

every_kind = pytest.mark.parametrize("bench", KINDS, indirect=True, ids=str)
newer_kinds = [kind for kind in KINDS if not kind.version.startswith("4.")]


@pytest.fixture(
    scope="module",
    params=[NEWEST, *(pytest.param(kind, marks=pytest.mark.full) for kind in KINDS[1:])],
    ids=str,
)
def bench(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    kind: Kind = request.param
    with JavaClient(kind, tmp_path_factory.mktemp(str(kind))) as client:
        yield Bench(client, cluster)


def incompressible(count: int) -> bytes:
    return random.Random(count).randbytes(count)


def place(result: JsonObject) -> tuple[int, int]:
    return result["queue"]["queueId"], result["queueOffset"]


# Sending


@every_kind
def test_a_synchronous_send_says_where_the_message_is(bench: Bench) -> None:
    topic = bench.topic("Sync")
    messages = numbered(topic, 12)

    results = bench.producer.send(*messages)

    assert {result["status"] for result in results} == {"SEND_OK"}
    assert sorted(map(place, results)) == sorted(itertools.product(range(4), range(3)))
    stored = {(m["queueId"], m["queueOffset"]): m for m in bench.reader.read_all(topic)}
    for result, message in zip(results, messages, strict=True):
        found = stored.pop(place(result))
        assert body(found) == message.body
        assert found["uniqKey"] == result["msgId"]
        assert found["msgId"] == result["offsetMsgId"]
        assert result["queue"]["brokerName"] == "broker-a"
    assert not stored


@every_kind
def test_asynchronous_sends_are_all_acknowledged_and_stored_once(bench: Bench) -> None:
    topic = bench.topic("Async")
    messages = numbered(topic, 200)

    results = bench.producer.send_async(*messages)

    stored = {m["uniqKey"]: body(m) for m in bench.reader.read_all(topic)}
    assert stored == {
        result["msgId"]: message.body for result, message in zip(results, messages, strict=True)
    }
    assert Counter(sent_bodies(messages)) == Counter(stored.values())
    offsets = [sorted(o for q, o in map(place, results) if q == queue) for queue in range(4)]
    assert all(found == list(range(len(found))) for found in offsets)


def test_one_way_sends_arrive_without_an_answer(bench: Bench) -> None:
    topic = bench.topic("OneWay")
    messages = numbered(topic, 50)

    bench.producer.send_oneway(*messages)

    wait_until(lambda: bench.reader.stored(topic) == len(messages), "all are stored")
    assert sorted(bodies(bench.reader.read_all(topic))) == sorted(sent_bodies(messages))


@every_kind
def test_a_batch_is_stored_as_single_messages_in_a_row(bench: Bench) -> None:
    topic = bench.topic("Batch")
    messages = [
        Message(topic, b"body-%d" % n, f"tag{n}", f"key{n}", n, {"number": str(n)})
        for n in range(10)
    ]

    result = bench.producer.send_batch(*messages)

    queue_id, first = place(result)
    stored = bench.reader.read_all(topic)
    assert [(m["queueId"], m["queueOffset"]) for m in stored] == [
        (queue_id, first + n) for n in range(10)
    ]
    assert bodies(stored) == sent_bodies(messages)
    assert [m["msgId"] for m in stored] == result["offsetMsgId"].split(",")
    assert [m["uniqKey"] for m in stored] == result["msgId"].split(",")
    for number, message in enumerate(stored):
        properties = message["properties"]
        assert properties["TAGS"] == f"tag{number}"
        assert properties["KEYS"] == f"key{number}"
        assert properties["number"] == str(number)
        assert message["flag"] == number


@every_kind
def test_a_large_body_travels_and_rests_compressed(bench: Bench) -> None:
    topic = bench.topic("Compressed")
    text = ("žluťoučký kůň 火星 🚀 " * 2000).encode()

    bench.producer.send(Message(topic, text), Message(topic, b"small"))

    small, large = sorted(bench.reader.read_all(topic), key=body)
    assert (body(small), body(large)) == (b"small", text)
    assert large["storeSize"] < len(text) // 10


@pytest.mark.parametrize("bench", newer_kinds[:1], indirect=True, ids=str)
@pytest.mark.parametrize(("name", "bits"), [("ZLIB", ZLIB), ("LZ4", LZ4), ("ZSTD", ZSTD)])
def test_a_newer_client_chooses_how_to_compress(bench: Bench, name: str, bits: int) -> None:
    topic = bench.topic(name)
    text = b"comet " * 4000

    with Producer(bench.client, bench.namesrv, topic, compressType=name) as producer:
        producer.send(Message(topic, text))

    (message,) = bench.reader.read_all(topic)
    assert body(message) == text
    assert message["sysFlag"] & COMPRESSION_MASK == bits
    assert message["storeSize"] < len(text) // 10


@pytest.fixture(scope="module")
def generous(bench: Bench) -> Iterator[Producer]:
    """A producer that leaves refusing large messages to the broker."""
    with Producer(
        bench.client,
        bench.namesrv,
        bench.name("generous"),
        maxMessageSize=8 * MIB,
        compressMsgBodyOverHowmuch=8 * MIB,
        sendMsgTimeout=10_000,
    ) as producer:
        yield producer


def test_a_body_of_four_mebibytes_is_the_largest(bench: Bench, generous: Producer) -> None:
    topic = bench.topic("Largest")
    largest = incompressible(BODY_BYTES_MAX)

    generous.send(Message(topic, largest))
    with pytest.raises(ClientError) as refused:
        generous.send(Message(topic, largest + b"!"))

    assert refused.value.type == "MQBrokerException"
    assert refused.value.code == ILLEGAL_MESSAGE
    assert str(BODY_BYTES_MAX) in refused.value.text
    assert bodies(bench.reader.read_all(topic)) == [largest]


def test_properties_over_32_kib_are_refused(bench: Bench, generous: Producer) -> None:
    topic = bench.topic("LongProperties")

    generous.send(Message(topic, b"long", properties={"long": "x" * 32_000}))
    with pytest.raises(ClientError) as refused:
        generous.send(Message(topic, b"too long", properties={"long": "x" * 32_768}))

    assert refused.value.code == ILLEGAL_MESSAGE
    assert bodies(bench.reader.read_all(topic)) == [b"long"]


@every_kind
def test_everything_a_message_carries_comes_back(bench: Bench) -> None:
    topic = bench.topic("RoundTrip")
    own = {"größe": "žluťoučký kůň 火星 🚀", "číslo": "42"}
    message = Message(topic, bytes(range(256)), "značka", "first second 第三", 305419896, own)

    before_ms = time.time_ns() // 1_000_000
    (result,) = bench.producer.send(message)
    after_ms = time.time_ns() // 1_000_000

    (stored,) = bench.reader.read_all(topic)
    assert body(stored) == message.body
    assert stored["flag"] == message.flag
    properties = stored["properties"]
    assert {name: properties[name] for name in own} == own
    assert properties["TAGS"] == "značka"
    assert properties["KEYS"] == "first second 第三"
    assert properties["CLUSTER"] == "interop"
    assert (result["regionId"], result["traceOn"]) == ("DefaultRegion", True)
    assert (properties["MSG_REGION"], properties["TRACE_ON"]) == ("DefaultRegion", "true")
    assert stored["storeHost"] == bench.cluster.broker.address
    assert stored["bornHost"].startswith(f"{HOST}:")
    assert before_ms <= stored["bornTimestamp"] <= stored["storeTimestamp"] <= after_ms
    assert stored["reconsumeTimes"] == 0


@every_kind
def test_a_first_send_creates_its_topic(bench: Bench) -> None:
    topic = bench.name("Created")

    bench.producer.send(*numbered(topic, 8))

    wait_until(lambda: topic_is_known(bench.admin, topic), "the topic has a route")
    assert bench.admin.route(topic) == [
        {
            "brokerName": "broker-a",
            "readQueueNums": 4,
            "writeQueueNums": 4,
            "perm": READ_AND_WRITE,
        }
    ]
    assert sorted(bodies(bench.reader.read_all(topic))) == sent_bodies(numbered(topic, 8))


@pytest.mark.full
def test_a_topic_that_nobody_made_is_refused_where_none_are_made(
    system: System, bench: Bench, tmp_path: Path
) -> None:
    with systems.running(system, tmp_path, {"autoCreateTopicEnable": False}) as strict:
        address = strict.namesrv.address
        with Producer(bench.client, address, bench.name("strict")) as producer:
            with pytest.raises(ClientError) as refused:
                producer.send(Message("Nowhere", b"lost"))
            with Admin(bench.client, address) as admin:
                admin.create_topic("Somewhere", strict.broker.address)
            producer.send(Message("Somewhere", b"kept"))

    assert refused.value.code == NO_ROUTE
    assert "No route info of this topic: Nowhere" in refused.value.text


# Push consumers


@every_kind
def test_a_push_consumer_gets_each_message_once_and_its_progress_is_kept(bench: Bench) -> None:
    topic, group = bench.topic("Push"), bench.name("group")
    first, second = numbered(topic, 100, "first"), numbered(topic, 20, "second")

    with bench.push(group, topic) as consumer:
        bench.producer.send(*first)
        received = consumer.wait_for(len(first))
        assert sorted(bodies(received)) == sorted(sent_bodies(first))
        assert {m["topic"] for m in received} == {topic}
        assert {m["reconsumeTimes"] for m in received} == {0}
        bench.wait_until_consumed(group, topic, len(first), consumer)
        consumer.shutdown()

    bench.producer.send(*second)
    with bench.push(group, topic) as consumer:
        assert sorted(bodies(consumer.wait_for(len(second)))) == sorted(sent_bodies(second))
        bench.wait_until_consumed(group, topic, len(first) + len(second), consumer)
        assert len(consumer.received()) == len(second)


def test_a_waiting_consumer_gets_a_message_when_it_comes(bench: Bench) -> None:
    topic, group = bench.topic("Waiting"), bench.name("group")
    with bench.push(group, topic) as consumer:
        consumer.wait_for_queues(4)
        for number in range(8):
            before_s = time.monotonic()
            bench.producer.send(Message(topic, b"%d" % number))
            consumer.wait_for(number + 1)
            assert time.monotonic() - before_s < PROMPT_S
    assert bodies(consumer.received()) == [b"%d" % number for number in range(8)]


@every_kind
def test_an_orderly_consumer_keeps_the_order_of_each_queue(bench: Bench) -> None:
    topic, group = bench.topic("Orderly", 2), bench.name("group")
    queues = bench.reader.queues(topic)
    messages = on_each_queue(queues, 30, "step")
    stubborn = Message(topic, b"again", properties={"fail": "2"}, queue=queues[0])
    last = Message(topic, b"last", queue=queues[0])

    with bench.push(group, topic, orderly=True, suspendCurrentQueueTimeMillis=10) as consumer:
        bench.producer.send(*messages, stubborn, last)
        received = by_queue(consumer.wait_for(len(messages) + 4))

    first_queue = [b"step-%d-%d" % (queues[0].id, n) for n in range(30)]
    assert received[queues[0].id] == [*first_queue, b"again", b"again", b"again", b"last"]
    assert received[queues[1].id] == [b"step-%d-%d" % (queues[1].id, n) for n in range(30)]


def test_orderly_consumers_share_queues_without_losing_the_order(bench: Bench) -> None:
    topic, group = bench.topic("OrderlyShared"), bench.name("group")
    queues = bench.reader.queues(topic)
    early, late = on_each_queue(queues, 10, "early"), on_each_queue(queues, 10, "late")

    with bench.push(group, topic, orderly=True) as first:
        bench.producer.send(*early)
        first.wait_for(len(early))
        with bench.push(group, topic, orderly=True) as second:
            first.wait_for_queues(2)
            held = {queue.id for queue in second.wait_for_queues(2)}
            bench.producer.send(*late)
            here = by_queue(second.wait_for(len(late) // 2))
            there = by_queue(first.wait_for(len(early) + len(late) // 2))

    assert here == {queue: [b"late-%d-%d" % (queue, n) for n in range(10)] for queue in held}
    assert there == {
        queue.id: [b"early-%d-%d" % (queue.id, n) for n in range(10)]
        + [b"late-%d-%d" % (queue.id, n) for n in range(10) if queue.id not in held]
        for queue in queues
    }


def test_each_broadcast_consumer_gets_everything(bench: Bench) -> None:
    topic, group = bench.topic("Broadcast"), bench.name("group")
    messages = sorted(sent_bodies(numbered(topic, 40)))
    with (
        bench.push(group, topic, messageModel="BROADCASTING") as one,
        bench.push(group, topic, messageModel="BROADCASTING") as other,
    ):
        bench.producer.send(*numbered(topic, 40))
        assert sorted(bodies(one.wait_for(40))) == messages
        assert sorted(bodies(other.wait_for(40))) == messages


@every_kind
def test_a_consumer_gets_only_the_tags_it_asked_for(bench: Bench) -> None:
    topic, group = bench.topic("Tags", 2), bench.name("group")
    # A group's progress passes what it does not want with the next message that it does want.
    tags = ["C", None, "AB", "B", "A"]
    messages = [
        Message(topic, f"{tag}-{number}".encode(), tag, queue=queue)
        for number, queue in zip(range(10), itertools.cycle(bench.reader.queues(topic)))
        for tag in tags
    ]

    bench.producer.send(*messages)
    with bench.push(group, topic, expression="A || B") as consumer:
        consumer.wait_for(20)
        bench.wait_until_consumed(group, topic, len(messages), consumer)
        received = consumer.received()

    assert sorted(bodies(received)) == sorted(m.body for m in messages if m.tags in {"A", "B"})


def test_tags_of_the_same_hash_are_told_apart(bench: Bench) -> None:
    topic, group = bench.topic("SameHash", 1), bench.name("group")
    bench.producer.send(
        *(Message(topic, tag.encode(), tag) for tag in ("BB", "Aa", "BB", "Aa", "BB", "Aa"))
    )
    with bench.push(group, topic, expression="Aa") as consumer:
        consumer.wait_for(3)
        bench.wait_until_consumed(group, topic, 6, consumer)
        assert bodies(consumer.received()) == [b"Aa"] * 3


@every_kind
def test_a_refused_message_comes_again_until_it_is_taken(bench: Bench) -> None:
    topic, group = bench.topic("Retry", 1), bench.name("group")
    refused = Message(topic, b"refused", "T", "K", 7, {"fail": "2", "own": "kůň"})

    with bench.push(group, topic) as consumer:
        (result,) = bench.producer.send(refused)
        bench.producer.send(Message(topic, b"taken"))
        deliveries = [
            message
            for message in consumer.wait_until(lambda messages: len(messages) >= 4)
            if body(message) == refused.body
        ]
        bench.wait_until_consumed(group, topic, 2, consumer)

    assert [message["reconsumeTimes"] for message in deliveries] == [0, 1, 2]
    assert {message["topic"] for message in deliveries} == {topic}
    assert {message["uniqKey"] for message in deliveries} == {result["msgId"]}
    for message in deliveries:
        assert message["properties"].items() >= {"TAGS": "T", "KEYS": "K", "own": "kůň"}.items()
        assert message["flag"] == refused.flag
    for message in deliveries[1:]:
        assert message["properties"]["RETRY_TOPIC"] == topic
        assert message["properties"]["ORIGIN_MESSAGE_ID"] == result["offsetMsgId"]


def test_a_message_refused_too_often_is_put_aside(bench: Bench) -> None:
    topic, group = bench.topic("DeadLetter", 1), bench.name("group")
    dead = Message(topic, b"dead", "T", "K", 7, {"fail": str(NEVER), "own": "kůň"})
    dead_letters = f"%DLQ%{group}"

    with bench.push(group, topic, maxReconsumeTimes=1) as consumer:
        (result,) = bench.producer.send(dead)
        wait_until(lambda: topic_is_known(bench.admin, dead_letters), "there are dead letters")
        wait_until(lambda: bench.reader.stored(dead_letters) == 1, "the message is one")
        deliveries = consumer.received()

    assert [message["reconsumeTimes"] for message in deliveries] == [0, 1]
    (stored,) = bench.reader.read_all(dead_letters)
    assert body(stored) == dead.body
    assert stored["uniqKey"] == result["msgId"]
    expected = {
        "TAGS": "T",
        "KEYS": "K",
        "own": "kůň",
        "RETRY_TOPIC": topic,
        "ORIGIN_MESSAGE_ID": result["offsetMsgId"],
    }
    assert stored["properties"].items() >= expected.items()
    assert stored["flag"] == dead.flag


# Consumers that share


def test_a_killed_consumer_leaves_its_queues_to_the_other(bench: Bench, tmp_path: Path) -> None:
    topic, group = bench.topic("Killed", 8), bench.name("group")
    queues = bench.reader.queues(topic)
    before, after = on_each_queue(queues, 5, "before"), on_each_queue(queues, 5, "after")

    with (
        bench.push(group, topic) as survivor,
        JavaClient(bench.kind, tmp_path / "victim") as other,
    ):
        victim = bench.push(group, topic, client=other)
        left = survivor.wait_for_queues(4)
        taken = victim.wait_for_queues(4)
        assert left | taken == set(queues)

        bench.producer.send(*before)
        victim.wait_for(len(before) // 2)
        survivor.wait_for(len(before) // 2)
        # From here on these are acknowledged, also if the consumer dies.
        bench.wait_until_consumed(group, topic, len(before), victim, survivor)
        victim.hold()
        bench.producer.send(*after)
        victim.wait_for(len(before) // 2 + 1)
        other.kill()
        survivor.wait_for_bodies(sent_bodies(after))
        assert survivor.wait_for_queues(8) == set(queues)

    of_survivor = Counter(bodies(survivor.received()))
    of_victim = Counter(bodies(victim.received()))
    assert of_survivor + of_victim >= Counter(sent_bodies(before + after))
    acknowledged = {message.body for message in before}
    assert all(count == 1 for text, count in of_survivor.items() if text in acknowledged)
    assert not acknowledged & of_survivor.keys() & of_victim.keys()
    assert all(of_survivor[message.body] == 1 for message in after)


def test_a_consumer_that_leaves_in_order_gives_nothing_twice(bench: Bench) -> None:
    topic, group = bench.topic("Leaving", 8), bench.name("group")
    queues = bench.reader.queues(topic)
    before, after = on_each_queue(queues, 5, "before"), on_each_queue(queues, 5, "after")

    with bench.push(group, topic) as staying:
        leaving = bench.push(group, topic)
        staying.wait_for_queues(4)
        leaving.wait_for_queues(4)
        assert len(bench.admin.members(group)) == 2
        bench.producer.send(*before)
        leaving.wait_for(len(before) // 2)
        bench.wait_until_consumed(group, topic, len(before), leaving, staying)
        leaving.shutdown()
        staying.wait_for_queues(8)
        assert len(bench.admin.members(group)) == 1
        bench.producer.send(*after)
        staying.wait_for_bodies(sent_bodies(after))
        bench.wait_until_consumed(group, topic, len(before) + len(after), staying)

    received = bodies(leaving.received() + staying.received())
    assert sorted(received) == sorted(sent_bodies(before + after))


# Where a new group begins


@pytest.mark.parametrize(
    "where", ["CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_TIMESTAMP"]
)
def test_a_new_group_begins_at_the_start_while_that_is_still_in_memory(
    bench: Bench, where: str
) -> None:
    """RocketMQ's rule: a young topic is read from its start, wherever the consumer would begin."""
    topic, group = bench.topic("Young"), bench.name("group")
    messages = numbered(topic, 20)
    bench.producer.send(*messages)
    with bench.push(group, topic, consumeFromWhere=where) as consumer:
        assert sorted(bodies(consumer.wait_for(20))) == sorted(sent_bodies(messages))


def test_a_broadcast_consumer_begins_where_it_says(bench: Bench) -> None:
    """The broker has no offset for these to begin with, so the client's choice counts at once."""
    topic = bench.topic("Begin", 1)
    assert_groups_begin_where_they_say(bench, bench.producer, topic, messageModel="BROADCASTING")


@pytest.fixture(scope="module")
def trimmed(system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that keeps little: it deletes every file of its log but the last one."""
    config: dict[str, ConfigValue] = {
        "mappedFileSizeCommitLog": MIB,
        "fileReservedTime": 0,
        "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
        "cleanResourceInterval": 1000,
    }
    with systems.running(system, tmp_path_factory.mktemp("trimmed"), config) as cluster:
        yield cluster


@pytest.mark.full  # RocketMQ deletes nothing in the first minute after its start.
@pytest.mark.timeout(300)
def test_a_new_group_begins_where_it_says_once_the_start_is_gone(
    bench: Bench, trimmed: Cluster
) -> None:
    at_trimmed = Bench(bench.client, trimmed)
    topic = at_trimmed.topic("Trimmed", 1)
    filler = [Message(topic, incompressible(MIB * 2 // 5)) for _ in range(5)]
    at_trimmed.producer.send(*filler)
    (queue,) = at_trimmed.reader.queues(topic)
    wait_until(
        lambda: at_trimmed.reader.bounds(topic)[queue]["min"] > 0, "the start is gone", TRIMMED_S
    )
    assert_groups_begin_where_they_say(at_trimmed, at_trimmed.producer, topic)


def assert_groups_begin_where_they_say(
    bench: Bench, producer: Producer, topic: str, **options: Any
) -> None:
    producer.send(*numbered(topic, 3, "old"))
    moment = next_second()
    producer.send(*numbered(topic, 3, "new"))
    (bounds,) = bench.reader.bounds(topic).values()
    kept = bodies(bench.reader.read_queue(bench.reader.queues(topic)[0], bounds["min"]))

    def begin(where: str, **more: Any) -> PushConsumer:
        where = f"CONSUME_FROM_{where}"
        return bench.push(bench.name("group"), topic, consumeFromWhere=where, **options, **more)

    with (
        begin("FIRST_OFFSET") as first,
        begin("LAST_OFFSET") as last,
        begin("TIMESTAMP", consumeTimestamp=moment.strftime("%Y%m%d%H%M%S")) as since,
    ):
        for consumer in (first, last, since):
            consumer.wait_for_queues(1)
        producer.send(Message(topic, b"live"))
        old, new = sent_bodies(numbered(topic, 3, "old")), sent_bodies(numbered(topic, 3, "new"))
        # The broker may go on deleting what was before, so not all that was kept must come.
        received = bodies(first.wait_for_bodies([*old, *new, b"live"]))
        assert Counter(received) <= Counter([*kept, b"live"])
        assert sorted(bodies(since.wait_for(4))) == sorted([*new, b"live"])
        assert bodies(last.wait_for(1)) == [b"live"]


def next_second() -> datetime:
    """Wait until a second begins: clients name a time to begin at in seconds."""
    time.sleep(1 - time.time() % 1)
    return datetime.now().replace(microsecond=0)


# Pull consumers


@every_kind
def test_a_pull_says_what_it_found_and_where_to_go_on(bench: Bench) -> None:
    topic, group = bench.topic("Pull", 1), bench.name("group")
    bench.producer.send(*(Message(topic, b"%d" % n, "odd" if n % 2 else "even") for n in range(10)))
    with PullConsumer(bench.client, bench.namesrv, group) as consumer:
        (queue,) = consumer.queues(topic)

        found = consumer.pull(queue, 2, count=3)
        assert outcome(found) == ("FOUND", 5, [b"2", b"3", b"4"])
        assert (found["minOffset"], found["maxOffset"]) == (0, 10)
        odd = consumer.pull(queue, 0, expression="odd")
        assert outcome(odd) == ("FOUND", 10, [b"1", b"3", b"5", b"7", b"9"])
        assert outcome(consumer.pull(queue, 0, expression="none")) == ("NO_MATCHED_MSG", 10, [])
        assert outcome(consumer.pull(queue, 10)) == ("NO_NEW_MSG", 10, [])
        assert outcome(consumer.pull(queue, 11)) == ("OFFSET_ILLEGAL", 10, [])

        assert consumer.committed(queue) in {0, -1}
        consumer.commit(queue, 7)
        wait_until(lambda: consumer.committed(queue) == 7, "the offset is committed")


def outcome(pulled: JsonObject) -> tuple[str, int, list[bytes]]:
    return pulled["status"], pulled["nextBeginOffset"], bodies(pulled["messages"])


def test_a_blocking_pull_ends_when_a_message_comes(bench: Bench) -> None:
    topic, group = bench.topic("Blocking", 1), bench.name("group")
    with PullConsumer(bench.client, bench.namesrv, group) as consumer:
        (queue,) = consumer.queues(topic)
        waiting = consumer.begin_blocking_pull(queue, 0)
        with pytest.raises(TimeoutError):
            waiting.result(1)
        bench.producer.send(Message(topic, b"at last"))
        assert outcome(waiting.result(PROMPT_S)) == ("FOUND", 1, [b"at last"])


@every_kind
def test_a_lite_pull_consumer_goes_on_where_it_committed(bench: Bench) -> None:
    topic, group = bench.topic("Lite"), bench.name("group")
    first, second = numbered(topic, 40, "first"), numbered(topic, 12, "second")
    bench.producer.send(*first)
    consumer = bench.lite(group)
    consumer.subscribe(topic)
    assert sorted(bodies(consumer.poll_until(40))) == sorted(sent_bodies(first))
    consumer.commit()
    for queue in consumer.queues(topic):
        assert consumer.committed(queue) == 10
    consumer.shutdown()

    bench.producer.send(*second)
    with bench.lite(group) as consumer:
        consumer.subscribe(topic)
        assert sorted(bodies(consumer.poll_until(12))) == sorted(sent_bodies(second))


def test_a_lite_pull_consumer_reads_assigned_queues_from_where_it_seeks(bench: Bench) -> None:
    topic, group = bench.topic("Seek"), bench.name("group")
    queues = bench.reader.queues(topic)
    bench.producer.send(*on_each_queue(queues, 10, "seek"))
    with bench.lite(group) as consumer:
        mine = consumer.queues(topic)[1:3]
        consumer.assign(mine)
        # Java's consumer hands out what a pull brought that was under way when it was told to seek:
        # with everything read, nothing is.
        assert len(consumer.poll_until(20)) == 20
        for queue, offset in zip(mine, (3, 7), strict=True):
            consumer.seek(queue, offset)
        received = by_queue(consumer.poll_until(10))
        assert received == {
            mine[0].id: [b"seek-%d-%d" % (mine[0].id, n) for n in range(3, 10)],
            mine[1].id: [b"seek-%d-%d" % (mine[1].id, n) for n in range(7, 10)],
        }
        consumer.seek(mine[0], 9)
        assert bodies(consumer.poll_until(1)) == [b"seek-%d-9" % mine[0].id]


# Finding messages and offsets


@every_kind
def test_messages_are_found_by_key_unique_key_and_offset_id(bench: Bench) -> None:
    topic, other = bench.topic("Query"), bench.topic("QueryOther")
    messages = [Message(topic, b"%d" % n, keys=f"all only-{n}") for n in range(6)]
    results = bench.producer.send(*messages)
    bench.producer.send(Message(other, b"elsewhere", keys="all"))

    wait_until(lambda: len(found_by_key(bench, topic, "all")) == 6, "six are indexed")
    assert sorted(found_by_key(bench, topic, "all")) == sorted(sent_bodies(messages))
    assert found_by_key(bench, topic, "only-4") == [b"4"]
    # The newest ones, and of these the oldest first.
    assert found_by_key(bench, topic, "all", count=2) == [b"4", b"5"]
    assert found_by_key(bench, topic, "no-such-key") == []
    assert found_by_key(bench, topic, "all", end_ms=1) == []
    for result, message in zip(results, messages, strict=True):
        for message_id in (result["msgId"], result["offsetMsgId"]):
            found = bench.reader.view(topic, message_id)
            assert body(found) == message.body
            assert (found["uniqKey"], found["msgId"]) == (result["msgId"], result["offsetMsgId"])
    with pytest.raises(ClientError):
        bench.reader.view(topic, "F" * 32)


def found_by_key(
    bench: Bench, topic: str, key: str, *, count: int = 32, end_ms: int = 2**62
) -> list[bytes]:
    try:
        return bodies(bench.reader.query(topic, key, count=count, end_ms=end_ms))
    except ClientError as error:
        if error.code != NO_MESSAGE:
            raise
        return []


@every_kind
def test_offsets_are_told_and_found_by_time(bench: Bench) -> None:
    topic = bench.topic("Offsets", 2)
    full, empty = bench.reader.queues(topic)
    for number in range(5):
        bench.producer.send(Message(topic, b"%d" % number, queue=full))
        time.sleep(0.005)  # So that no two share a store time.
    times = [message["storeTimestamp"] for message in bench.reader.read_queue(full)]
    assert len(set(times)) == 5

    bounds = bench.reader.bounds(topic)
    assert {name: bounds[full][name] for name in ("min", "max", "earliestMs")} == {
        "min": 0,
        "max": 5,
        "earliestMs": times[0],
    }
    assert (bounds[empty]["min"], bounds[empty]["max"]) == (0, 0)
    assert bounds[empty]["earliestMs"] == -1
    search = bench.reader.search_offset
    assert [search(full, at_ms) for at_ms in times] == [0, 1, 2, 3, 4]
    assert [search(full, at_ms + 1) for at_ms in times[:4]] == [1, 2, 3, 4]
    assert search(full, times[0] - 60_000) == 0
    assert search(full, times[-1] + 60_000) == 5
    assert search(empty, times[0]) == 0


# Going back


def send_in_two_parts(bench: Bench, topic: str) -> tuple[list[Message], list[Message], int]:
    """Messages before and after a moment, and the moment."""
    before, after = numbered(topic, 12, "before"), numbered(topic, 12, "after")
    bench.producer.send(*before)
    time.sleep(0.01)
    moment_ms = time.time_ns() // 1_000_000
    time.sleep(0.01)
    bench.producer.send(*after)
    return before, after, moment_ms


@pytest.mark.parametrize(
    "by", [Admin.reset_offset, Admin.reset_offset_offline], ids=["broker", "tool"]
)
def test_a_group_set_back_while_away_consumes_again_from_that_time(
    bench: Bench, by: Callable[[Admin, str, str, int], dict[Queue, int]]
) -> None:
    topic, group = bench.topic("ResetAway"), bench.name("group")
    before, after, moment_ms = send_in_two_parts(bench, topic)
    with bench.push(group, topic) as consumer:
        consumer.wait_for(24)
        bench.wait_until_consumed(group, topic, 24, consumer)
        consumer.shutdown()

    offsets = by(bench.admin, group, topic, moment_ms)

    assert {queue.id: offset for queue, offset in offsets.items()} == dict.fromkeys(range(4), 3)
    bench.wait_until_consumed(group, topic, 12)
    with bench.push(group, topic) as consumer:
        received = bodies(consumer.wait_for(12))
        bench.wait_until_consumed(group, topic, 24, consumer)
    assert sorted(received) == sorted(sent_bodies(after))
    assert len(before) == len(consumer.received())


def test_a_group_set_back_while_consuming_consumes_again_from_that_time(bench: Bench) -> None:
    topic, group = bench.topic("ResetThere"), bench.name("group")
    before, after, moment_ms = send_in_two_parts(bench, topic)
    with bench.push(group, topic) as consumer:
        consumer.wait_for(24)
        bench.wait_until_consumed(group, topic, 24, consumer)

        offsets = bench.admin.reset_offset(group, topic, moment_ms)

        assert {queue.id: offset for queue, offset in offsets.items()} == dict.fromkeys(range(4), 3)
        # A pull that waits at the broker learns of it when it ends; a message ends it.
        wake = on_each_queue(bench.reader.queues(topic), 1, "wake")
        bench.producer.send(*wake)
        again = Counter(sent_bodies(before + after + after + wake))
        received = consumer.wait_until(lambda messages: Counter(bodies(messages)) >= again)
        bench.wait_until_consumed(group, topic, 28, consumer)
    assert all(count == 1 for text, count in Counter(bodies(received)).items() if b"before" in text)


# The wire


@every_kind
def test_headers_go_over_the_wire_as_the_kind_says(bench: Bench) -> None:
    with socket.create_server((HOST, 0)) as listening:
        listening.settimeout(WIRE_TIMEOUT_S)
        address = f"{HOST}:{listening.getsockname()[1]}"
        with Producer(bench.client, address, bench.name("wire")) as producer:
            bench.client.begin(
                "producer.send", name=producer.name, messages=[Message("Any", b"any").json()]
            )
            connection, _ = listening.accept()
            with connection, connection.makefile("rb") as sent:
                connection.settimeout(WIRE_TIMEOUT_S)
                _, header_word = struct.unpack(">II", sent.read(8))
    assert header_word >> 24 == {"JSON": 0, "ROCKETMQ": 1}[bench.kind.headers]
