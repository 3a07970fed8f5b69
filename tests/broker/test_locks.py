"""Locks of queues that are consumed in order."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cometmq.broker import locks as locks_module
from cometmq.broker import parts as parts_module
from cometmq.broker.locks import LOCK_MS, QueueLocks
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.message_queue import MessageQueue
from cometmq.testing.clock import ManualClock

from .brokers import GROUP, TOPIC, Client, bounded, context_of, serving, until


def queue(number: int, topic: str = TOPIC, broker: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic, broker, number)


def body_of(client_id: str, queues: list[MessageQueue], group: str = GROUP) -> dict[str, Any]:
    return {"consumerGroup": group, "clientId": client_id, "mqSet": queues}


async def locked(client: Client, client_id: str, *queues: MessageQueue) -> list[MessageQueue]:
    answer = await client.ask(41, {}, body_of(client_id, list(queues)))
    assert answer.code == 0
    return msgspec.convert(msgspec.json.decode(answer.body)["lockOKMQSet"], list[MessageQueue])


@bounded
async def test_a_queue_belongs_to_who_asked_first(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await client.send()
        assert await locked(client, "a", queue(0), queue(1)) == [queue(0), queue(1)]
        assert await locked(client, "b", queue(1), queue(2)) == [queue(2)]
        assert await locked(client, "a", queue(0), queue(1), queue(2)) == [queue(0), queue(1)]


@bounded
async def test_groups_do_not_mind_one_another(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await client.send()
        assert await locked(client, "a", queue(0)) == [queue(0)]
        answer = await client.ask(41, {}, body_of("b", [queue(0)], "others"))
        assert msgspec.json.decode(answer.body)["lockOKMQSet"] == [msgspec.to_builtins(queue(0))]


@bounded
async def test_only_who_holds_a_lock_can_give_it_back(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await client.send()
        await locked(client, "a", queue(0))
        assert (await client.ask(42, {}, body_of("b", [queue(0)]))).code == 0
        assert await locked(client, "b", queue(0)) == []
        assert (await client.ask(42, {}, body_of("a", [queue(0), queue(1)]))).code == 0
        assert await locked(client, "b", queue(0)) == [queue(0)]


@bounded
async def test_a_lock_that_nobody_renews_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "CLIENT_SCAN_INTERVAL_S", 0.01)
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        await client.send()
        await locked(client, "a", queue(0), queue(1))
        clock.advance(LOCK_MS)
        assert await locked(client, "a", queue(1)) == [queue(1)]
        assert await locked(client, "b", queue(0)) == []
        clock.advance(1)
        assert await locked(client, "b", queue(0), queue(1)) == [queue(0)]
        clock.advance(LOCK_MS + 1)
        await until(lambda: len(context_of(broker).locks) == 0)
        assert context_of(broker).locks._groups == {}


@bounded
async def test_only_queues_of_this_broker_are_locked(tmp_path: Path) -> None:
    async with serving(tmp_path, autoCreateSubscriptionGroup=False) as broker:
        client, context = await Client.to(broker), context_of(broker)
        await client.send()
        body = body_of("a", [queue(0)], "made-up")
        answer = await client.ask(41, {}, body)
        assert msgspec.json.decode(answer.body) == {"lockOKMQSet": []}
        body = body_of(
            "a", [queue(0, "made-up"), queue(0, broker="other"), queue(0)], "TOOLS_CONSUMER"
        )
        answer = await client.ask(41, {}, body)
        assert msgspec.json.decode(answer.body)["lockOKMQSet"] == [msgspec.to_builtins(queue(0))]
        assert len(context.locks) == 1


@bounded
async def test_a_lock_request_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        for code in (41, 42):
            assert (await client.ask(code, {}, b"{")).code == ResponseCode.SYSTEM_ERROR
            assert (await client.ask(code, {}, {"mqSet": 5})).code == ResponseCode.SYSTEM_ERROR
        answer = await client.ask(41, {}, body_of("x" * 2000, [queue(0)]))
        assert answer.code == ResponseCode.INVALID_PARAMETER


def test_whether_a_group_consumes_in_order_is_seen_by_its_locks() -> None:
    locks = QueueLocks()
    assert not locks.is_held(GROUP, 0)
    locks.lock(GROUP, "a", [queue(0)], 0)
    assert locks.is_held(GROUP, LOCK_MS)
    assert not locks.is_held(GROUP, LOCK_MS + 1)
    assert not locks.is_held("others", 0)


def test_there_are_no_more_locks_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks_module, "LOCKS_MAX", 3)
    locks = QueueLocks()
    assert len(locks.lock("one", "a", map(queue, range(5)), 0)) == 3
    assert locks.lock("two", "a", [queue(0)], 0) == []
    assert len(locks.lock("one", "a", map(queue, range(5)), 0)) == 3
    locks.unlock("one", "a", [queue(1)])
    assert locks.lock("two", "a", [queue(0), queue(1)], 0) == [queue(0)]
    locks.expire(LOCK_MS + 1)
    assert (len(locks), locks._groups) == (0, {})


def test_asking_for_nothing_leaves_nothing() -> None:
    locks = QueueLocks()
    assert locks.lock("made-up", "a", [], 0) == []
    locks.unlock("made-up", "a", [queue(0)])
    assert locks._groups == {}
