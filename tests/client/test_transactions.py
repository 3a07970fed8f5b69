"""Transactions: consumers see a message only when its sender's own work succeeded."""

import asyncio
import logging
import threading
from typing import Any

import pytest

from cometmq.client.errors import IllegalArgument
from cometmq.client.message import Message
from cometmq.client.producer.results import SendStatus
from cometmq.client.producer.transactions import Decision, TransactionProducer
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.command import Command, Response
from cometmq.testing import EmbeddedBroker
from tests.client.clusters import arrived, scripted, stored, until

TOPIC = "orders"
SETTINGS = {"transactionTimeOut": 1000, "transactionCheckInterval": 1000}


def unasked(message: ReceivedMessage) -> Decision:
    raise AssertionError(f"asked about {message.message_id}")


async def commit(_message: Message, _transaction_id: str) -> Decision:
    return Decision.COMMIT


async def rollback(_message: Message, _transaction_id: str) -> Decision:
    return Decision.ROLLBACK


async def unknown(_message: Message, _transaction_id: str) -> Decision:
    return Decision.UNKNOWN


async def test_a_committed_message_is_seen_and_a_rolled_back_one_is_not() -> None:
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC, queues=1)
        async with TransactionProducer(broker.namesrv, group="bank", check=unasked) as producer:
            seen: list[tuple[bytes, str, list[ReceivedMessage]]] = []

            async def work(message: Message, transaction_id: str) -> Decision:
                before = await stored(broker.address, TOPIC)
                seen.append((message.body, transaction_id, before))
                return Decision.COMMIT

            done = await producer.send_in_transaction(Message(TOPIC, b"pay", tags="t"), work)
            await producer.send_in_transaction(Message(TOPIC, b"never"), rollback)
            await producer.send_in_transaction(Message(TOPIC, b"pay again"), commit)
        found = await arrived(broker.address, TOPIC, 2)
    assert [m.body for m in found] == [b"pay", b"pay again"]
    assert seen == [(b"pay", done.sent.message_id, [])]
    assert (done.decision, done.sent.status) == (Decision.COMMIT, SendStatus.OK)
    assert (found[0].message_id, found[0].tags) == (done.sent.transaction_id, "t")


async def test_plain_work_runs_in_a_thread() -> None:
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC, queues=1)
        threads: list[threading.Thread] = []

        def work(_message: Message, _transaction_id: str) -> Decision:
            threads.append(threading.current_thread())
            return Decision.COMMIT

        async with TransactionProducer(broker.namesrv, group="bank", check=unasked) as producer:
            await producer.send_in_transaction(Message(TOPIC, b"x"), work)
        await arrived(broker.address, TOPIC, 1)
    assert threads != [threading.main_thread()]


@pytest.mark.parametrize("is_async", [True, False])
async def test_the_broker_asks_about_what_was_left_open(is_async: bool) -> None:
    asked: list[tuple[bytes, str, str]] = []

    def plain(message: ReceivedMessage) -> Decision:
        asked.append((message.body, message.topic, message.message_id))
        return Decision.COMMIT if message.body == b"good" else Decision.ROLLBACK

    async def waiting(message: ReceivedMessage) -> Decision:
        return plain(message)

    async with EmbeddedBroker(settings=SETTINGS) as broker:
        await broker.create_topic(TOPIC, queues=1)
        check = waiting if is_async else plain
        async with TransactionProducer(broker.namesrv, group="bank", check=check) as producer:
            good = await producer.send_in_transaction(Message(TOPIC, b"good"), unknown)
            bad = await producer.send_in_transaction(Message(TOPIC, b"bad"), unknown)
            assert (good.decision, bad.decision) == (Decision.UNKNOWN, Decision.UNKNOWN)
            await broker.advance(2)
            found = await arrived(broker.address, TOPIC, 1)
            await until(lambda: len(asked) == 2)
            await broker.advance(5)
    assert [m.body for m in found] == [b"good"]
    assert sorted(asked) == sorted([
        (b"good", TOPIC, good.sent.message_id), (b"bad", TOPIC, bad.sent.message_id),
    ])  # fmt: skip


async def test_what_the_work_raises_is_raised_and_the_broker_asks() -> None:
    async def check(_: ReceivedMessage) -> Decision:
        return Decision.COMMIT

    def work(*_: object) -> Decision:
        raise ZeroDivisionError("no money")

    async with EmbeddedBroker(settings=SETTINGS) as broker:
        await broker.create_topic(TOPIC, queues=1)
        async with TransactionProducer(broker.namesrv, group="bank", check=check) as producer:
            with pytest.raises(ZeroDivisionError, match="no money"):
                await producer.send_in_transaction(Message(TOPIC, b"x"), work)
            assert await stored(broker.address, TOPIC) == []
            await broker.advance(2)
            assert [m.body for m in await arrived(broker.address, TOPIC, 1)] == [b"x"]


async def test_a_check_that_fails_leaves_the_question_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tries: list[str] = []

    async def check(message: ReceivedMessage) -> Any:
        tries.append(message.message_id)
        if len(tries) == 1:
            raise ZeroDivisionError("database away")
        return True if len(tries) == 2 else Decision.COMMIT

    async with EmbeddedBroker(settings=SETTINGS) as broker:
        await broker.create_topic(TOPIC, queues=1)
        async with TransactionProducer(broker.namesrv, group="bank", check=check) as producer:
            await producer.send_in_transaction(Message(TOPIC, b"x"), unknown)
            for number in range(1, 4):
                assert await stored(broker.address, TOPIC) == []
                await broker.advance(2)
                await until(lambda number=number: len(tries) == number)  # type: ignore[misc]
            assert len(await arrived(broker.address, TOPIC, 1)) == 1
    assert len(set(tries)) == 1
    assert "database away" in caplog.text
    assert "ends with a Decision, not with True" in caplog.text


async def test_only_so_many_checks_run_at_once() -> None:
    at_work = highest = done = 0

    async def check(_: ReceivedMessage) -> Decision:
        nonlocal at_work, highest, done
        at_work += 1
        highest = max(highest, at_work)
        await asyncio.sleep(0.01)
        at_work -= 1
        done += 1
        return Decision.COMMIT

    async with EmbeddedBroker(settings=SETTINGS) as broker:
        await broker.create_topic(TOPIC, queues=1)
        async with TransactionProducer(
            broker.namesrv, group="bank", check=check, checks_at_once=3
        ) as producer:
            for number in range(10):
                await producer.send_in_transaction(Message(TOPIC, b"%d" % number), unknown)
            await broker.advance(2)
            await arrived(broker.address, TOPIC, 10)
    assert (highest, done) == (3, 10)


async def test_another_producer_of_the_group_may_answer() -> None:
    asked: list[bytes] = []

    async def check(message: ReceivedMessage) -> Decision:
        asked.append(message.body)
        return Decision.COMMIT

    async with EmbeddedBroker(settings=SETTINGS) as broker:
        await broker.create_topic(TOPIC, queues=1)
        async with TransactionProducer(broker.namesrv, group="bank", check=unasked) as leaver:
            await leaver.send_in_transaction(Message(TOPIC, b"left behind"), unknown)
        async with TransactionProducer(broker.namesrv, group="bank", check=check) as stayer:
            await stayer.send(Message(TOPIC, b"hello"))
            await broker.advance(2)
            found = await arrived(broker.address, TOPIC, 2)
    assert [m.body for m in found] == [b"hello", b"left behind"]
    assert asked == [b"left behind"]


async def test_work_is_not_done_for_a_message_that_is_not_safe() -> None:
    async with scripted() as cluster:

        def unsafe(name: str, command: Command) -> Response:
            return Response(10, "not on disk", cluster.ok(name, command, msgId="7F" * 16).fields)

        cluster.answer = unsafe
        async with TransactionProducer(cluster.namesrv, group="bank", check=unasked) as producer:

            async def work(*_: object) -> Decision:
                raise AssertionError("the work was done")

            done = await producer.send_in_transaction(Message(TOPIC, b"x"), work)
        assert (done.decision, done.sent.status) == (
            Decision.ROLLBACK, SendStatus.FLUSH_DISK_TIMEOUT,
        )  # fmt: skip


async def test_a_decision_that_does_not_arrive_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with EmbeddedBroker(through_proxy=True) as broker:
        await broker.create_topic(TOPIC, queues=1)
        async with TransactionProducer(broker.namesrv, group="bank", check=unasked) as producer:

            async def work(*_: object) -> Decision:
                broker.proxy().refuse()
                broker.proxy().cut()
                return Decision.COMMIT

            done = await producer.send_in_transaction(Message(TOPIC, b"x"), work)
            broker.proxy().accept()
    assert done.decision is Decision.COMMIT
    assert f"COMMIT of {done.sent.message_id}: the broker will ask" in caplog.text


async def test_a_message_in_a_transaction_cannot_be_delayed() -> None:
    async with TransactionProducer("127.0.0.1:1", group="bank", check=unasked) as producer:
        with pytest.raises(IllegalArgument, match="cannot be delayed"):
            await producer.send_in_transaction(Message(TOPIC, b"x", delay_level=3), commit)
