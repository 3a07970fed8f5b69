"""The Python client while connections and servers fail, at CometMQ and at the real RocketMQ.

Senders and groups of every kind are at work, as in `tests/client/test_faults.py`, and the same
judge looks at the end whether something acknowledged was lost. Faults are between clients and
servers (`RouteProxy`), or the servers are killed: they belong to these tests alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import msgspec
import pytest
from tests.client.workload import Workload

from cometmq.client import cluster as clusters
from cometmq.client.admin import Admin
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.consumer.subscriptions import ConsumeFrom
from cometmq.client.errors import TopicNotFound
from cometmq.client.message import Message
from cometmq.client.producer.producer import Producer
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Request
from cometmq.protocol.heartbeat import ConsumerData, Heartbeat
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.subscription import tag_subscription
from cometmq.testing import Direction, FaultProxy, RouteProxy
from cometmq.transport.connection import Connection
from cometmq.transport.dial import connect
from interop import systems
from interop.rocketmq import cluster_info
from interop.systems import Cluster, System

QUEUES = 4
TEST_TIMEOUT_S = 180.0
WAIT_TIMEOUT_S = 40.0
RECOVER_S = 40.0
POLL_INTERVAL_S = 0.05
STALL_S = 10.0
AWAY_S = 2.0
# How often a broker tells its name servers of itself, at its fastest.
REGISTER_PERIOD_MS = 10_000
LIVELY = {"heartbeat_s": 1.0, "route_refresh_s": 1.0, "request_timeout_s": 1.0}


@pytest.fixture(scope="module")
def servers(system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp(f"faults-{system.name}")
    with systems.running(system, home, {"registerNameServerPeriod": REGISTER_PERIOD_MS}) as started:
        yield started


def run(work: Coroutine[Any, Any, None]) -> None:
    """What a callback raises and nobody sees is a fault, too."""
    unseen: list[dict[str, Any]] = []
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(lambda _, context: unseen.append(context))
        runner.run(asyncio.wait_for(work, TEST_TIMEOUT_S))
    assert unseen == []


@contextlib.asynccontextmanager
async def at_work(
    servers: Cluster, name: str, **where: Any
) -> AsyncIterator[tuple[RouteProxy, FaultProxy, Workload]]:
    """What the test leaves behind must recover by itself, and nothing may be lost."""
    async with RouteProxy(servers.namesrv.address) as routes:
        cluster = clusters.Cluster(routes.address, **where)
        await create_topic(cluster, name)
        async with Workload(cluster, name, prefix=f"{name}-") as work:
            yield routes, routes.to(servers.broker.address), work
            await work.recover(RECOVER_S)
            await work.verdict()


async def create_topic(cluster: clusters.Cluster, name: str) -> None:
    async with Admin(cluster) as admin, asyncio.timeout(WAIT_TIMEOUT_S):
        await admin.topics.create(name, queues=QUEUES)
        while not await has_route(admin, name):
            await asyncio.sleep(POLL_INTERVAL_S)


async def has_route(admin: Admin, topic: str) -> bool:
    try:
        await admin.topics.route(topic)
    except TopicNotFound:
        return False
    return True


async def until(fact: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    while not await asyncio.to_thread(fact):
        assert time.monotonic() < deadline, f"not within {WAIT_TIMEOUT_S:g} s: {what}"
        await asyncio.sleep(POLL_INTERVAL_S)


def is_registered(servers: Cluster) -> bool:
    return servers.broker.address.encode() in (cluster_info(servers.namesrv.address) or b"")


def test_connections_that_are_cut_lose_nothing(servers: Cluster, unique_name: str) -> None:
    async def scenario() -> None:
        chance = random.Random(1)
        async with at_work(servers, unique_name, **LIVELY) as (routes, proxy, _):
            for _ in range(8):
                proxy.cut()
                routes.namesrv.cut()
                await asyncio.sleep(chance.uniform(0.0, 0.5))

    run(scenario())


@pytest.mark.parametrize("direction", list(Direction), ids=lambda way: way.name)
def test_connections_that_are_cut_in_the_middle_of_frames_lose_nothing(
    servers: Cluster, unique_name: str, direction: Direction
) -> None:
    async def scenario() -> None:
        chance = random.Random(2)
        async with at_work(servers, unique_name, **LIVELY) as (_, proxy, _):
            for _ in range(8):
                cuts = proxy.traffic.cuts
                proxy.cut_after(chance.randint(1, 3000), direction)
                async with asyncio.timeout(RECOVER_S):
                    while proxy.traffic.cuts == cuts:
                        await asyncio.sleep(0.01)

    run(scenario())


def test_connections_that_died_in_silence_are_replaced(servers: Cluster, unique_name: str) -> None:
    """The broker takes the dead ones for alive meanwhile."""

    async def scenario() -> None:
        async with at_work(servers, unique_name, **LIVELY) as (routes, proxy, work):
            proxy.silence()
            routes.namesrv.silence()
            await work.recover(RECOVER_S)

    run(scenario())


def test_a_stall_of_ten_seconds_loses_nothing(servers: Cluster, unique_name: str) -> None:
    """With the settings that users have."""

    async def scenario() -> None:
        async with at_work(servers, unique_name) as (_, proxy, _):
            proxy.stall()
            await asyncio.sleep(STALL_S)
            proxy.resume()

    run(scenario())


def test_a_broker_that_is_killed_and_comes_back_has_lost_nothing(
    servers: Cluster, unique_name: str
) -> None:
    async def scenario() -> None:
        async with at_work(servers, unique_name, **LIVELY) as (_, _, work):
            await asyncio.to_thread(servers.broker.kill)
            await work.lose_locks()
            await asyncio.to_thread(servers.broker.start)

    run(scenario())


def test_a_name_server_that_is_killed_and_comes_back_is_not_missed(
    servers: Cluster, unique_name: str
) -> None:
    async def scenario() -> None:
        async with at_work(servers, unique_name, **LIVELY) as (_, _, work):
            await asyncio.to_thread(servers.namesrv.kill)
            await asyncio.sleep(AWAY_S)
            await work.recover(RECOVER_S)
            assert work.ledger.failures == []
            await asyncio.to_thread(servers.namesrv.start)
            await until(lambda: is_registered(servers), "the broker has registered again")

    run(scenario())


def test_an_end_that_the_broker_has_not_noticed_costs_a_member_no_queue(
    servers: Cluster, unique_name: str
) -> None:
    """RocketMQ lists a member twice then, until it takes the first connection for gone."""

    async def scenario() -> None:
        cluster = clusters.Cluster(servers.namesrv.address)
        await create_topic(cluster, unique_name)
        came: asyncio.Queue[int] = asyncio.Queue()

        async def handle(message: ReceivedMessage) -> None:
            await came.put(message.queue.queue_id)

        consumer = PushConsumer(
            cluster, group=unique_name, topics=unique_name, handler=handle,
            consume_from=ConsumeFrom.FIRST,
        )  # fmt: skip
        async with contextlib.AsyncExitStack() as stack:
            forgotten = await connect(servers.broker.address)
            stack.callback(forgotten.close)
            await register(forgotten, consumer.client_id, unique_name)
            await stack.enter_async_context(consumer)
            producer = await stack.enter_async_context(Producer(cluster, group="senders"))
            for number in range(QUEUES):
                queue = MessageQueue(unique_name, "broker-a", number)
                await producer.send(Message(unique_name, b"order"), queue=queue)
            async with asyncio.timeout(RECOVER_S):
                assert {await came.get() for _ in range(QUEUES)} == set(range(QUEUES))

    run(scenario())


async def register(connection: Connection, client_id: str, name: str) -> None:
    """As a member of the group `name` that subscribes to the topic `name`."""
    wanted = [tag_subscription(name, "*", 1), tag_subscription(f"%RETRY%{name}", "*", 1)]
    heartbeat = Heartbeat(
        client_id, consumer_data_set=[ConsumerData(name, subscription_data_set=wanted)]
    )
    request = Request(RequestCode.HEART_BEAT, {}, msgspec.json.encode(heartbeat))
    answer = await connection.request(request, WAIT_TIMEOUT_S)
    assert answer.code == 0, answer.remark
