"""Consumers that take messages when they like: poll, iteration, offsets, chosen queues."""

import asyncio
import datetime as dt
from typing import Any

import pytest

from cometmq.client.consumer.feed import FlowLimits
from cometmq.client.consumer.options import PullConsumerOptions
from cometmq.client.consumer.pull import PullConsumer
from cometmq.client.consumer.subscriptions import ConsumeFrom, Sql
from cometmq.client.errors import (
    BadSubscription,
    ClientError,
    IllegalArgument,
    NotStarted,
    TopicNotFound,
)
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.message_queue import MessageQueue
from cometmq.testing import EmbeddedBroker
from tests.broker.brokers import until

from .consumption import (
    GROUP,
    SOON_S,
    TOPIC,
    in_order,
    lively,
    numbered,
    queues_of,
    sending,
    shop,
    until_shared,
)

QUEUE = MessageQueue(TOPIC, "broker-a", 0)
QUICK = PullConsumerOptions(commit_interval_s=0.05)
MANUAL = PullConsumerOptions(auto_commit=False)


def consumer_of(broker: EmbeddedBroker, **how: Any) -> PullConsumer:
    return PullConsumer(
        broker.namesrv, **{"group": GROUP, "topics": TOPIC, "options": QUICK, **how}
    )


async def bodies_of(consumer: PullConsumer, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    async with asyncio.timeout(SOON_S):
        while len(bodies) < count:
            bodies += [message.body for message in await consumer.poll(0.5)]
    return bodies


async def read_ahead(consumer: PullConsumer, count: int) -> None:
    """Wait until so many messages wait here."""
    await until(lambda: len(consumer._ready) >= count)


# -- taking ----------------------------------------------------------------------------------------


async def test_polling_gets_what_there_is_and_what_comes() -> None:
    async with shop(2) as (broker, sender):
        await sender.send(*numbered(5, "a"))
        async with consumer_of(broker) as consumer:
            assert await bodies_of(consumer, 5) == numbered(5, "a")
            waiting = asyncio.create_task(consumer.poll(SOON_S))
            await asyncio.sleep(0.05)
            await sender.send(b"late", queue_id=1)
            assert [message.body for message in await waiting] == [b"late"]


async def test_a_poll_takes_no_more_than_it_is_asked_to() -> None:
    async with shop() as (broker, sender):
        await sender.send(*numbered(10))
        async with consumer_of(broker) as consumer:
            await read_ahead(consumer, 10)
            first = await consumer.poll(1, messages_max=4)
            second = await consumer.poll(1, messages_max=100)
    assert [message.body for message in [*first, *second]] == numbered(10)
    assert len(first) == 4


async def test_a_poll_whose_time_is_up_is_empty() -> None:
    async with shop() as (broker, _), consumer_of(broker) as consumer:
        assert await consumer.poll(0.05) == []
        assert await consumer.poll(0) == []


async def test_iterating_gets_one_after_the_other() -> None:
    got: list[bytes] = []
    async with shop() as (broker, sender):
        await sender.send(*numbered(20))
        async with consumer_of(broker) as consumer:
            async for message in consumer:
                got.append(message.body)
                if len(got) == 20:
                    break
    assert got == numbered(20)


async def test_stopping_ends_iterations_and_polls() -> None:
    async def iterate(consumer: PullConsumer) -> list[ReceivedMessage]:
        return [message async for message in consumer]

    async with shop() as (broker, _):
        consumer = consumer_of(broker)
        await consumer.start()
        iterating = asyncio.create_task(iterate(consumer))
        polling = asyncio.create_task(consumer.poll(60))
        await asyncio.sleep(0.05)
        await consumer.stop()
        async with asyncio.timeout(5):
            assert await iterating == []
            assert await polling == []
        with pytest.raises(NotStarted):
            await consumer.poll()


async def test_a_consumer_that_nobody_asks_reads_ahead_within_bounds() -> None:
    options = PullConsumerOptions(flow=FlowLimits(messages=20, span=0), pull_messages=8)
    async with shop() as (broker, sender):
        await sender.send(*numbered(100))
        async with consumer_of(broker, options=options) as consumer:
            await read_ahead(consumer, 20)
            await asyncio.sleep(0.1)
            assert len(consumer._ready) <= 27
            assert await bodies_of(consumer, 100) == numbered(100)


# -- what counts as consumed -----------------------------------------------------------------------


async def test_a_message_is_consumed_when_the_next_one_is_asked_for() -> None:
    async with shop() as (broker, sender):
        await sender.send(*numbered(3))
        async with consumer_of(broker) as consumer:
            await read_ahead(consumer, 3)
            await consumer.poll(1, messages_max=1)
            await asyncio.sleep(0.2)
            assert await sender.committed() == 0
            await consumer.poll(1, messages_max=1)
            await sender.reaches(1)
        # It was stopped between the second message and the third: the second comes again.
        assert await sender.committed() == 1
        async with consumer_of(broker) as consumer:
            assert await bodies_of(consumer, 2) == [b"1", b"2"]


async def test_without_auto_commit_only_commit_counts() -> None:
    async with shop() as (broker, sender):
        await sender.send(*numbered(4))
        async with consumer_of(broker, options=MANUAL) as consumer:
            assert await bodies_of(consumer, 4) == numbered(4)
            await consumer.poll(0)
        assert await sender.committed() == -1
        async with consumer_of(broker, options=MANUAL) as consumer:
            await read_ahead(consumer, 4)
            await consumer.poll(1, messages_max=3)
            await consumer.commit()
            assert await sender.committed() == 3
            assert await consumer.committed(QUEUE) == 3
            assert consumer.position(QUEUE) == 3
            await consumer.poll(1)
        assert await sender.committed() == 3


async def test_a_commit_that_fails_says_so() -> None:
    async with EmbeddedBroker(in_memory=True) as broker:
        await broker.create_topic(TOPIC, 1)
        async with consumer_of(broker, options=MANUAL) as consumer:
            await until(lambda: consumer.position(QUEUE) is not None)
            consumer.seek(QUEUE, 0)
            await broker.stop_broker()
            with pytest.raises(ClientError):
                await consumer.commit()
            await broker.start_broker()


# -- offsets ---------------------------------------------------------------------------------------


async def test_seeking_goes_on_elsewhere_and_forgets_what_waited() -> None:
    async with shop() as (broker, sender):
        await sender.send(*numbered(10))
        async with consumer_of(broker) as consumer:
            await read_ahead(consumer, 10)
            taken = await consumer.poll(1, messages_max=2)
            assert [message.body for message in taken] == [b"0", b"1"]
            consumer.seek(QUEUE, 7)
            assert await bodies_of(consumer, 3) == [b"7", b"8", b"9"]
            consumer.seek(QUEUE, 1)
            assert await bodies_of(consumer, 9) == numbered(10)[1:]
            await consumer.poll(0)
            await sender.reaches(10)


async def test_seeking_again_and_again_keeps_nothing_of_what_was_read() -> None:
    async with shop() as (broker, sender):
        await sender.send(*numbered(30))
        async with consumer_of(broker) as consumer:
            for _ in range(10):
                consumer.seek(QUEUE, 0)
                window = consumer._feed(QUEUE).window
                await until(lambda: window is not None and window.count == 30)  # noqa: B023
            assert len(consumer._ready) == 30
            assert await bodies_of(consumer, 30) == numbered(30)


async def test_the_ends_of_a_queue_can_be_sought() -> None:
    async with shop() as (broker, sender):
        await sender.send(*numbered(5))
        async with consumer_of(broker) as consumer:
            assert await consumer.min_offset(QUEUE) == 0
            assert await consumer.max_offset(QUEUE) == 5
            await consumer.seek_to_end(QUEUE)
            await sender.send(b"new")
            assert await bodies_of(consumer, 1) == [b"new"]
            await consumer.seek_to_beginning(QUEUE)
            assert await bodies_of(consumer, 6) == [*numbered(5), b"new"]


async def test_a_time_can_be_sought() -> None:
    async with shop() as (broker, sender):
        await sender.send(b"old")
        await broker.advance(3600)
        then = dt.datetime.fromtimestamp(broker.clock.now_ms() / 1000, dt.UTC)
        await broker.advance(1)
        await sender.send(b"new")
        async with consumer_of(broker) as consumer:
            consumer.seek(QUEUE, await consumer.offset_at(QUEUE, then))
            assert await bodies_of(consumer, 1) == [b"new"]


async def test_an_offset_that_cannot_be_is_refused() -> None:
    async with shop() as (broker, _), consumer_of(broker) as consumer:
        with pytest.raises(IllegalArgument, match="offset -1"):
            consumer.seek(QUEUE, -1)
        with pytest.raises(IllegalArgument, match="does not read"):
            consumer.seek(MessageQueue(TOPIC, "broker-z", 0), 0)


async def test_an_offset_beyond_the_end_leads_to_the_end() -> None:
    async with shop() as (broker, sender):
        await sender.send(*numbered(3))
        async with consumer_of(broker) as consumer:
            consumer.seek(QUEUE, 1000)
            await until(lambda: consumer.position(QUEUE) == 3)
            await sender.send(b"new")
            assert await bodies_of(consumer, 1) == [b"new"]


async def test_a_paused_queue_waits_while_others_go_on() -> None:
    other = MessageQueue(TOPIC, "broker-a", 1)
    async with shop(2) as (broker, sender), consumer_of(broker) as consumer:
        await until(lambda: consumer.position(QUEUE) is not None)
        consumer.pause([QUEUE])
        await sender.send(b"paused", queue_id=0)
        await sender.send(b"goes on", queue_id=1)
        assert await bodies_of(consumer, 1) == [b"goes on"]
        assert await consumer.poll(0.2) == []
        consumer.resume([QUEUE, other])
        assert await bodies_of(consumer, 1) == [b"paused"]


# -- groups and chosen queues ----------------------------------------------------------------------


async def test_members_share_queues_and_take_over_what_was_not_consumed() -> None:
    async with shop(4) as (broker, sender), consumer_of(broker) as first:
        async with consumer_of(broker) as second:
            await until_shared([first, second], 4)
            assert len(queues_of(first)) == len(queues_of(second)) == 2
            for queue_id in range(4):
                await sender.send(str(queue_id).encode(), queue_id=queue_id)
            await read_ahead(second, 2)
        await until_shared([first], 4)
        assert in_order(await bodies_of(first, 4)) == numbered(4)


async def test_chosen_queues_are_read_whoever_else_reads_them() -> None:
    async with shop(2) as (broker, sender):
        await sender.send(b"zero", queue_id=0)
        await sender.send(b"one", queue_id=1)
        how: dict[str, Any] = {"topics": (), "options": MANUAL, "consume_from": ConsumeFrom.FIRST}
        async with consumer_of(broker, **how) as one, consumer_of(broker, **how) as other:
            queues = await one.queues_of(TOPIC)
            assert [queue.queue_id for queue in queues] == [0, 1]
            await one.assign(queues)
            await other.assign(queues[1:])
            assert in_order(await bodies_of(one, 2)) == [b"one", b"zero"]
            assert await bodies_of(other, 1) == [b"one"]
            await other.assign(queues[:1])
            assert other.queues == queues[:1]
            assert await bodies_of(other, 1) == [b"zero"]
            with pytest.raises(TopicNotFound):
                await other.assign([MessageQueue("nowhere", "broker-a", 0)])
            with pytest.raises(IllegalArgument, match="cannot subscribe"):
                await other.subscribe(TOPIC)


async def test_a_member_that_shares_cannot_choose() -> None:
    async with shop() as (broker, _), consumer_of(broker) as consumer:
        with pytest.raises(IllegalArgument, match="cannot assign"):
            await consumer.assign([QUEUE])


async def test_topics_may_be_named_after_the_start() -> None:
    async with (
        shop(settings={"enablePropertyFilter": True}) as (broker, sender),
        consumer_of(broker, topics=()) as consumer,
    ):
        await sender.send(b"plain")
        with pytest.raises(BadSubscription):
            await consumer.subscribe(TOPIC, Sql("price >"))
        await consumer.subscribe(TOPIC, Sql("price > 1"))
        await sender.send(b"dear", price="2")
        assert await bodies_of(consumer, 1) == [b"dear"]
        await consumer.unsubscribe(TOPIC)
        await until(lambda: consumer.queues == [])


async def test_tags_are_told_apart_by_more_than_their_hash() -> None:
    async with shop() as (broker, sender):
        await sender.send(b"wrong", TAGS="BB")
        await sender.send(b"right", TAGS="Aa")
        async with consumer_of(broker, topics={TOPIC: "Aa"}) as consumer:
            assert await bodies_of(consumer, 1) == [b"right"]
            await consumer.poll(0)
            await sender.reaches(2)


async def test_it_starts_once() -> None:
    async with shop() as (broker, sender), consumer_of(broker) as consumer:
        with pytest.raises(IllegalArgument, match="starts once"):
            await consumer.start()
        await sender.send(b"still running")
        assert await bodies_of(consumer, 1) == [b"still running"]


@pytest.mark.parametrize("abrupt", [False, True])
async def test_a_broker_restart_loses_nothing(abrupt: bool) -> None:
    async with EmbeddedBroker(in_memory=True) as broker:
        await broker.create_topic(TOPIC, 1)
        how: dict[str, Any] = {"group": GROUP, "topics": TOPIC, "options": QUICK}
        async with PullConsumer(lively(broker), **how) as consumer:
            async with sending(broker.address) as sender:
                await sender.send(*numbered(20))
            got = await bodies_of(consumer, 1)
            await broker.restart(abrupt=abrupt)
            async with sending(broker.address) as sender:
                await sender.send(*numbered(40)[20:])
            async with asyncio.timeout(SOON_S):
                while set(got) != set(numbered(40)):
                    got += [message.body for message in await consumer.poll(0.5)]
    assert list(dict.fromkeys(got)) == numbered(40)
