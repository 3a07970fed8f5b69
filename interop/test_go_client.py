"""What only the Go client has: one-way and batch sends, orderly and pull consumers, admin calls."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

from interop.go_client import GoClient, make_group
from interop.line_client import QUEUES, LineClientError, Outgoing, Received, by_key
from interop.rocketmq import JsonObject
from interop.systems import Cluster

BODY_BYTES_MAX = 4 << 20


def numbered(topic: str, numbers: Iterable[int], sharding_key: str = "") -> list[Outgoing]:
    return [Outgoing(topic, b"%d" % number, sharding_key=sharding_key) for number in numbers]


def bodies(messages: Iterable[Received]) -> list[int]:
    return sorted(int(message.body) for message in messages)


def test_a_topic_is_made_by_the_first_send(go: GoClient, unique_name: str) -> None:
    assert unique_name not in go.topics()
    sent = go.send(*numbered(unique_name, range(2 * QUEUES)))
    queues = go.write_queues(unique_name)
    assert unique_name in go.topics()
    assert queues == [
        {"topic": unique_name, "brokerName": "broker-a", "queueId": number}
        for number in range(QUEUES)
    ]
    assert sorted((answer.queue_id, answer.queue_offset) for answer in sent) == [
        (queue, offset) for queue in range(QUEUES) for offset in range(2)
    ]


def test_one_way_messages_arrive_though_nobody_answers(go: GoClient, unique_name: str) -> None:
    messages = [
        *numbered(unique_name, range(10)),
        Outgoing(unique_name, b"7" * 5000, tag="标签", keys=["订单"], properties={"城市": "北京"}),
    ]
    assert go.send(*messages, mode="one_way") == []
    with go.push_consumer(unique_name, unique_name) as consumer:
        received = consumer.take(len(messages))
    assert sorted(message.body for message in received) == sorted(
        message.body for message in messages
    )
    (large,) = (message for message in received if len(message.body) == 5000)
    assert (large.tag, large.keys) == ("标签", ["订单"])
    assert large.properties["城市"] == "北京"


def test_a_batch_lies_in_one_queue_in_its_order(go: GoClient, unique_name: str) -> None:
    messages = [
        Outgoing(unique_name, b"%d" % n, tag=f"t{n}", keys=[f"键{n}"], properties={"序号": f"{n}"})
        for n in range(20)
    ]
    (sent,) = go.send(*messages, mode="batch")
    with go.push_consumer(unique_name, unique_name) as consumer:
        received = sorted(consumer.take(len(messages)), key=lambda message: message.place)
    assert sent.ok
    assert [message.body for message in received] == [message.body for message in messages]
    assert [message.place for message in received] == [
        (sent.queue_id, sent.queue_offset + n) for n in range(20)
    ]
    # The answer to a batch names every message.
    assert sent.offset_msg_id.split(",") == [message.offset_msg_id for message in received]
    for message, arrived in zip(messages, received, strict=True):
        assert (arrived.tag, arrived.keys) == (message.tag, message.keys)
        assert arrived.properties["序号"] == message.properties["序号"]


def test_a_message_over_the_limit_is_refused_with_a_code(go: GoClient, unique_name: str) -> None:
    reason = "CODE: 13, DESC: the message is illegal, .*4194304"
    with pytest.raises(LineClientError, match=reason):
        go.send(Outgoing(unique_name, os.urandom(BODY_BYTES_MAX + 1)))


def test_an_orderly_consumer_keeps_the_order_of_every_key(go: GoClient, unique_name: str) -> None:
    keys = [f"客户-{number}" for number in range(12)]
    for number in range(10):
        go.send(
            *(Outgoing(unique_name, b"%d" % number, keys=[key], sharding_key=key) for key in keys)
        )
    with go.push_consumer(unique_name, unique_name, orderly=True) as consumer:
        received = consumer.take(len(keys) * 10)
    found = by_key(received)
    assert found.keys() == set(keys)
    for of_key in found.values():
        assert [int(message.body) for message in of_key] == list(range(10))
        assert len({message.queue_id for message in of_key}) == 1
    assert len({message.queue_id for message in received}) > 1
    for queue in range(QUEUES):
        offsets = [message.queue_offset for message in received if message.queue_id == queue]
        assert offsets == list(range(len(offsets)))


def test_a_message_refused_in_order_holds_its_queue_up(go: GoClient, unique_name: str) -> None:
    go.send(*numbered(unique_name, range(5), sharding_key="one queue"))
    with go.push_consumer(unique_name, unique_name, orderly=True, failures=2) as consumer:
        received = consumer.take(15)
    assert [(int(message.body), message.reconsume_times) for message in received] == [
        (number, times) for number in range(5) for times in range(3)
    ]
    # It is the same message all the time: nothing went back to the broker.
    assert len({message.place for message in received}) == 5


@pytest.mark.full
def test_a_stopped_orderly_consumer_gives_its_locks_back(go: GoClient, topic: str) -> None:
    with go.push_consumer(topic, topic, orderly=True) as consumer:
        for number in (1, 2):
            # Twice, for the reason that `test_a_group_goes_on_where_it_stopped` tells.
            go.send(*numbered(topic, range(QUEUES)))
            consumer.take(number * QUEUES)
        consumer.until_committed()
    go.send(*numbered(topic, range(100, 100 + QUEUES)))
    with go.push_consumer(topic, topic, orderly=True) as consumer:
        # A lock that nobody gives back lasts a minute.
        received = consumer.take(QUEUES, timeout_s=25)
    assert bodies(received) == list(range(100, 100 + QUEUES))


def test_a_message_refused_too_often_becomes_a_dead_letter(go: GoClient, topic: str) -> None:
    make_group(go, go, topic, topic)
    (sent,) = go.send(Outgoing(topic, "tödlich".encode(), keys=["key"]))
    with go.push_consumer(topic, topic, failures=99, reconsumes_max=1) as consumer:
        deliveries = consumer.take(2)
        with go.push_consumer(f"%DLQ%{topic}", f"{topic}-reader") as reader:
            (dead,) = reader.take(1)
    assert [message.reconsume_times for message in deliveries] == [0, 1]
    assert (dead.topic, dead.queue_id, dead.queue_offset) == (f"%DLQ%{topic}", 0, 0)
    assert dead.body == "tödlich".encode()
    assert dead.keys == ["key"]
    assert dead.msg_id == sent.msg_id
    assert dead.reconsume_times == 2
    assert dead.properties["RETRY_TOPIC"] == topic
    assert dead.properties["ORIGIN_MESSAGE_ID"] == sent.offset_msg_id


def test_a_pull_consumer_goes_on_from_its_commit(go: GoClient, topic: str) -> None:
    # No queue runs out: the broker would hold the pull of an empty one for 20 s.
    go.send(*numbered(topic, range(20 * QUEUES)))
    committed: dict[int, int] = {}
    with go.pull_consumer(topic, topic) as consumer:
        while len(committed) < QUEUES:
            (message,) = consumer.poll()
            assert message.queue_offset == committed.get(message.queue_id, 0)
            committed[message.queue_id] = message.queue_offset + 1
        # Leaving commits once more: of a group's first commits the real broker may lose some.
        consumer.commit()
    found: dict[int, int] = {}
    with go.pull_consumer(topic, topic) as consumer:
        while not (pulled := consumer.pull(2)).messages:
            assert pulled.status == "NO_NEW_MSG"  # That was the retry topic.
        while found.keys() != committed.keys():
            for message in consumer.poll():
                found.setdefault(message.queue_id, message.queue_offset)
    assert found == committed
    first = committed[pulled.messages[0].queue_id]
    assert [message.queue_offset for message in pulled.messages] == [first, first + 1]
    assert (pulled.status, pulled.next_offset) == ("FOUND", first + 2)
    assert (pulled.min_offset, pulled.max_offset) == (0, 20)


def test_a_pull_by_tag_skips_the_others(go: GoClient, unique_name: str) -> None:
    for tag in ("red", "green", "red"):
        go.send(*(Outgoing(unique_name, tag.encode(), tag=tag) for _ in range(QUEUES)))
    with go.pull_consumer(unique_name, unique_name, expression="red") as consumer:
        for queue in go.write_queues(unique_name):
            pulled = consumer.pull_from(queue, offset=0, count=32)
            assert [message.body for message in pulled.messages] == [b"red", b"red"]
            assert [message.queue_offset for message in pulled.messages] == [0, 2]
            assert pulled.next_offset == 3


def test_a_pull_from_a_place_says_what_is_there(go: GoClient, unique_name: str) -> None:
    (sent, *_) = go.send(*numbered(unique_name, range(5), sharding_key="one queue"))
    (queue,) = (q for q in go.write_queues(unique_name) if q["queueId"] == sent.queue_id)
    with go.pull_consumer(unique_name, unique_name) as consumer:
        middle = consumer.pull_from(queue, offset=1, count=3)
        beyond = consumer.pull_from(queue, offset=99, count=3)
    assert [int(message.body) for message in middle.messages] == [1, 2, 3]
    assert (middle.status, middle.next_offset) == ("FOUND", 4)
    assert (middle.min_offset, middle.max_offset) == (0, 5)
    assert (beyond.status, beyond.messages, beyond.next_offset) == ("OFFSET_ILLEGAL", [], 5)


def test_polling_brings_what_was_pulled_in_the_background(go: GoClient, unique_name: str) -> None:
    # These pulls ask for 0 messages at a time, as the library does by default; a broker gives 1.
    go.send(*numbered(unique_name, range(3 * QUEUES)))
    received: list[Received] = []
    with go.pull_consumer(unique_name, unique_name) as consumer:
        while len(received) < 3 * QUEUES:
            batch = consumer.poll()
            assert len(batch) == 1
            received += batch
    assert bodies(received) == list(range(3 * QUEUES))


def test_topics_are_created_and_deleted(go: GoClient, cluster: Cluster, unique_name: str) -> None:
    broker = cluster.broker.address
    go.create_topic(unique_name, broker, read_queues=3, write_queues=2)
    assert [queue["queueId"] for queue in go.write_queues(unique_name)] == [0, 1]
    go.send(*numbered(unique_name, range(4)))
    with go.push_consumer(unique_name, unique_name) as consumer:
        assert {message.queue_id for message in consumer.take(4)} == {0, 1}
    assert unique_name in go.topics()
    go.delete_topic(unique_name, broker)
    assert unique_name not in go.topics()


def test_a_group_exists_with_its_first_consumer(
    go: GoClient, cluster: Cluster, unique_name: str
) -> None:
    broker = cluster.broker.address
    go.send(*numbered(unique_name, [1]))
    assert unique_name not in go.groups(broker)
    make_group(go, go, unique_name, unique_name)
    group: JsonObject = go.groups(broker)[unique_name]
    assert group["GroupName"] == unique_name
    assert (group["RetryMaxTimes"], group["RetryQueueNums"]) == (16, 1)
    assert group["ConsumeEnable"] is True
    assert group["NotifyConsumerIdsChangedEnable"] is True
    assert f"%RETRY%{unique_name}" in go.topics()
