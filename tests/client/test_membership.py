"""Members of a group share its queues: they join, leave, die, and each queue has one of them."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

from cometmq.client.consumer.options import PushOptions
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.errors import NoPermission
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.command import Response
from cometmq.protocol.message_queue import MessageQueue
from cometmq.testing import EmbeddedBroker
from tests.broker.brokers import Client, until
from tests.client.clusters import scripted
from tests.testing.clients import connected

from .consumption import (
    GROUP,
    SOON_S,
    TOPIC,
    Heard,
    Sender,
    lively,
    numbered,
    queues_of,
    sending,
    shop,
    until_shared,
)

QUEUES = 6
QUICK = PushOptions(commit_interval_s=0.05, stop_timeout_s=5.0)


def member_of(broker: EmbeddedBroker, heard: Heard, **how: Any) -> PushConsumer:
    given = {"group": GROUP, "topics": TOPIC, "options": QUICK, "handler": heard, **how}
    return PushConsumer(broker.namesrv, **given)


async def one_to_each_queue(sender: Sender, prefix: str) -> list[bytes]:
    bodies = numbered(QUEUES, prefix)
    for queue_id, body in enumerate(bodies):
        await sender.send(body, queue_id=queue_id)
    return bodies


async def test_members_share_the_queues_as_they_join_and_leave() -> None:
    heard = Heard()
    async with shop(QUEUES) as (broker, sender), contextlib.AsyncExitStack() as stack:
        members = [await stack.enter_async_context(member_of(broker, heard))]
        for count in (2, 3):
            members.append(await stack.enter_async_context(member_of(broker, heard)))
            await until_shared(members, QUEUES)
            assert {len(queues_of(member)) for member in members} == {QUEUES // count}
            await heard.has(*await one_to_each_queue(sender, f"{count} members "))
        for count in (2, 1):
            await members.pop(0).stop()
            await until_shared(members, QUEUES)
            await heard.has(*await one_to_each_queue(sender, f"{count} left "))


async def test_what_a_member_had_in_hand_when_it_left_is_not_consumed_again() -> None:
    heard = Heard()
    async with shop(QUEUES) as (broker, sender):
        first = member_of(broker, heard)
        await first.start()
        bodies = await one_to_each_queue(sender, "once ")
        await heard.counts(QUEUES)
        await first.stop()
        async with member_of(broker, heard):
            bodies += await one_to_each_queue(sender, "then ")
            await heard.has(*bodies)
    assert sorted(heard.bodies) == sorted(bodies)


async def join(client: Client, client_id: str) -> None:
    """A member that takes its share and never consumes."""
    topics = {TOPIC: "*", f"%RETRY%{GROUP}": "*"}
    answer = await client.heartbeat(client_id, GROUP, topics=topics)
    assert answer.code == 0


async def test_the_queues_of_a_member_that_died_are_taken_over() -> None:
    heard = Heard()
    async with shop(QUEUES) as (broker, sender), member_of(broker, heard, client_id="b") as alive:
        async with connected(broker.address) as dying:
            await join(dying, "a")
            await until(lambda: len(queues_of(alive)) == QUEUES // 2)
            bodies = await one_to_each_queue(sender, "some wait ")
            await heard.counts(QUEUES // 2)
        await until_shared([alive], QUEUES)
        await heard.has(*bodies)


async def test_a_member_that_dies_while_queues_are_shared_out_costs_nothing() -> None:
    heard = Heard()
    async with shop(QUEUES) as (broker, sender), member_of(broker, heard, client_id="b") as alive:
        sent: list[bytes] = []
        for number in range(10):
            async with connected(broker.address) as dying:
                await join(dying, f"a{number}")
                sent += await one_to_each_queue(sender, f"{number} ")
        await until_shared([alive], QUEUES)
        await heard.has(*sent)
        for queue_id in range(QUEUES):
            await sender.reaches(10, queue_id)


async def test_a_handler_that_blocks_costs_the_group_no_rebalance() -> None:
    changes: list[set[MessageQueue]] = []
    go, begun = asyncio.Event(), asyncio.Event()

    async def handle(_: ReceivedMessage) -> None:
        begun.set()
        await go.wait()

    settings = {"channelExpiredTimeout": 1000}
    async with shop(2, settings=settings) as (broker, sender):
        how: dict[str, Any] = {"group": GROUP, "topics": TOPIC, "options": QUICK}
        async with PushConsumer(lively(broker), handler=handle, **how) as consumer:
            await sender.send(b"blocks")
            await begun.wait()
            await until(lambda: len(consumer.queues) == 3)
            reader = consumer._reader
            reader.membership._on_change = lambda queues: record(changes, queues)
            for _ in range(12):
                await broker.advance(0.9)
                await asyncio.sleep(0.25)
            assert len(await sender.client.consumer_ids(GROUP)) == 1
            go.set()
            await sender.reaches(1)
    assert changes == []


async def record(changes: list[set[MessageQueue]], queues: set[MessageQueue]) -> None:
    changes.append(queues)


async def test_an_allocation_of_ones_own() -> None:
    heard = Heard()

    def even_to_a(
        _: str, client_id: str, queues: Sequence[MessageQueue], __: Sequence[str]
    ) -> list[MessageQueue]:
        return [queue for queue in queues if (queue.queue_id % 2 == 0) == (client_id == "a")]

    async with (
        shop(QUEUES) as (broker, sender),
        member_of(broker, heard, client_id="a", allocation=even_to_a) as even,
        member_of(broker, heard, client_id="b", allocation=even_to_a) as odd,
    ):
        await until_shared([even, odd], QUEUES)
        assert [queue.queue_id for queue in queues_of(even)] == [0, 2, 4]
        await heard.has(*await one_to_each_queue(sender, "both "))


async def test_an_allocation_that_breaks_leaves_a_member_what_it_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard = Heard()
    broken = False

    def allocation(
        _: str, __: str, queues: Sequence[MessageQueue], ___: Sequence[str]
    ) -> list[MessageQueue]:
        if broken:
            raise ZeroDivisionError
        return list(queues)

    async with shop(QUEUES) as (broker, sender):
        how: dict[str, Any] = {"group": GROUP, "topics": TOPIC, "allocation": allocation}
        async with PushConsumer(lively(broker), handler=heard, **how) as consumer:
            broken = True
            async with connected(broker.address) as other:
                await join(other, "other")
                await until(lambda: "cannot be shared out" in caplog.text)
                await heard.has(*await one_to_each_queue(sender, "still "))
                broken = False
                await broker.create_topic(TOPIC, QUEUES + 1)
                await until_shared([consumer], QUEUES + 1)


async def test_members_agree_after_a_broker_restart() -> None:
    heard = Heard()
    async with EmbeddedBroker(in_memory=True, brokers=2) as broker:
        await broker.create_topic(TOPIC, 3)
        async with contextlib.AsyncExitStack() as stack:
            members = [
                await stack.enter_async_context(
                    PushConsumer(lively(broker), group=GROUP, topics=TOPIC, handler=heard)
                )
                for _ in range(3)
            ]
            await until_shared(members, 6)
            await broker.restart(0, abrupt=True)
            await broker.restart(1)
            await until_shared(members, 6)
            for number, address in enumerate(broker.addresses):
                async with sending(address) as sender:
                    await sender.members(3)
                    for queue_id in range(3):
                        await sender.send(f"{number} {queue_id}".encode(), queue_id=queue_id)
            await heard.counts(6)


async def test_a_nameserver_restart_is_not_even_noticed() -> None:
    heard = Heard()
    async with (
        shop(2) as (broker, sender),
        PushConsumer(lively(broker), group=GROUP, topics=TOPIC, handler=heard),
    ):
        await sender.send(b"before")
        await heard.has(b"before")
        await broker.stop_namesrv()
        await sender.send(b"without any")
        await heard.has(b"without any")
        await broker.start_namesrv()
        await broker.create_topic(TOPIC, 3)
        await sender.send(b"in a new queue", queue_id=2)
        await until(lambda: b"in a new queue" in heard.bodies, SOON_S)


async def test_a_broker_that_does_not_want_us_is_an_error_at_the_start() -> None:
    async with scripted(brokers=2) as cluster:
        cluster.in_route = ["broker-b"]  # The other one is the NameServer, too.
        cluster.welcome = Response(16, "who are you?")
        consumer = PushConsumer(cluster.namesrv, group=GROUP, topics=TOPIC, handler=print)
        with pytest.raises(NoPermission, match="who are you"):
            await consumer.start()


async def test_a_broker_that_is_away_does_not_keep_a_consumer_from_starting() -> None:
    async with scripted(brokers=2) as cluster:
        cluster.in_route = ["broker-b"]
        cluster.welcome = Response(14, "not now")
        async with PushConsumer(cluster.namesrv, group=GROUP, topics=TOPIC, handler=print) as away:
            assert away.queues == []
