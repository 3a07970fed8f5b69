"""The Python client against CometMQ and the real RocketMQ, by the same tests.

What needs a broker of its own (restarts, TLS, access control) stands at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import itertools
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cometmq.client import (
    AnswerTimedOut,
    BadSubscription,
    ConsumeFrom,
    Decision,
    IllegalArgument,
    Later,
    Message,
    MessageIllegal,
    MessageQueue,
    Model,
    NotFound,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendResult,
    SendStatus,
    Sql,
    TooManyInFlight,
    by_hash,
    by_machine_room,
)
from cometmq.client.producer.packing import Compression
from cometmq.protocol.flags import COMPRESSED
from cometmq.protocol.message_id import parse_offset_id, parse_unique_id
from interop import systems
from interop.message_kinds import Call, assert_order_was_kept, taken
from interop.python_client import (
    CONFIG,
    QUICK,
    Delivery,
    Inbox,
    PythonBench,
    bodies,
    by_queue,
    now_ms,
    numbered,
    on_loop,
    poll_until,
    until,
)
from interop.rocketmq import HOST
from interop.systems import Cluster, System

MIB = 1 << 20
BODY_BYTES_MAX = 4 * MIB
COMPRESSION_MASK = 0x700
CODECS: dict[Compression, int] = {"zlib": 0x300, "lz4": 0x100, "zstd": 0x200}
NEVER = "99"
PROMPT_S = 5.0
LATE_MS_MAX = 300
TIMER_TICK_MS = 100
OTHER_ROOM = "elsewhere"
TEXT = "žluťoučký kůň 火星 🚀"


@pytest.fixture(scope="module")
def shared(system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with systems.running(system, tmp_path_factory.mktemp("python"), CONFIG) as cluster:
        yield cluster


@pytest.fixture
def bench(shared: Cluster) -> Iterator[PythonBench]:
    with PythonBench(shared) as started:
        yield started


def incompressible(count: int) -> bytes:
    return random.Random(count).randbytes(count)


def place(where: SendResult | ReceivedMessage) -> tuple[int, int]:
    return where.queue.queue_id, where.queue_offset


# Sending


@on_loop
async def test_a_send_says_where_the_message_is(bench: PythonBench) -> None:
    topic = await bench.topic("Send")
    messages = numbered(topic, 12)

    results = await bench.send(*messages)

    assert {result.status for result in results} == {SendStatus.OK}
    assert sorted(map(place, results)) == sorted(itertools.product(range(4), range(3)))
    stored = {place(message): message for message in await bench.read_all(topic)}
    for result, message in zip(results, messages, strict=True):
        found = stored.pop(place(result))
        assert found.body == message.body
        assert found.message_id == result.message_id
        assert found.offset_message_id == result.offset_message_id
        assert result.queue == MessageQueue(topic, "broker-a", result.queue.queue_id)
    assert not stored


@on_loop
async def test_ids_tell_who_made_a_message_and_where_it_is(bench: PythonBench) -> None:
    topic = await bench.topic("Ids", 1)
    before_ms = now_ms()
    results = await bench.send(*numbered(topic, 3))

    made = [parse_unique_id(result.message_id, now_ms()) for result in results]
    assert {parts.pid for parts in made} == {os.getpid() & 0xFFFF}
    assert all(before_ms <= parts.created_ms <= now_ms() for parts in made)
    assert len({result.message_id for result in results}) == 3
    kept = [parse_offset_id(result.offset_message_id) for result in results]
    assert {str(host) for host, _ in kept} == {bench.cluster.broker.address}
    stored = await bench.read_all(topic)
    assert [offset for _, offset in kept] == [message.physical_offset for message in stored]


@on_loop
async def test_many_sends_in_flight_are_all_stored_once(bench: PythonBench) -> None:
    topic = await bench.topic("InFlight")
    messages = numbered(topic, 1000)
    called: list[asyncio.Future[SendResult]] = []
    async with Producer(
        bench.where, group=bench.name("producer"), max_in_flight=200, timeout_s=20.0
    ) as producer:
        futures = []
        for message in messages:
            await producer.ready()
            futures.append(producer.send_nowait(message, callback=called.append))
        assert producer.in_flight > 1
        results = await asyncio.gather(*futures)
        assert producer.in_flight == 0

    assert {id(future) for future in called} == {id(future) for future in futures}
    stored = {message.message_id: message for message in await bench.read_all(topic)}
    assert {name: message.body for name, message in stored.items()} == {
        result.message_id: message.body for result, message in zip(results, messages, strict=True)
    }
    assert all(place(stored[result.message_id]) == place(result) for result in results)
    assert await bench.stored(topic) == len(messages)


@on_loop
async def test_more_in_flight_than_allowed_is_refused_at_once(bench: PythonBench) -> None:
    topic = await bench.topic("Bounded")
    async with Producer(bench.where, group=bench.name("producer"), max_in_flight=5) as producer:
        futures = [producer.send_nowait(message) for message in numbered(topic, 5)]
        with pytest.raises(TooManyInFlight):
            producer.send_nowait(Message(topic, b"one too many"))
        await asyncio.gather(*futures)
        await producer.send(Message(topic, b"later"))
    assert sorted(bodies(await bench.read_all(topic))) == sorted(
        [*bodies(numbered(topic, 5)), b"later"]
    )


@on_loop
async def test_one_way_messages_arrive_without_an_answer(bench: PythonBench) -> None:
    topic = await bench.topic("OneWay")
    messages = numbered(topic, 50)

    for message in messages:
        await bench.producer.send_oneway(message)

    async def all_are_stored() -> bool:
        return await bench.stored(topic) == len(messages)

    await until(all_are_stored, "all are stored")
    assert sorted(bodies(await bench.read_all(topic))) == sorted(bodies(messages))


@on_loop
async def test_a_batch_is_stored_as_single_messages_in_a_row(bench: PythonBench) -> None:
    topic = await bench.topic("Batch")
    messages = [
        Message(topic, b"%d" % n, f"tag{n}", f"key{n}", {"number": str(n)}, flag=n)
        for n in range(10)
    ]

    results = await bench.producer.send_batch(messages)

    stored = await bench.read_all(topic)
    queue, first = place(results[0])
    assert [place(message) for message in stored] == [(queue, first + n) for n in range(10)]
    assert [place(message) for message in stored] == [place(result) for result in results]
    assert [m.message_id for m in stored] == [result.message_id for result in results]
    assert [m.offset_message_id for m in stored] == [r.offset_message_id for r in results]
    for number, message in enumerate(stored):
        assert message.body == b"%d" % number
        assert (message.tags, message.keys, message.flag) == (
            f"tag{number}",
            [f"key{number}"],
            number,
        )
        assert message.properties["number"] == str(number)


@on_loop
async def test_messages_that_linger_travel_together(bench: PythonBench) -> None:
    topic = await bench.topic("Linger")
    messages = numbered(topic, 500)
    async with Producer(
        bench.where, group=bench.name("producer"), linger_s=0.02, timeout_s=10.0
    ) as producer:
        results = await asyncio.gather(*map(producer.send_nowait, messages))

    stored = {place(message): message for message in await bench.read_all(topic)}
    assert len(stored) == len(messages)
    for result, message in zip(results, messages, strict=True):
        assert stored[place(result)].body == message.body
        assert stored[place(result)].message_id == result.message_id
    # One by one they would go round the queues; a batch goes to one of them.
    changes = sum(a.queue != b.queue for a, b in itertools.pairwise(results))
    assert changes < len(messages) // 50


@on_loop
async def test_messages_that_linger_keep_the_order_of_their_keys(bench: PythonBench) -> None:
    topic = await bench.topic("LingerKeys")
    keys = [f"key-{number}" for number in range(40)]

    async def send_steps(producer: Producer, key: str) -> None:
        # RocketMQ stores what is in flight at once in any order, so each step waits for the last.
        for step in range(10):
            await producer.send(Message(topic, f"{key} {step}".encode(), sharding_key=key))

    async with Producer(
        bench.where, group=bench.name("producer"), linger_s=0.005, timeout_s=10.0
    ) as producer:
        await asyncio.gather(*(send_steps(producer, key) for key in keys))

    stored = await bench.read_all(topic)
    queues = await bench.queues(topic)
    for key in keys:
        of_key = [message for message in stored if message.sharding_key == key]
        assert bodies(of_key) == [f"{key} {step}".encode() for step in range(10)]
        assert {message.queue for message in of_key} == {by_hash(queues, None, key)}


@pytest.mark.parametrize("codec", CODECS)
@on_loop
async def test_a_large_body_travels_and_rests_compressed(
    bench: PythonBench, codec: Compression
) -> None:
    topic = await bench.topic("Compressed", 1)
    text = (TEXT * 2000).encode()
    async with Producer(
        bench.where, group=bench.name("producer"), compression=codec, timeout_s=10.0
    ) as producer:
        await producer.send(Message(topic, text))
        await producer.send(Message(topic, b"small"))

    async with bench.push(bench.name("group"), topic) as inbox:
        received = {d.body: d.message for d in await inbox.wait_for(2)}
    large, small = received[text], received[b"small"]
    assert large.sys_flag & COMPRESSION_MASK == CODECS[codec]
    assert len(large.stored_body) < len(text) // 10
    assert not small.sys_flag & COMPRESSED


@on_loop
async def test_a_body_of_four_mebibytes_is_the_largest(bench: PythonBench) -> None:
    topic = await bench.topic("Largest", 1)
    largest = incompressible(BODY_BYTES_MAX)

    with pytest.raises(IllegalArgument, match=str(BODY_BYTES_MAX)):
        await bench.producer.send(Message(topic, largest + b"!"))
    async with Producer(
        bench.where, group=bench.name("generous"), max_message_bytes=8 * MIB, timeout_s=20.0,
        compression=None,
    ) as generous:  # fmt: skip
        await generous.send(Message(topic, largest))
        with pytest.raises(MessageIllegal, match=str(BODY_BYTES_MAX)):
            await generous.send(Message(topic, largest + b"!"))

    assert bodies(await bench.read_all(topic)) == [largest]


@on_loop
async def test_what_no_broker_takes_is_refused_before_it_is_sent(bench: PythonBench) -> None:
    topic = await bench.topic("Refused", 1)
    now = dt.datetime.now(dt.UTC)
    for wrong in (
        Message(topic, b""),
        Message("no/topic", b"body"),
        Message(topic, b"body", properties={"long": "x" * 33_000}),
        Message(topic, b"body", properties={"UNIQ_KEY": "mine"}),
        Message(topic, b"body", properties={"a": "\x01"}),
        Message(topic, b"body", delay_level=19),
        Message(topic, b"body", delay_level=1, deliver_at=now),
    ):
        with pytest.raises(IllegalArgument):
            await bench.producer.send(wrong)
    await bench.producer.send(Message(topic, b"long", properties={"long": "x" * 32_000}))
    assert bodies(await bench.read_all(topic)) == [b"long"]


@on_loop
async def test_everything_a_message_carries_comes_back(bench: PythonBench) -> None:
    topic = await bench.topic("RoundTrip", 1)
    own = {"größe": TEXT, "číslo": "42"}
    keys = ["first", "第三"]
    before_ms = now_ms()
    result = await bench.producer.send(
        Message(topic, bytes(range(256)), "značka", keys, own, flag=-7)
    )

    async with bench.push(bench.name("group"), topic) as inbox:
        ((message, times, _),) = await inbox.wait_for(1)
    assert (message.topic, message.body) == (topic, bytes(range(256)))
    assert (message.tags, message.keys, message.flag) == ("značka", keys, -7)
    assert own.items() <= message.properties.items()
    assert message.properties["CLUSTER"] == "interop"
    assert (message.message_id, message.offset_message_id) == (
        result.message_id,
        result.offset_message_id,
    )
    assert str(message.store_host) == bench.cluster.broker.address
    assert str(message.born_host).startswith(f"{HOST}:")
    assert before_ms <= message.born_timestamp <= message.store_timestamp <= now_ms()
    assert times == 0


@on_loop
async def test_a_first_send_creates_its_topic(bench: PythonBench) -> None:
    topic = bench.name("Created")

    results = await bench.send(*numbered(topic, 8))

    assert {result.queue.queue_id for result in results} == set(range(4))
    await until(lambda: bench.is_known(topic), "the topic has a route")
    assert sorted(bodies(await bench.read_all(topic))) == bodies(numbered(topic, 8))


# Which queue


@on_loop
async def test_messages_of_one_key_stay_together_and_in_order(bench: PythonBench) -> None:
    topic = await bench.topic("Keys")
    keys = [f"order-{number}" for number in range(10)]
    await bench.send(
        *(
            Message(topic, f"{key} {step}".encode(), sharding_key=key)
            for step in range(5)
            for key in keys
        )
    )

    stored = await bench.read_all(topic)
    queues = await bench.queues(topic)
    for key in keys:
        of_key = [message for message in stored if message.sharding_key == key]
        assert bodies(of_key) == [f"{key} {step}".encode() for step in range(5)]
        assert {message.queue for message in of_key} == {by_hash(queues, None, key)}
    assert len({message.queue for message in stored}) > 1


def by_length(queues: Sequence[MessageQueue], _: object, key: str) -> MessageQueue:
    return queues[len(key)]


@on_loop
async def test_a_sender_may_choose_the_queue(bench: PythonBench) -> None:
    topic = await bench.topic("Chosen")
    queues = await bench.queues(topic)
    send = bench.producer.send

    named = await send(Message(topic, b"named"), queue=queues[2])
    hashed = await send(Message(topic, b"hashed"), selector=by_hash, key=4711)
    own = await send(Message(topic, b"own"), selector=by_length, key="123")
    with pytest.raises(ValueError, match=OTHER_ROOM):
        await send(Message(topic, b"nowhere"), selector=by_machine_room({OTHER_ROOM}))

    assert (named.queue, hashed.queue, own.queue) == (queues[2], queues[4711 % 4], queues[3])
    stored = {message.body: message.queue for message in await bench.read_all(topic)}
    assert stored == {b"named": named.queue, b"hashed": hashed.queue, b"own": own.queue}


# Delays


@on_loop
async def test_delayed_messages_come_in_time(bench: PythonBench) -> None:
    topic = await bench.topic("Delayed", 1)
    async with bench.push(bench.name("group"), topic) as inbox:
        await inbox.wait_for_queues(topic, 1)
        moment = dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=1750)
        await bench.send(
            *(Message(topic, b"level-%d" % n, "T", delay_level=5) for n in range(4)),
            *(
                Message(topic, b"after-%d" % n, delay=dt.timedelta(milliseconds=1500))
                for n in range(4)
            ),
            *(Message(topic, b"moment-%d" % n, deliver_at=moment) for n in range(4)),
        )
        received = await inbox.wait_for(12)

    assert sorted(bodies(received)) == sorted(
        b"%b-%d" % (way, n) for way in (b"level", b"after", b"moment") for n in range(4)
    )
    late_ms = [lateness_ms(delivery, moment) for delivery in received]
    # RocketMQ's timers go by ticks and may be one too early.
    assert min(late_ms) >= -TIMER_TICK_MS
    assert statistics.median(late_ms) < LATE_MS_MAX
    of_level = [d.message for d in received if d.body.startswith(b"level")]
    assert bodies(of_level) == [b"level-%d" % n for n in range(4)]
    assert {m.topic for m in of_level} == {topic}
    assert {m.tags for m in of_level} == {"T"}
    assert {m.properties["DELAY"] for m in of_level} == {"5"}


def lateness_ms(delivery: Delivery, moment: dt.datetime) -> int:
    born_ms = delivery.message.born_timestamp
    way, _ = delivery.body.split(b"-")
    due_ms = {
        b"level": born_ms + 2000,
        b"after": born_ms + 1500,
        b"moment": round(moment.timestamp() * 1000),
    }
    return delivery.at_ms - due_ms[way]


@on_loop
async def test_a_delayed_message_is_taken_back(bench: PythonBench) -> None:
    topic = await bench.topic("Recall", 1)
    async with bench.push(bench.name("group"), topic) as inbox:
        sent = await bench.send(
            *(Message(topic, b"%d" % n, delay=dt.timedelta(seconds=2)) for n in range(4))
        )
        recalled = await bench.producer.recall(topic, sent[1].recall_handle)
        await bench.send(Message(topic, b"last", delay=dt.timedelta(seconds=3)))
        received = await inbox.wait_for_bodies([b"last"])

    assert recalled == sent[1].message_id
    assert sorted(bodies(received)) == [b"0", b"2", b"3", b"last"]


# Transactions


async def refuse_to_say(message: ReceivedMessage) -> NoReturn:
    raise AssertionError(f"asked about {message.body!r}, which was decided")


@on_loop
async def test_transactions_end_as_their_sender_decides(bench: PythonBench) -> None:
    topic = await bench.topic("Decided", 1)
    ways = [Decision.COMMIT, Decision.ROLLBACK] * 5
    seen: list[str] = []

    async with (
        bench.transactions(refuse_to_say) as producer,
        bench.push(bench.name("group"), topic) as inbox,
    ):
        for number, way in enumerate(ways):

            async def work(message: Message, name: str, way: Decision = way) -> Decision:
                assert message.body not in inbox.bodies  # It is held back until we say so.
                seen.append(name)
                return way

            body = b"%d-%b" % (number, way.name.encode())
            result = await producer.send_in_transaction(Message(topic, body, "T", "K"), work)
            assert (result.decision, result.sent.message_id) == (way, seen[-1])
        await inbox.wait_for(5)
        # Everything decided before this has been delivered when it is.
        await bench.send(Message(topic, b"last"))
        received = {d.body: d.message for d in await inbox.wait_for_bodies([b"last"])}

    assert len(inbox.deliveries) == len(received)
    assert received.keys() == {*(b"%d-COMMIT" % n for n in range(0, 10, 2)), b"last"}
    for number in range(0, 10, 2):
        message = received[b"%d-COMMIT" % number]
        assert message.message_id == message.transaction_id == seen[number]
        assert (message.topic, message.tags, message.keys) == (topic, "T", ["K"])


@on_loop
async def test_a_sender_that_does_not_know_is_asked_until_it_does(bench: PythonBench) -> None:
    topic = await bench.topic("Asked", 1)
    answers = {
        b"commit": [Decision.COMMIT],
        b"rollback": [Decision.ROLLBACK],
        b"later": [Decision.UNKNOWN, Decision.COMMIT],
        b"raised": [Decision.COMMIT],
    }
    asked: list[ReceivedMessage] = []

    def check(message: ReceivedMessage) -> Decision:
        """A plain function: it is called in a thread."""
        asked.append(message)
        return answers[message.body][len(of_body(asked, message.body)) - 1]

    def work(message: Message, _: str) -> Decision:
        if message.body == b"raised":
            raise ArithmeticError("the work failed half-way")
        return Decision.UNKNOWN

    async with (
        bench.transactions(check) as producer,
        bench.push(bench.name("group"), topic) as inbox,
    ):
        sent = {}
        for body in (b"commit", b"rollback", b"later"):
            result = await producer.send_in_transaction(Message(topic, body, "T"), work)
            assert result.decision is Decision.UNKNOWN
            sent[body] = result.sent.message_id
        with pytest.raises(ArithmeticError):
            await producer.send_in_transaction(Message(topic, b"raised"), work)
        received = await inbox.wait_for(3)
        await until(lambda: len(asked) >= 5, "all were asked about")

    assert sorted(bodies(received)) == [b"commit", b"later", b"raised"]
    for body, decisions in answers.items():
        questions = of_body(asked, body)
        assert len(questions) == len(decisions)
        assert {question.topic for question in questions} == {topic}
        if body in sent:
            assert {question.message_id for question in questions} == {sent[body]}
            assert {question.tags for question in questions} == {"T"}


def of_body(messages: list[ReceivedMessage], body: bytes) -> list[ReceivedMessage]:
    return [message for message in messages if message.body == body]


# Requests


@on_loop
async def test_requests_get_the_replies_to_them(bench: PythonBench) -> None:
    topic = await bench.topic("Requests", 2)

    async def answer(message: ReceivedMessage) -> None:
        await bench.producer.reply(message, b"answer to " + message.body)

    group = bench.name("answerer")
    async with PushConsumer(
        bench.where, group=group, topics=topic, handler=answer, consume_from=ConsumeFrom.FIRST
    ), Producer(bench.where, group=bench.name("asker")) as asker:  # fmt: skip
        one = await asker.request(Message(topic, b"one"), timeout_s=10.0)
        many = await asyncio.gather(
            *(asker.request(Message(topic, b"%d" % n), timeout_s=20.0) for n in range(50))
        )

    assert one.body == b"answer to one"
    assert one.properties["MSG_TYPE"] == "reply"
    assert bodies(many) == [b"answer to %d" % number for number in range(50)]


@on_loop
async def test_a_request_that_nobody_answers_ends_in_time(bench: PythonBench) -> None:
    topic = await bench.topic("Unanswered", 1)
    before_s = time.monotonic()
    with pytest.raises(AnswerTimedOut):
        await bench.producer.request(Message(topic, b"anybody?"), timeout_s=1.0)
    assert 1.0 <= time.monotonic() - before_s < PROMPT_S
    (stored,) = await bench.read_all(topic)
    assert (stored.body, stored.properties["TTL"]) == (b"anybody?", "1000")


# Push consumers


@on_loop
async def test_a_group_gets_each_message_once_and_goes_on_where_it_was(bench: PythonBench) -> None:
    topic, group = await bench.topic("Push"), bench.name("group")
    first, second = numbered(topic, 100, "first"), numbered(topic, 20, "second")

    async with bench.push(group, topic) as inbox:
        await bench.send(*first)
        received = await inbox.wait_for(len(first))
        assert sorted(bodies(received)) == sorted(bodies(first))
        await bench.wait_until_consumed(group, topic, len(first))
    await bench.send(*second)
    async with bench.push(group, topic) as inbox:
        assert sorted(bodies(await inbox.wait_for(len(second)))) == sorted(bodies(second))
    # Leaving commits.
    assert sum((await bench.committed(group, topic)).values()) == len(first) + len(second)
    assert len(inbox.deliveries) == len(second)


@on_loop
async def test_a_waiting_consumer_gets_a_message_when_it_comes(bench: PythonBench) -> None:
    topic = await bench.topic("Waiting")
    async with bench.push(bench.name("group"), topic) as inbox:
        await inbox.wait_for_queues(topic, 4)
        for number in range(8):
            before_s = time.monotonic()
            await bench.send(Message(topic, b"%d" % number))
            await inbox.wait_for(number + 1)
            assert time.monotonic() - before_s < PROMPT_S
    assert inbox.bodies == [b"%d" % number for number in range(8)]


@on_loop
async def test_a_batch_handler_gets_several_messages_at_once(bench: PythonBench) -> None:
    topic, group = await bench.topic("Batches", 1), bench.name("group")
    await bench.send(*numbered(topic, 40))
    got: list[list[bytes]] = []

    async def handle(messages: list[ReceivedMessage]) -> Later | None:
        is_first = not got
        got.append(bodies(messages))
        return Later(done=10) if is_first else None

    async with PushConsumer(
        bench.where, group=group, topics=topic, batch_handler=handle,
        consume_from=ConsumeFrom.FIRST, options=dataclasses.replace(QUICK, batch_size=16),
    ):  # fmt: skip
        wanted = Counter(bodies(numbered(topic, 40)))
        again = Counter([f"body-{n}".encode() for n in range(10, 16)])
        await until(lambda: Counter(itertools.chain(*got)) == wanted + again, "all came")
        await bench.wait_until_consumed(group, topic, 40)
    assert got[0] == [f"body-{n}".encode() for n in range(16)]
    assert max(map(len, got)) == 16


@on_loop
async def test_a_refused_message_comes_again_until_it_is_taken(bench: PythonBench) -> None:
    topic, group = await bench.topic("Retry", 1), bench.name("group")
    own = {"fail": "2", "own": TEXT}
    async with bench.push(group, topic) as inbox:
        refused, _ = await bench.send(
            Message(topic, b"refused", "T", "K", own, flag=7), Message(topic, b"taken")
        )
        await inbox.wait_for(4)
        await bench.wait_until_consumed(group, topic, 2)

    rounds = inbox.of_body(b"refused")
    assert [delivery.times for delivery in rounds] == [0, 1, 2]
    for message, times, _ in rounds:
        assert (message.topic, message.message_id) == (topic, refused.message_id)
        assert (message.tags, message.keys, message.flag) == ("T", ["K"], 7)
        assert message.properties["own"] == TEXT
        if times:
            assert message.properties["RETRY_TOPIC"] == topic
            assert message.properties["ORIGIN_MESSAGE_ID"] == refused.offset_message_id
            assert message.queue.topic == f"%RETRY%{group}"


@on_loop
async def test_a_handler_that_raises_has_refused(
    bench: PythonBench, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await bench.topic("Raises", 1)
    got: list[int] = []

    def handle(message: ReceivedMessage) -> None:
        """A plain function: it is called in a thread."""
        got.append(message.reconsume_times)
        if not message.reconsume_times:
            raise ArithmeticError("not today")

    await bench.send(Message(topic, b"again"))
    async with PushConsumer(
        bench.where, group=bench.name("group"), topics=topic, handler=handle,
        consume_from=ConsumeFrom.FIRST,
    ):  # fmt: skip
        await until(lambda: len(got) == 2, "it came again")
    assert got == [0, 1]
    assert "not today" in caplog.text


@on_loop
async def test_a_handler_says_how_long_a_message_shall_wait(bench: PythonBench) -> None:
    topic = await bench.topic("Later", 1)
    async with bench.push(bench.name("group"), topic) as inbox:
        await bench.send(
            Message(topic, b"soon", properties={"fail": "1", "later": "1"}),
            Message(topic, b"late", properties={"fail": "1", "later": "9"}),
        )
        await inbox.wait_for(4)
    for body, delay_ms in ((b"soon", 1000), (b"late", 3000)):
        first, second = inbox.of_body(body)
        assert delay_ms <= second.at_ms - first.at_ms < delay_ms + 1900
        assert second.times == 1


@pytest.mark.parametrize("retries", [0, 1])
@on_loop
async def test_a_message_refused_too_often_is_put_aside(bench: PythonBench, retries: int) -> None:
    topic, group = await bench.topic("Dead", 1), bench.name("group")
    options = dataclasses.replace(QUICK, max_reconsume_times=retries)
    async with bench.push(group, topic, options=options) as inbox:
        (sent,) = await bench.send(
            Message(topic, b"dead", "T", "K", {"fail": NEVER, "own": TEXT}, flag=7)
        )
        (dead,) = await bench.dead_letters(group, 1)

    assert [delivery.times for delivery in inbox.deliveries] == list(range(retries + 1))
    assert (dead.body, dead.message_id) == (b"dead", sent.message_id)
    assert (dead.tags, dead.keys, dead.flag) == ("T", ["K"], 7)
    expected = {
        "own": TEXT,
        "RETRY_TOPIC": topic,
        "ORIGIN_MESSAGE_ID": sent.offset_message_id,
    }
    assert expected.items() <= dead.properties.items()


@on_loop
async def test_a_handler_puts_a_message_aside_at_once(bench: PythonBench) -> None:
    topic, group = await bench.topic("Hopeless", 1), bench.name("group")
    async with bench.push(group, topic) as inbox:
        await bench.send(Message(topic, b"hopeless", properties={"fail": NEVER, "later": "-1"}))
        (dead,) = await bench.dead_letters(group, 1)
    assert (dead.body, inbox.bodies) == (b"hopeless", [b"hopeless"])


@on_loop
async def test_each_member_of_a_broadcasting_group_gets_everything(
    bench: PythonBench, tmp_path: Path
) -> None:
    topic, group = await bench.topic("Broadcast"), bench.name("group")
    early, late = numbered(topic, 20, "early"), numbered(topic, 10, "late")

    def member(number: int) -> contextlib.AbstractAsyncContextManager[Inbox]:
        file = tmp_path / f"{number}.json"
        return bench.push(group, topic, model=Model.BROADCASTING, offsets_file=file)

    async with member(1) as one, member(2) as other:
        await bench.send(*early)
        for inbox in (one, other):
            assert sorted(bodies(await inbox.wait_for(20))) == sorted(bodies(early))
    await bench.send(*late)
    async with member(1) as again:
        assert sorted(bodies(await again.wait_for(10))) == sorted(bodies(late))
    assert await bench.committed(group, topic) == {}


# Order


@on_loop
async def test_an_orderly_consumer_keeps_the_order_of_each_queue(bench: PythonBench) -> None:
    topic, group = await bench.topic("Orderly", 2), bench.name("group")
    queues = await bench.queues(topic)
    async with bench.push(group, topic, orderly=True) as inbox:
        for queue in queues:
            await bench.send_to(queue, *numbered(topic, 30, f"step-{queue.queue_id}"))
        stubborn = Message(topic, b"again", properties={"fail": "2"})
        await bench.send_to(queues[0], stubborn, Message(topic, b"last"))
        received = by_queue(d.message for d in await inbox.wait_for(64))

    assert received[0] == [b"step-0-%d" % n for n in range(30)] + [b"again"] * 3 + [b"last"]
    assert received[1] == [b"step-1-%d" % n for n in range(30)]
    assert [delivery.times for delivery in inbox.of_body(b"again")] == [0, 1, 2]


@on_loop
async def test_an_orderly_consumer_goes_on_behind_a_dead_letter(bench: PythonBench) -> None:
    topic, group = await bench.topic("OrderlyDead", 1), bench.name("group")
    options = dataclasses.replace(QUICK, max_reconsume_times=2)
    async with bench.push(group, topic, orderly=True, options=options) as inbox:
        await bench.send(
            Message(topic, b"before"),
            Message(topic, b"dead", "T", properties={"fail": NEVER}),
            Message(topic, b"after"),
        )
        await inbox.wait_for_bodies([b"after"])
        (dead,) = await bench.dead_letters(group, 1)
    assert inbox.bodies == [b"before", b"dead", b"dead", b"dead", b"after"]
    assert (dead.body, dead.tags) == (b"dead", "T")
    assert dead.properties["RETRY_TOPIC"] == topic


@on_loop
async def test_the_order_outlives_members_that_come_and_go(bench: PythonBench) -> None:
    topic, group = await bench.topic("OrderlyShared"), bench.name("group")
    inboxes = [Inbox(f"member-{number}") for number in range(3)]

    def member(number: int) -> contextlib.AbstractAsyncContextManager[Inbox]:
        return bench.push(group, topic, orderly=True, inbox=inboxes[number])

    async with member(0) as first, contextlib.AsyncExitStack() as others:
        async with bench.stream(topic, "abcd") as sent:
            await first.wait_for(50)
            second = await others.enter_async_context(member(1))
            await second.wait_for(50)
            await first.consumer.stop()
            third = await others.enter_async_context(member(2))
            await third.wait_for(50)
        await until(lambda: taken(calls(inboxes)) == sent, "all were consumed")

    assert_order_was_kept(calls(inboxes))
    assert {call.taken for call in calls(inboxes)} == {True, False}
    assert Counter((c.queue, c.offset) for c in calls(inboxes) if c.taken) == Counter(sent)


def calls(inboxes: list[Inbox]) -> list[Call]:
    return [call for inbox in inboxes for call in inbox.calls]


# Sharing


@on_loop
async def test_three_members_share_the_queues_and_hand_them_over(bench: PythonBench) -> None:
    topic, group = await bench.topic("Shared", 8), bench.name("group")
    everything = {("broker-a", number) for number in range(8)}
    rounds = [numbered(topic, 40, f"round{number}") for number in range(3)]
    async with bench.push(group, topic) as one, bench.push(group, topic) as two:
        async with bench.push(group, topic) as three:
            inboxes = [one, two, three]

            def shares() -> list[int]:
                return sorted(len(inbox.queues(topic)) for inbox in inboxes)

            await until(lambda: shares() == [2, 3, 3], "three share")
            assert set().union(*(inbox.queues(topic) for inbox in inboxes)) == everything
            await bench.send(*rounds[0])
            await bench.wait_until_consumed(group, topic, 40)
        await one.wait_for_queues(topic, 4)
        await two.wait_for_queues(topic, 4)
        assert one.queues(topic) | two.queues(topic) == everything
        await bench.send(*rounds[1])
        await bench.wait_until_consumed(group, topic, 80)
        await one.consumer.stop()
        assert await two.wait_for_queues(topic, 8) == everything
        await bench.send(*rounds[2])
        await bench.wait_until_consumed(group, topic, 120)

    received = Counter(body for inbox in inboxes for body in inbox.bodies)
    assert received == Counter(bodies(itertools.chain(*rounds)))
    assert all(len(inbox.deliveries) >= 10 for inbox in inboxes)


# Filters


@on_loop
async def test_a_consumer_gets_only_the_tags_it_asked_for(bench: PythonBench) -> None:
    topic, group = await bench.topic("Tags", 1), bench.name("group")
    # "Aa" and "BB" have the same hash, by which the broker goes.
    tags = ["C", "", "AA", "BB", "A", "Aa"]
    messages = [Message(topic, f"{tag}-{n}".encode(), tag) for n in range(5) for tag in tags]
    await bench.send(*messages)
    async with bench.push(group, {topic: "A || Aa"}) as inbox:
        await inbox.wait_for(10)
        await bench.wait_until_consumed(group, topic, len(messages))
    assert sorted(inbox.bodies) == sorted(m.body for m in messages if m.tags in {"A", "Aa"})


def parity(number: int) -> str:
    return "odd" if number % 2 else "even"


@on_loop
async def test_a_consumer_gets_only_what_its_expression_allows(bench: PythonBench) -> None:
    topic, group = await bench.topic("Sql", 1), bench.name("group")
    messages = [
        Message(topic, b"%d" % n, parity(n), (), {"a": str(n), "city": "北京" if n % 3 else "Köln"})
        for n in range(12)
    ]
    wanted = Sql("a BETWEEN 3 AND 11 AND (city = '北京' OR TAGS = 'odd')")
    async with bench.push(group, {topic: wanted}) as inbox:
        await bench.send(*messages)
        await inbox.wait_for_bodies([b"11"])
        await bench.wait_until_consumed(group, topic, len(messages))
    assert sorted(map(int, inbox.bodies)) == [3, 4, 5, 7, 8, 9, 10, 11]


@pytest.mark.parametrize("expression", ["a > > 5", "a = 'open"])
@on_loop
async def test_a_wrong_expression_is_refused_at_the_start(
    bench: PythonBench, expression: str
) -> None:
    topic = await bench.topic("BadSql", 1)
    with pytest.raises(BadSubscription):
        async with bench.push(bench.name("group"), {topic: Sql(expression)}):
            pass


# Where a new group begins


@on_loop
async def test_a_new_group_begins_where_it_says(bench: PythonBench, tmp_path: Path) -> None:
    topic = await bench.topic("Begin", 1)
    old, new = numbered(topic, 3, "old"), numbered(topic, 3, "new")
    await bench.send(*old)
    await asyncio.sleep(0.005)
    moment = dt.datetime.now(dt.UTC)
    await asyncio.sleep(0.005)
    await bench.send(*new)
    everything = bodies([*old, *new])
    broadcast = {"model": Model.BROADCASTING, "offsets_file": tmp_path / "offsets.json"}
    expected: list[tuple[object, dict[str, Any], list[bytes]]] = [
        (ConsumeFrom.FIRST, {}, everything),
        # RocketMQ's rule: a young topic is read from its start.
        (ConsumeFrom.LAST, {}, everything),
        (moment, {}, bodies(new)),
        # Of such a group the broker has no offset, so the rule does not hold.
        (ConsumeFrom.LAST, broadcast, []),
    ]
    async with contextlib.AsyncExitStack() as stack:
        inboxes = [
            await stack.enter_async_context(
                bench.push(bench.name("group"), topic, consume_from=where, **more)
            )
            for where, more, _ in expected
        ]
        for inbox, (_, _, wanted) in zip(inboxes, expected, strict=True):
            await inbox.wait_for(len(wanted))

        async def have_begun() -> bool:
            # A member that begins at the end gets only what comes after it has found the end.
            await bench.send(Message(topic, b"live"))
            return all(b"live" in inbox.bodies for inbox in inboxes)

        await until(have_begun, "all get what comes now")
        for inbox, (_, _, wanted) in zip(inboxes, expected, strict=True):
            assert sorted(set(inbox.bodies)) == sorted([*wanted, b"live"])
            assert all(len(inbox.of_body(body)) == 1 for body in wanted)


# Pull consumers


@on_loop
async def test_a_pull_consumer_goes_on_where_it_committed(bench: PythonBench) -> None:
    topic, group = await bench.topic("Poll"), bench.name("group")
    first, second = numbered(topic, 40, "first"), numbered(topic, 12, "second")
    await bench.send(*first)
    async with bench.pull(group, topic, auto_commit=False) as consumer:
        assert sorted(bodies(await poll_until(consumer, 40))) == sorted(bodies(first))
        await consumer.commit()
        assert [await consumer.committed(queue) for queue in consumer.queues] == [10] * 4
        await bench.send(*second)
        assert sorted(bodies(await poll_until(consumer, 12))) == sorted(bodies(second))
    # Those were not committed.
    async with bench.pull(group, topic, auto_commit=False) as consumer:
        assert sorted(bodies(await poll_until(consumer, 12))) == sorted(bodies(second))
        assert await consumer.poll(timeout_s=0.2) == []


@on_loop
async def test_messages_are_taken_with_async_for(bench: PythonBench) -> None:
    topic, group = await bench.topic("AsyncFor", 1), bench.name("group")
    await bench.send(*numbered(topic, 50))
    got: list[bytes] = []
    async with bench.pull(group, topic) as consumer:
        async for message in consumer:
            got.append(message.body)
            if len(got) == 20:
                break
    assert got == bodies(numbered(topic, 50))[:20]
    # The last one was taken and not yet left behind.
    assert await bench.committed(group, topic) == {0: 19}


@on_loop
async def test_a_pull_consumer_reads_assigned_queues_from_where_it_seeks(
    bench: PythonBench,
) -> None:
    topic = await bench.topic("Seek")
    queues = await bench.queues(topic)
    for queue in queues:
        await bench.send_to(queue, *numbered(topic, 10, f"seek-{queue.queue_id}"))
    async with bench.pull(bench.name("group")) as consumer:
        assert await consumer.queues_of(topic) == queues
        await consumer.assign(queues[1:3])
        consumer.seek(queues[1], 3)
        consumer.seek(queues[2], 7)
        assert by_queue(await poll_until(consumer, 10)) == {
            1: [b"seek-1-%d" % n for n in range(3, 10)],
            2: [b"seek-2-%d" % n for n in range(7, 10)],
        }
        assert (consumer.position(queues[1]), await consumer.max_offset(queues[1])) == (3, 10)
        await consumer.seek_to_end(queues[2])
        consumer.seek(queues[1], 9)
        assert bodies(await poll_until(consumer, 1)) == [b"seek-1-9"]
        await consumer.assign([queues[3]])
        await consumer.seek_to_beginning(queues[3])
        assert bodies(await poll_until(consumer, 10)) == [b"seek-3-%d" % n for n in range(10)]


@on_loop
async def test_a_paused_queue_is_read_no_further(bench: PythonBench) -> None:
    topic = await bench.topic("Pause", 2)
    queues = await bench.queues(topic)
    async with bench.pull(bench.name("group"), topic) as consumer:
        for queue in queues:
            await bench.send_to(queue, Message(topic, b"first-%d" % queue.queue_id))
        assert sorted(bodies(await poll_until(consumer, 2))) == [b"first-0", b"first-1"]
        consumer.pause([queues[0]])
        await bench.send_to(queues[0], Message(topic, b"held back"))
        await bench.send_to(queues[1], Message(topic, b"goes on"))
        assert bodies(await poll_until(consumer, 1)) == [b"goes on"]
        assert await consumer.poll(timeout_s=0.3) == []
        consumer.resume([queues[0]])
        assert bodies(await poll_until(consumer, 1)) == [b"held back"]


@on_loop
async def test_a_pull_consumer_filters_too(bench: PythonBench) -> None:
    topic = await bench.topic("PullFilter", 1)
    await bench.send(*(Message(topic, b"%d" % n, parity(n), (), {"n": str(n)}) for n in range(9)))
    async with bench.pull(bench.name("group"), {topic: "odd"}) as consumer:
        assert bodies(await poll_until(consumer, 4)) == [b"1", b"3", b"5", b"7"]
    async with bench.pull(bench.name("group"), {topic: Sql("n > 6")}) as consumer:
        assert bodies(await poll_until(consumer, 2)) == [b"7", b"8"]


# Finding messages


@on_loop
async def test_messages_are_found_by_key_id_and_place(bench: PythonBench) -> None:
    topic = await bench.topic("Query")
    results = await bench.send(
        *(Message(topic, b"%d" % n, keys=["all", f"only-{n}"]) for n in range(6))
    )
    messages = bench.admin.messages

    async def indexed() -> bool:
        return len(await messages.by_key(topic, "all")) == 6

    await until(indexed, "six are indexed")
    assert sorted(bodies(await messages.by_key(topic, "all"))) == [b"%d" % n for n in range(6)]
    assert bodies(await messages.by_key(topic, "only-4")) == [b"4"]
    assert await messages.by_key(topic, "none") == []
    for number, result in enumerate(results):
        assert bodies(await messages.by_id(topic, result.message_id)) == [b"%d" % number]
        assert (await messages.view(result.offset_message_id)).body == b"%d" % number
        assert (await messages.at(result.queue, result.queue_offset)).body == b"%d" % number
    with pytest.raises(NotFound):
        await messages.at(results[0].queue, 1000)
