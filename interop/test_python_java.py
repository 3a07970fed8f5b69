"""The Python and the Java client together: one goes on with what the other sent or left.

The short set runs the newest Java client, the full set the one of the 4.9 line too.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import functools
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from cometmq.client import (
    Allocation,
    Averagely,
    AveragelyByCircle,
    ConsistentHash,
    ConsumeFrom,
    Decision,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendResult,
    Sql,
)
from cometmq.client.producer.packing import Compression
from interop import java_client, systems
from interop.java_bench import Bench
from interop.java_client import NEWEST, JavaClient
from interop.java_client import PushConsumer as JavaConsumer
from interop.message_kinds import (
    Answerer,
    Call,
    Requester,
    State,
    TransactionProducer,
    assert_order_was_kept,
    calls_of,
    in_transaction,
    taken,
    with_settings,
)
from interop.python_client import (
    CONFIG,
    QUICK,
    Inbox,
    PythonBench,
    Queue,
    bodies,
    now_ms,
    numbered,
    on_loop,
    poll_until,
    until,
)
from interop.rocketmq import JsonObject
from interop.systems import Cluster, System

TEXT = "žluťoučký kůň 火星 🚀"
LARGE = (TEXT * 2000).encode()
OWN = {"größe": TEXT, "číslo": "42"}
COMPRESSION_MASK = 0x700
CODECS: dict[Compression, int] = {"zlib": 0x300, "lz4": 0x100, "zstd": 0x200}
KEYS = ["a", "polygenelubricants", "žluťoučký", "火星", "🚀", *(f"order-{n}" for n in range(12))]
"""The second one's hash is the least number there is, which has no opposite."""
STRATEGY = "org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueue"
STRATEGIES: dict[str, Allocation] = {
    "Averagely": Averagely(),
    "AveragelyByCircle": AveragelyByCircle(),
    "ConsistentHash": ConsistentHash(),
}
ANSWER_MS = 10_000
NEVER = "99"
SHARED_QUEUES = 32
"""So many that consistent hashing leaves nobody without."""
LATE_MS_MAX = 1500

newest_client = pytest.mark.parametrize("client", [NEWEST], indirect=True, ids=str)
beside = asyncio.to_thread
"""For calls of the Java client: they wait, and our own client must go on meanwhile."""


@pytest.fixture(scope="module")
def shared(system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with systems.running(system, tmp_path_factory.mktemp("python-java"), CONFIG) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def java(client: JavaClient, shared: Cluster) -> Bench:
    return Bench(client, shared)


@pytest.fixture
def python(shared: Cluster) -> Iterator[PythonBench]:
    with PythonBench(shared) as started:
        yield started


@contextlib.asynccontextmanager
async def java_push(
    java: Bench, group: str, topic: str, **options: Any
) -> AsyncIterator[JavaConsumer]:
    consumer = await beside(functools.partial(java.push, group, topic, **options))
    with consumer:
        yield consumer


def rich(topic: str, number: int) -> tuple[Message, java_client.Message]:
    """The same message for both, with all that a message can have."""
    body = [b"text %d" % number, bytes(range(256)), LARGE][number % 3]
    tags, keys, flag = f"značka{number}", [f"klíč{number}", "第三"], number - 2
    own = {**OWN, "number": str(number)}
    return (
        Message(topic, body, tags, keys, own, flag=flag),
        java_client.Message(topic, body, tags, " ".join(keys), flag, own),
    )


def assert_python_got(message: ReceivedMessage, sent: java_client.Message) -> None:
    assert (message.topic, message.body, message.flag) == (sent.topic, sent.body, sent.flag)
    assert (message.tags, " ".join(message.keys)) == (sent.tags, sent.keys)
    assert sent.properties.items() <= message.properties.items()
    assert message.reconsume_times == 0


def assert_java_got(line: JsonObject, sent: Message) -> None:
    assert (line["topic"], java_client.body(line), line["flag"]) == (
        sent.topic,
        sent.body,
        sent.flag,
    )
    properties = {"TAGS": sent.tags, "KEYS": " ".join(sent.keys), **sent.properties}
    assert properties.items() <= line["properties"].items()
    assert line["reconsumeTimes"] == 0


def number_of(properties: dict[str, str]) -> int:
    return int(properties["number"])


# What one sends the other gets


@pytest.mark.parametrize("way", ["send", "send_async", "send_oneway", "send_batch"])
@on_loop
async def test_python_gets_what_java_sends(java: Bench, python: PythonBench, way: str) -> None:
    topic = await python.topic("FromJava")
    messages = [message for _, message in (rich(topic, number) for number in range(12))]
    async with python.push(python.name("group"), topic) as inbox:
        results = await beside(getattr(java.producer, way), *messages)
        await inbox.wait_for(len(messages))

    received = {number_of(d.message.properties): d.message for d in inbox.deliveries}
    assert len(received) == len(inbox.deliveries) == len(messages)
    for number, message in received.items():
        assert_python_got(message, messages[number])
    if way in {"send", "send_async"}:
        for number, result in enumerate(results):
            message = received[number]
            assert message.message_id == result["msgId"]
            assert message.offset_message_id == result["offsetMsgId"]
            assert message.queue.queue_id == result["queue"]["queueId"]
            assert message.queue_offset == result["queueOffset"]
            # A batch travels as it is.
            assert bool(message.sys_flag & COMPRESSION_MASK) == (message.body == LARGE)


@pytest.mark.parametrize("way", ["send", "send_nowait", "send_oneway", "send_batch", "linger"])
@on_loop
async def test_java_gets_what_python_sends(java: Bench, python: PythonBench, way: str) -> None:
    topic = await python.topic("FromPython")
    messages = [message for message, _ in (rich(topic, number) for number in range(12))]
    async with java_push(java, python.name("group"), topic) as consumer:
        results = await python_sends(python, way, messages)
        received = await beside(consumer.wait_for, len(messages))

    by_number = {number_of(line["properties"]): line for line in received}
    assert len(by_number) == len(received) == len(messages)
    for number, line in by_number.items():
        assert_java_got(line, messages[number])
        if results:
            assert_told(line, results[number])


async def python_sends(python: PythonBench, way: str, messages: list[Message]) -> list[SendResult]:
    producer = python.producer
    if way == "send":
        return await python.send(*messages)
    if way == "send_nowait":
        return await asyncio.gather(*map(producer.send_nowait, messages))
    if way == "send_batch":
        return await producer.send_batch(messages)
    if way == "linger":
        async with Producer(python.where, group=python.name("linger"), linger_s=0.02) as lingering:
            return await asyncio.gather(*map(lingering.send_nowait, messages))
    for message in messages:
        await producer.send_oneway(message)
    return []


def assert_told(line: JsonObject, result: SendResult) -> None:
    """The message is where its producer was told, under the ids that it was told."""
    assert (line["uniqKey"], line["msgId"]) == (result.message_id, result.offset_message_id)
    assert (line["queueId"], line["queueOffset"]) == (result.queue.queue_id, result.queue_offset)


@newest_client
@pytest.mark.parametrize("codec", CODECS)
@on_loop
async def test_both_unpack_what_the_other_packed(
    java: Bench, python: PythonBench, codec: Compression
) -> None:
    topic = await python.topic("Packed", 1)
    options: dict[str, Any] = {"compressType": codec.upper()}
    async with (
        Producer(python.where, group=python.name("packer"), compression=codec) as producer,
        python.push(python.name("group"), topic) as inbox,
        java_push(java, python.name("group"), topic) as consumer,
    ):
        packer = await beside(
            functools.partial(
                java_client.Producer, java.client, java.namesrv, python.name("packer"), **options
            )
        )
        with packer:
            await beside(packer.send, java_client.Message(topic, LARGE, "java"))
            await producer.send(Message(topic, LARGE, "python"))
            lines = await beside(consumer.wait_for, 2)
            deliveries = await inbox.wait_for(2)

    assert [java_client.body(line) for line in lines] == [LARGE, LARGE]
    assert [line["sysFlag"] & COMPRESSION_MASK for line in lines] == [CODECS[codec]] * 2
    assert bodies(deliveries) == [LARGE, LARGE]
    assert {d.message.tags for d in deliveries} == {"java", "python"}
    flags = {delivery.message.sys_flag & COMPRESSION_MASK for delivery in deliveries}
    assert flags == {CODECS[codec]}


@on_loop
async def test_delayed_messages_of_one_come_in_time_to_the_other(
    java: Bench, python: PythonBench
) -> None:
    topic = await python.topic("Delayed", 1)
    is_new = not java.kind.version.startswith("4.")
    async with (
        python.push(python.name("group"), topic) as inbox,
        java_push(java, python.name("group"), topic) as consumer,
    ):
        begun_ms = now_ms()
        due_ms = {b"java-level": begun_ms + 2000, b"python-level": begun_ms + 2000}
        await beside(java.producer.send, with_settings(topic, b"java-level", delayTimeLevel=5))
        await python.send(Message(topic, b"python-level", delay_level=5))
        if is_new:
            due_ms |= {b"java-time": begun_ms + 1500, b"python-time": begun_ms + 1500}
            timed = with_settings(topic, b"java-time", deliverTimeMs=begun_ms + 1500)
            await beside(java.producer.send, timed)
            moment = dt.datetime.fromtimestamp((begun_ms + 1500) / 1000, dt.UTC)
            await python.send(Message(topic, b"python-time", deliver_at=moment))
        lines = await beside(consumer.wait_for, len(due_ms))
        deliveries = await inbox.wait_for(len(due_ms))

    times = {d.body: d.at_ms for d in deliveries}
    times_of_java = {java_client.body(line): line["receivedMs"] for line in lines}
    assert times.keys() == times_of_java.keys() == due_ms.keys()
    for body, due in due_ms.items():
        # RocketMQ's timers go by ticks and may be one too early.
        assert due - 100 <= times[body] < due + LATE_MS_MAX
        assert due - 100 <= times_of_java[body] < due + LATE_MS_MAX


@on_loop
async def test_both_filter_alike(java: Bench, python: PythonBench) -> None:
    topic = await python.topic("Filters", 1)
    # "Aa" and "BB" have the same hash, by which the broker goes.
    tags = ["Aa", "BB", "AaAa", "C"]
    sql = "a BETWEEN 2 AND 9 AND (city = '北京' OR TAGS = 'Aa')"
    cities = ["北京", "Köln", "Köln"]
    groups = [python.name("group") for _ in range(4)]
    async with (
        python.push(groups[0], {topic: "Aa || C"}) as by_tag,
        python.push(groups[1], {topic: Sql(sql)}) as by_sql,
        java_push(java, groups[2], topic, expression="Aa || C") as java_by_tag,
        java_push(java, groups[3], topic, expression=sql, sql=True) as java_by_sql,
    ):
        for number, (tag, city) in enumerate(zip(tags * 3, cities * 4, strict=True)):
            own = {"a": str(number), "city": city}
            body = f"{number}".encode()
            await python.send(Message(topic, b"python-" + body, tag, (), own))
            await beside(
                java.producer.send,
                java_client.Message(topic, b"java-" + body, tag, properties=own),
            )
        # Progress passes what a group does not want with the next message that it does want.
        own = {"a": "9", "city": "北京"}
        await python.send(Message(topic, b"last", "C", (), own))
        for inbox in (by_tag, by_sql):
            await inbox.wait_for_bodies([b"last"])
        for consumer in (java_by_tag, java_by_sql):
            await beside(consumer.wait_for_bodies, [b"last"])
        for group, members in zip(groups, ([], [], [java_by_tag], [java_by_sql]), strict=True):
            await beside(java.wait_until_consumed, group, topic, 25, *members)

    of_tag = [0, 3, 4, 7, 8, 11]
    of_sql = [3, 4, 6, 8, 9]
    for got, wanted in (
        (by_tag.bodies, of_tag),
        (java_client.bodies(java_by_tag.received()), of_tag),
        (by_sql.bodies, of_sql),
        (java_client.bodies(java_by_sql.received()), of_sql),
    ):
        expected = [f"{who}-{number}".encode() for who in ("python", "java") for number in wanted]
        assert Counter(got) == Counter([*expected, b"last"])


# Keys and order


@on_loop
async def test_a_key_leads_both_to_the_same_queue(java: Bench, python: PythonBench) -> None:
    topic = await python.topic("SameKey", 7)
    of_python = await python.send(*(Message(topic, b"python", sharding_key=key) for key in KEYS))
    of_java = await beside(
        java.producer.send,
        *(java_client.Message(topic, b"java", order_key=key) for key in KEYS),
    )
    assert [result.queue.queue_id for result in of_python] == [
        result["queue"]["queueId"] for result in of_java
    ]
    assert len({result.queue.queue_id for result in of_python}) > 3


@on_loop
async def test_the_order_of_a_key_is_kept_over_both(java: Bench, python: PythonBench) -> None:
    """Sent by both in turns, to an orderly consumer of each."""
    topic = await python.topic("KeyOrder")
    keys = KEYS[:8]
    async with (
        python.push(python.name("group"), topic, orderly=True) as inbox,
        java_push(java, python.name("group"), topic, orderly=True) as consumer,
    ):
        for step in range(0, 20, 2):
            await python.send(
                *(Message(topic, f"{key} {step}".encode(), sharding_key=key) for key in keys)
            )
            await beside(
                java.producer.send,
                *(
                    java_client.Message(topic, f"{key} {step + 1}".encode(), order_key=key)
                    for key in keys
                ),
            )
        await inbox.wait_for(len(keys) * 20)
        await beside(consumer.wait_for, len(keys) * 20)

    for got in (inbox.bodies, java_client.bodies(consumer.received())):
        assert len(got) == len(keys) * 20
        for key in keys:
            of_key = [body for body in got if body.startswith(f"{key} ".encode())]
            assert of_key == [f"{key} {step}".encode() for step in range(20)]


# Transactions


@on_loop
async def test_transactions_of_one_count_for_the_other(java: Bench, python: PythonBench) -> None:
    topic = await python.topic("Transactions", 1)
    asked: list[bytes] = []

    async def check(message: ReceivedMessage) -> Decision:
        asked.append(message.body)
        return Decision.COMMIT if message.body == b"python-unknown" else Decision.ROLLBACK

    decisions = {
        b"python-commit": Decision.COMMIT,
        b"python-rollback": Decision.ROLLBACK,
        b"python-unknown": Decision.UNKNOWN,
    }

    def work(message: Message, _: str) -> Decision:
        return decisions[message.body]

    async with (
        python.transactions(check) as producer,
        python.push(python.name("group"), topic) as inbox,
        java_push(java, python.name("group"), topic) as consumer,
    ):
        for body in decisions:
            await producer.send_in_transaction(Message(topic, body, "T", ["K"]), work)
        transactions = await beside(
            TransactionProducer, java.client, java.namesrv, python.name("transactions")
        )
        with transactions:
            await beside(
                transactions.send,
                in_transaction(topic, b"java-commit", State.COMMIT),
                in_transaction(topic, b"java-rollback", State.ROLLBACK),
                in_transaction(topic, b"java-unknown", State.UNKNOWN, State.COMMIT),
            )
            await inbox.wait_for(4)
            await beside(consumer.wait_for, 4)
            await python.send(Message(topic, b"last"))
            await inbox.wait_for_bodies([b"last"])
            lines = await beside(consumer.wait_for_bodies, [b"last"])

    committed = [b"python-commit", b"python-unknown", b"java-commit", b"java-unknown", b"last"]
    assert Counter(inbox.bodies) == Counter(java_client.bodies(lines)) == Counter(committed)
    assert asked == [b"python-unknown"]
    for delivery in inbox.deliveries[:4]:
        message = delivery.message
        assert (message.topic, message.tags, message.keys) == (topic, "T", ["K"])
        assert message.transaction_id == message.message_id


@on_loop
async def test_one_answers_for_transactions_of_the_other(java: Bench, python: PythonBench) -> None:
    """Both are producers of one group; who began a transaction leaves before it is asked."""
    topic, family = await python.topic("Family", 1), python.name("family")
    asked: list[ReceivedMessage] = []

    async def check(message: ReceivedMessage) -> Decision:
        asked.append(message)
        return Decision.COMMIT if b"keep" in message.body else Decision.ROLLBACK

    def in_doubt(_: Message, __: str) -> Decision:
        return Decision.UNKNOWN

    def half(body: bytes, answer: State) -> Message:
        return Message(topic, body, properties={"checks": answer})

    new_java = functools.partial(TransactionProducer, java.client, java.namesrv, family)
    async with python.push(python.name("group"), topic) as inbox:
        async with python.transactions(check, family) as producer:
            leaving = await beside(new_java)
            await beside(
                leaving.send,
                in_transaction(topic, b"java keep", State.UNKNOWN),
                in_transaction(topic, b"java drop", State.UNKNOWN),
            )
            await producer.send(Message(topic, b"hello"))  # Now the broker knows this one, too.
            await beside(leaving.shutdown)
            await until(lambda: len(asked) == 2, "the one of Python was asked")
            await inbox.wait_for(2)
            await producer.send_in_transaction(half(b"python keep", State.COMMIT), in_doubt)
            await producer.send_in_transaction(half(b"python drop", State.ROLLBACK), in_doubt)
        with await beside(new_java) as staying:
            await beside(staying.send, in_transaction(topic, b"hello again", State.COMMIT))
            questions = await beside(staying.questions().wait_until, lambda q: len(q) >= 2)
            await inbox.wait_for(4)

    assert sorted(message.body for message in asked) == [b"java drop", b"java keep"]
    assert sorted(java_client.bodies(questions)) == [b"python drop", b"python keep"]
    assert {message.topic for message in asked} == {topic}
    assert {question["topic"] for question in questions} == {topic}
    assert sorted(inbox.bodies) == [b"hello", b"hello again", b"java keep", b"python keep"]


# Requests


@on_loop
async def test_requests_of_one_are_answered_by_the_other(java: Bench, python: PythonBench) -> None:
    to_java, to_python = await python.topic("ToJava", 2), await python.topic("ToPython", 2)

    async def answer(message: ReceivedMessage) -> None:
        await python.producer.reply(message, b"python's answer to " + message.body)

    answerer = await beside(Answerer, java.client, java.namesrv, python.name("answerer"), to_java)
    requester = await beside(Requester, java.client, java.namesrv, python.name("requester"))
    with answerer, requester:
        async with PushConsumer(
            python.where, group=python.name("answerer"), topics=to_python, handler=answer,
            consume_from=ConsumeFrom.FIRST,
        ):  # fmt: skip
            of_java = await asyncio.gather(
                *(
                    python.producer.request(
                        Message(to_java, b"%d" % n, properties={"asked": TEXT}), timeout_s=20.0
                    )
                    for n in range(20)
                )
            )
            questions = [java_client.Message(to_python, b"%d" % n) for n in range(20)]
            of_python = await beside(requester.request_async, questions, ANSWER_MS)
            one = await beside(requester.request, java_client.Message(to_python, LARGE), ANSWER_MS)

    assert bodies(of_java) == [b"answer to %d" % number for number in range(20)]
    assert {reply.properties["asked"] for reply in of_java} == {TEXT}
    assert java_client.bodies(of_python) == [b"python's answer to %d" % n for n in range(20)]
    assert {line["properties"]["MSG_TYPE"] for line in of_python} == {"reply"}
    assert java_client.body(one) == b"python's answer to " + LARGE


# One group


def queues_of(consumer: JavaConsumer) -> set[Queue]:
    return {(queue.broker, queue.id) for queue in consumer.queues()}


async def until_shared_out(consumer: JavaConsumer, inbox: Inbox, topic: str) -> None:
    """Wait until both have a part, and together every queue once."""
    everything = {("broker-a", number) for number in range(SHARED_QUEUES)}

    async def shared_out() -> bool:
        theirs, ours = await beside(queues_of, consumer), inbox.queues(topic)
        return bool(theirs and ours) and not theirs & ours and theirs | ours == everything

    await until(shared_out, "both have their shares")


@pytest.mark.parametrize("strategy", STRATEGIES)
@on_loop
async def test_both_share_the_queues_of_a_group_and_hand_them_over(
    java: Bench, python: PythonBench, strategy: str
) -> None:
    topic, group = await python.topic("Shared", SHARED_QUEUES), python.name("group")
    rounds = [numbered(topic, 64, f"round{number}") for number in range(4)]
    of_java: dict[str, Any] = {"allocateMessageQueueStrategy": STRATEGY + strategy}

    async with (
        java_push(java, group, topic, **of_java) as first,
        python.push(group, topic, allocation=STRATEGIES[strategy]) as inbox,
    ):
        await until_shared_out(first, inbox, topic)
        await python.send(*rounds[0])
        await beside(java.wait_until_consumed, group, topic, 64, first)
        assert inbox.deliveries
        assert first.received()
        await beside(first.shutdown)
        await inbox.wait_for_queues(topic, SHARED_QUEUES)
        await python.send(*rounds[1])
        await beside(java.wait_until_consumed, group, topic, 128)
        async with java_push(java, group, topic, **of_java) as second:
            await until_shared_out(second, inbox, topic)
            await python.send(*rounds[2])
            await beside(java.wait_until_consumed, group, topic, 192, second)
            await inbox.consumer.stop()
            await beside(second.wait_for_queues, SHARED_QUEUES)
            await python.send(*rounds[3])
            await beside(java.wait_until_consumed, group, topic, 256, second)

    got = inbox.bodies + java_client.bodies(first.received() + second.received())
    assert Counter(got) == Counter(bodies(itertools.chain(*rounds)))


@on_loop
async def test_the_order_outlives_members_of_both_that_come_and_go(
    java: Bench, python: PythonBench
) -> None:
    topic, group = await python.topic("OrderlyShared"), python.name("group")
    orderly = {"orderly": True, "timed": True, "suspendCurrentQueueTimeMillis": 20}
    async with (
        java_push(java, group, topic, **orderly) as first,
        contextlib.AsyncExitStack() as others,
    ):
        async with python.stream(topic, "abcd") as sent:
            await beside(first.wait_for, 50)
            inbox = await others.enter_async_context(python.push(group, topic, orderly=True))
            await inbox.wait_for(50)
            await beside(first.shutdown)
            await inbox.wait_for_queues(topic, 4)
            second = await others.enter_async_context(java_push(java, group, topic, **orderly))
            await beside(second.wait_for, 50)
            await inbox.consumer.stop()

        def calls() -> list[Call]:
            return calls_of(first) + inbox.calls + calls_of(second)

        await until(lambda: taken(calls()) == sent, "all were consumed")

    assert_order_was_kept(calls())
    assert {call.taken for call in calls()} == {True, False}


# Going on where the other was


@on_loop
async def test_one_goes_on_where_the_other_committed(java: Bench, python: PythonBench) -> None:
    topic, group = await python.topic("Offsets"), python.name("group")
    parts = [numbered(topic, 20, f"part{number}") for number in range(4)]

    await python.send(*parts[0])
    async with python.push(group, topic) as inbox:
        await inbox.wait_for(20)
    assert await python.committed(group, topic) == dict.fromkeys(range(4), 5)
    await python.send(*parts[1])
    async with java_push(java, group, topic) as consumer:
        await beside(consumer.wait_for, 20)
        await beside(java.wait_until_consumed, group, topic, 40, consumer)
        await beside(consumer.shutdown)
    await python.send(*parts[2])
    async with python.pull(group, topic, auto_commit=False) as puller:
        pulled = await poll_until(puller, 20)
        await puller.commit()
    await python.send(*parts[3])
    with await beside(java.lite, group) as lite:
        await beside(lite.subscribe, topic)
        polled = await beside(lite.poll_until, 20)
        await beside(lite.commit)
        await beside(lite.shutdown)  # That writes it down now; else it does every five seconds.
        await python.wait_until_consumed(group, topic, 80)

    for got, part in zip(
        (
            inbox.bodies,
            java_client.bodies(consumer.received()),
            bodies(pulled),
            java_client.bodies(polled),
        ),
        parts,
        strict=True,
    ):
        assert Counter(got) == Counter(bodies(part))


LONGER = {"later": "5"}
"""Two seconds: time enough for a consumer of Python to leave before the message comes again."""


@on_loop
async def test_one_gets_again_what_the_other_refused(java: Bench, python: PythonBench) -> None:
    topic, group = await python.topic("Retries", 1), python.name("group")
    messages = [
        Message(topic, b"%d" % n, "T", ["K"], {"fail": str(n), "own": TEXT, **LONGER})
        for n in range(4)
    ]
    sent = await python.send(*messages)
    async with python.push(group, topic) as first:
        await python.wait_until_consumed(group, topic, 4)
    async with java_push(java, group, topic, held=True) as second:
        await beside(second.wait_for, 3)
        await beside(second.shutdown)  # It lets them go first.
    async with python.push(group, topic) as third:
        await third.wait_for(3)

    assert sorted((d.body, d.times) for d in first.deliveries) == [(b"%d" % n, 0) for n in range(4)]
    times = {java_client.body(line): line["reconsumeTimes"] for line in second.received()}
    assert times == {b"1": 1, b"2": 1, b"3": 1}
    assert sorted((d.body, d.times) for d in third.deliveries) == [(b"2", 2), (b"3", 2), (b"3", 3)]
    ids = {message.body: result.message_id for message, result in zip(messages, sent, strict=True)}
    for line in second.received():
        assert (line["topic"], line["uniqKey"]) == (topic, ids[java_client.body(line)])
        assert line["properties"].items() >= {"TAGS": "T", "KEYS": "K", "own": TEXT}.items()
    for delivery in third.deliveries:
        message = delivery.message
        assert (message.topic, message.message_id) == (topic, ids[message.body])
        assert (message.tags, message.keys, message.properties["own"]) == ("T", ["K"], TEXT)


@pytest.mark.parametrize("last", ["python", "java"])
@on_loop
async def test_both_count_the_refusals_before_a_message_is_put_aside(
    java: Bench, python: PythonBench, last: str
) -> None:
    topic, group = await python.topic("Dead", 1), python.name("group")
    own = {"fail": NEVER, "own": TEXT, **LONGER}
    (sent,) = await python.send(Message(topic, b"dead", "T", ["K"], own))
    times: list[int] = []
    if last == "java":
        async with python.push(group, topic) as inbox:
            await python.wait_until_consumed(group, topic, 1)
        async with java_push(java, group, topic, maxReconsumeTimes=1) as consumer:
            (dead,) = await python.dead_letters(group, 1)
        times = [d.times for d in inbox.deliveries]
        times += [line["reconsumeTimes"] for line in consumer.received()]
    else:
        async with java_push(java, group, topic, held=True) as consumer:
            await beside(consumer.wait_for, 1)
            await beside(consumer.shutdown)
        options = dataclasses.replace(QUICK, max_reconsume_times=1)
        async with python.push(group, topic, options=options) as inbox:
            (dead,) = await python.dead_letters(group, 1)
        times = [line["reconsumeTimes"] for line in consumer.received()]
        times += [d.times for d in inbox.deliveries]
    (line,) = await beside(java.reader.read_all, f"%DLQ%{group}")

    assert times == [0, 1]
    assert (dead.body, dead.message_id) == (b"dead", sent.message_id)
    assert (dead.tags, dead.keys) == ("T", ["K"])
    expected = {"own": TEXT, "RETRY_TOPIC": topic, "ORIGIN_MESSAGE_ID": sent.offset_message_id}
    assert expected.items() <= dead.properties.items()
    assert (java_client.body(line), line["uniqKey"]) == (b"dead", sent.message_id)
    assert expected.items() <= line["properties"].items()
