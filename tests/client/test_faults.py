"""Faults under load: nothing acknowledged is lost, and everyone works again when they are over.

Every test has senders and groups of all kinds at work (`workload`), lets one thing go wrong, waits
until messages flow through every queue again, and has the ledger judged (`ledger`).
"""

import asyncio
import contextlib
import functools
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from cometmq.broker import locks as broker_locks
from cometmq.client.cluster import Cluster
from cometmq.client.consumer import locks
from cometmq.client.message import Message
from cometmq.client.producer.producer import Producer
from cometmq.protocol.message_queue import MessageQueue
from cometmq.testing import Direction, EmbeddedBroker
from tests.broker.brokers import until
from tests.transport.conftest import LOOPS as ALL_LOOPS

from .ledger import Group, Ledger
from .member import Member
from .workload import CONCURRENT, ORDERLY, TOPIC, Workload, consumer_of

LOOPS = ALL_LOOPS[-1:]
"""One loop is enough where seconds go by."""

FAULT_S = 0.5
RECOVER_S = 10.0
LOCK_LIVES_S = 61.0
DIRECTIONS = pytest.mark.parametrize("direction", list(Direction), ids=lambda way: way.value)


def quick(namesrv: str, heartbeat_s: float = 0.3) -> Cluster:
    """Everything that happens by the clock happens soon."""
    return Cluster(
        namesrv,
        request_timeout_s=0.5,
        connect_timeout_s=0.5,
        route_refresh_s=0.3,
        heartbeat_s=heartbeat_s,
    )


@contextlib.asynccontextmanager
async def at_work(
    *,
    brokers: int = 1,
    cluster: Callable[[str], Cluster] = quick,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[tuple[EmbeddedBroker, Workload]]:
    """What the test leaves behind must recover by itself, and nothing may be lost."""
    async with EmbeddedBroker(
        in_memory=True, brokers=brokers, through_proxy=True, settings=settings
    ) as broker:
        await broker.create_topic(TOPIC, 4)
        async with Workload(cluster(broker.namesrv), TOPIC, **options) as work:
            yield broker, work
            await work.recover(RECOVER_S)
            await work.verdict()


# -- servers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("abrupt", [False, True], ids=["in order", "abrupt"])
async def test_a_broker_restarts(abrupt: bool) -> None:
    async with at_work() as (broker, work):
        await broker.stop_broker(abrupt=abrupt)
        await work.lose_locks()
        await asyncio.sleep(FAULT_S)
        await broker.start_broker()


async def test_a_name_server_restarts_and_nobody_who_has_routes_notices() -> None:
    async with at_work() as (broker, work):
        await broker.stop_namesrv()
        await asyncio.sleep(FAULT_S)
        await work.recover(RECOVER_S)
        assert work.ledger.failures == []
        await broker.start_namesrv()


async def test_broker_and_name_server_restart_together() -> None:
    async with at_work() as (broker, work):
        await broker.stop_namesrv()
        await broker.stop_broker(abrupt=True)
        await work.lose_locks()
        await asyncio.sleep(FAULT_S)
        await broker.start_broker()
        await broker.start_namesrv()


async def test_one_of_two_brokers_goes_away_and_comes_back() -> None:
    async with at_work(brokers=2) as (broker, work):
        await broker.stop_broker(0, abrupt=True)
        await work.lose_locks()
        acknowledged = set(work.ledger.acknowledged)
        await asyncio.sleep(2 * FAULT_S)
        meanwhile = work.ledger.acknowledged.keys() - acknowledged
        failed = [failure for failure in work.ledger.failures if failure.startswith("one:")]
        assert any(body.startswith(b"one ") for body in meanwhile)
        assert failed == []  # A send's own retries found the other broker.
        await broker.start_broker(0)


async def test_orderly_members_lock_anew_at_a_broker_that_forgot_its_locks() -> None:
    async with at_work(kinds=(ORDERLY,), handler_s=0.3, is_flooded=False) as (broker, work):
        for _ in range(2):
            await broker.stop_broker(abrupt=True)
            await work.lose_locks()
            await broker.start_broker()
            await work.recover(RECOVER_S)


# -- connections ---------------------------------------------------------------------------------


async def test_connections_are_cut_again_and_again() -> None:
    chance = random.Random(1)
    async with at_work() as (broker, _):
        for _ in range(10):
            broker.proxy().cut()
            broker.namesrv_proxy.cut()
            await asyncio.sleep(chance.uniform(0.0, 0.3))


@DIRECTIONS
async def test_connections_are_cut_in_the_middle_of_frames(direction: Direction) -> None:
    chance = random.Random(2)
    async with at_work() as (broker, _):
        proxy = broker.proxy()
        for _ in range(10):
            cuts = proxy.traffic.cuts
            proxy.cut_after(chance.randint(1, 3000), direction)
            async with asyncio.timeout(RECOVER_S):
                while proxy.traffic.cuts == cuts:
                    await asyncio.sleep(0.01)


async def test_a_stall_of_ten_seconds_with_the_settings_that_users_have() -> None:
    async with at_work(cluster=Cluster) as (broker, _):
        broker.proxy().stall()
        await asyncio.sleep(10.0)
        broker.proxy().resume()


@pytest.mark.parametrize("name_server", [False, True], ids=["broker", "broker and NameServer"])
async def test_a_stall_that_ends(name_server: bool) -> None:
    async with at_work() as (broker, _):
        proxies = [broker.proxy(), *([broker.namesrv_proxy] if name_server else [])]
        for proxy in proxies:
            proxy.stall()
        await asyncio.sleep(2 * FAULT_S)
        for proxy in proxies:
            proxy.resume()


@DIRECTIONS
async def test_one_direction_loses_everything(direction: Direction) -> None:
    async with at_work() as (broker, _):
        broker.proxy().drop(direction)
        await asyncio.sleep(2 * FAULT_S)
        broker.proxy().restore()


async def test_connections_that_died_in_silence_are_replaced_before_the_next_heartbeat() -> None:
    async with at_work(cluster=functools.partial(quick, heartbeat_s=60.0)) as (broker, work):
        for proxy in (broker.proxy(), broker.namesrv_proxy):
            proxy.silence()
        await work.recover(RECOVER_S)


async def test_nobody_can_connect_for_a_while() -> None:
    async with at_work() as (broker, _):
        for proxy in (broker.proxy(), broker.namesrv_proxy):
            proxy.refuse()
            proxy.cut()
        await asyncio.sleep(FAULT_S)
        for proxy in (broker.proxy(), broker.namesrv_proxy):
            proxy.accept()


# -- members -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CONCURRENT, ORDERLY])
async def test_a_member_is_killed_while_queues_are_handed_over_to_it(kind: str) -> None:
    async with at_work(kinds=(kind,)) as (broker, work):
        cluster, group = quick(broker.namesrv), work.group(kind)
        async with Member.running(cluster, TOPIC, kind, work.ledger, group) as member:
            await member.is_at_work()  # Its first message: the other queues are on their way.
            await member.kill()
        # The clock takes everybody's locks: nobody may be about to hand a queue over then.
        await work.settled(RECOVER_S)
        await broker.advance(LOCK_LIVES_S)  # Who is dead unlocks nothing.


async def test_a_member_that_stood_still_begins_nothing_without_its_locks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_locks, "LOCK_MS", 2000)
    monkeypatch.setattr(locks, "LIVES_S", 1.0)
    monkeypatch.setattr(locks, "RENEW_S", 0.6)
    async with at_work(
        kinds=(ORDERLY,), settings={"channelExpiredTimeout": 1000}, handler_s=0.02, is_flooded=False
    ) as (broker, work):
        group = work.group(ORDERLY)
        async with Member.running(
            quick(broker.namesrv), TOPIC, ORDERLY, work.ledger, group,
            handler_s=0.02, lock_lives_s=1.0,
        ) as member:  # fmt: skip
            await member.is_at_work()
            await work.recover(RECOVER_S)
            member.freeze()
            await asyncio.sleep(1.5)
            await broker.advance(0)  # The broker looks who is silent.
            await work.recover(RECOVER_S)  # The others have its queues now.
            member.thaw()
            await work.recover(RECOVER_S)
            had = len(group.deliveries)
            await work.ledger.until(
                lambda: any(one.member == member.name for one in group.deliveries[had:]),
                "it takes part again",
                RECOVER_S,
            )


async def test_a_lock_that_could_not_be_released_is_released_when_its_broker_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ledger = Ledger()
    group = ledger.group(ORDERLY, is_orderly=True)
    async with EmbeddedBroker(in_memory=True, brokers=2, through_proxy=True) as broker:
        await broker.create_topic(TOPIC, 1)
        cluster = quick(broker.namesrv)
        far, near = (MessageQueue(TOPIC, f"broker-{letter}", 0) for letter in "ab")
        first = consumer_of(cluster, ledger, group, "first", client_id="#2")
        second = consumer_of(cluster, ledger, group, "second", client_id="#1")
        async with Producer(cluster, group="senders") as producer, first:
            await sent_and_consumed(producer, ledger, group, far, near)
            broker.proxy(0).refuse()
            broker.proxy(0).cut()
            async with second:
                await until(lambda: "could not be released" in caplog.text)
                assert far not in first.queues
                broker.proxy(0).accept()
                await sent_and_consumed(producer, ledger, group, far, near)
    last = {one.place[0]: one.member for one in group.deliveries}
    assert last == {far: "second", near: "first"}


async def sent_and_consumed(
    producer: Producer, ledger: Ledger, group: Group, *queues: MessageQueue
) -> None:
    bodies = []
    for queue in queues:
        body = ledger.next_body("order")
        await producer.send(Message(TOPIC, body), queue=queue)
        bodies.append(body)
    await ledger.until(lambda: group.bodies_done.issuperset(bodies), f"{bodies} come", RECOVER_S)
