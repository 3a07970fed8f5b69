"""Messages that nobody waits for get their queue entries later: nobody who looks can tell."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.broker import Broker
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.scan import queue_key
from cometmq.store import turns
from cometmq.web.broker_metrics import broker_families
from cometmq.web.exposition import Family

from .brokers import (
    SUBSCRIPTION,
    SUSPEND,
    TOPIC,
    Client,
    bodies_in,
    bounded,
    context_of,
    number,
    serving,
    until,
)

MESSAGES = 3
OTHER = "invoices"
WAITING: dict[str, Any] = {"flag": SUBSCRIPTION | SUSPEND, "suspendTimeoutMillis": 30_000}


@pytest.fixture(autouse=True)
def put_off_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LATER_S", 600.0)


def unique_id(n: int) -> str:
    return f"7F{n:030X}"


async def usual(client: Client, n: int, topic: str = TOPIC) -> None:
    """A send that has nothing unusual about it."""
    sent = await client.send(topic, b"%d" % n, properties={"UNIQ_KEY": unique_id(n)}, k=False)
    assert sent.code == ResponseCode.SUCCESS


def is_behind(broker: Broker) -> bool:
    store = context_of(broker).store
    return store.dispatched.value < store.appended.value


@contextlib.asynccontextmanager
async def behind(root: Path, **settings: Any) -> AsyncIterator[tuple[Broker, Client]]:
    """A broker with messages that are in the log and nowhere else."""
    async with serving(root, **settings) as broker:
        client = await Client.to(broker)
        for n in range(MESSAGES):
            await usual(client, n)
        assert is_behind(broker)
        yield broker, client


@bounded
async def test_a_pull_finds_them(tmp_path: Path) -> None:
    async with behind(tmp_path) as (_, client):
        assert bodies_in(await client.pull()) == [b"0", b"1", b"2"]


@bounded
async def test_another_connection_finds_them(tmp_path: Path) -> None:
    async with behind(tmp_path) as (broker, _):
        other = await Client.to(broker)
        assert bodies_in(await other.pull()) == [b"0", b"1", b"2"]


@bounded
async def test_offsets_count_them(tmp_path: Path) -> None:
    async with behind(tmp_path) as (_, client):
        asked = {"topic": TOPIC, "queueId": 0}
        assert number(await client.ask(RequestCode.GET_MAX_OFFSET, asked), "offset") == MESSAGES


@bounded
async def test_their_keys_are_found(tmp_path: Path) -> None:
    async with behind(tmp_path) as (_, client):
        asked = {
            "topic": TOPIC, "key": unique_id(2), "maxNum": 9, "beginTimestamp": 0,
            "endTimestamp": 2**62, "_UNIQUE_KEY_QUERY": "true",
        }  # fmt: skip
        assert bodies_in(await client.ask(RequestCode.QUERY_MESSAGE, asked)) == [b"2"]


@bounded
async def test_a_topic_that_is_deleted_does_not_come_back_with_them(tmp_path: Path) -> None:
    async with behind(tmp_path) as (broker, client):
        gone = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
        assert gone.code == ResponseCode.SUCCESS
        store = context_of(broker).store
        context_of(broker).turns.catch_up()
        assert store.queues.get(queue_key(TOPIC, 0)) is None


@bounded
async def test_metrics_count_them(tmp_path: Path) -> None:
    async with behind(tmp_path) as (broker, _):
        families = {family.name: family for family in await broker_families(broker)}
        assert value(families["rocketmq_storage_dispatch_behind_bytes"]) == 0


def value(family: Family) -> float:
    ((_, found),) = family.samples
    assert isinstance(found, int | float)
    return found


@bounded
async def test_who_waits_for_the_topic_gets_the_next_one_at_once(tmp_path: Path) -> None:
    async with behind(tmp_path) as (broker, client):
        waiting_pulls = context_of(broker).waiting_pulls
        waiting = asyncio.create_task(client.pull(offset=MESSAGES, **WAITING))
        await until(lambda: len(waiting_pulls) == 1)
        producer = await Client.to(broker)
        await usual(producer, MESSAGES)
        assert bodies_in(await waiting) == [b"3"]
        assert not waiting_pulls.awaits(TOPIC)


@bounded
async def test_who_waits_for_another_topic_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        consumer, producer = await Client.to(broker), await Client.to(broker)
        await usual(producer, 0, OTHER)
        await usual(producer, 0)
        waiting = asyncio.create_task(consumer.pull(OTHER, offset=1, **WAITING))
        await until(lambda: context_of(broker).waiting_pulls.awaits(OTHER))
        await usual(producer, 1)
        assert is_behind(broker)
        await usual(producer, 1, OTHER)
        assert bodies_in(await waiting) == [b"1"]
        assert not is_behind(broker)


@bounded
async def test_they_are_there_after_a_restart(tmp_path: Path) -> None:
    async with behind(tmp_path):
        pass
    async with serving(tmp_path) as broker:
        store = context_of(broker).store
        assert store.queues.get(queue_key(TOPIC, 0)) is not None
        assert bodies_in(await (await Client.to(broker)).pull()) == [b"0", b"1", b"2"]
