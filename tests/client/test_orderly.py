"""Orderly consumption: each queue one message after the other, at one member at a time."""

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from cometmq.client.consumer import orderly
from cometmq.client.consumer.handling import Later
from cometmq.client.consumer.options import PushOptions
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.message_queue import MessageQueue
from cometmq.testing import EmbeddedBroker
from tests.broker.brokers import Client, until

from .consumption import (
    GROUP,
    SOON_S,
    TOPIC,
    Heard,
    lively,
    numbered,
    queues_of,
    sending,
    shop,
    until_shared,
)

QUICK = PushOptions(suspend_s=0.01, commit_interval_s=0.05, stop_timeout_s=5.0)
OTHER = "a member that is no consumer of ours"


def consumer_of(broker: EmbeddedBroker, **how: Any) -> PushConsumer:
    given = {"group": GROUP, "topics": TOPIC, "orderly": True, "options": QUICK, **how}
    return PushConsumer(lively(broker), **given)


class Watched:
    """A handler that fails the test when it overlaps with itself for one queue.

    All members of a group share one, so it also sees two members work on one queue.
    """

    def __init__(self) -> None:
        self.bodies: dict[int, list[bytes]] = defaultdict(list)
        self.at_work: set[MessageQueue] = set()
        self.overlaps: list[MessageQueue] = []

    @contextlib.asynccontextmanager
    async def working(self, message: ReceivedMessage) -> AsyncIterator[None]:
        queue = message.queue
        if queue in self.at_work:
            self.overlaps.append(queue)
        self.at_work.add(queue)
        try:
            yield
        finally:
            self.at_work.discard(queue)

    def done(self, message: ReceivedMessage) -> None:
        self.bodies[message.queue.queue_id].append(message.body)

    async def __call__(self, message: ReceivedMessage) -> None:
        async with self.working(message):
            await asyncio.sleep(0.001)
            self.done(message)

    def first_times(self, queue_id: int) -> list[bytes]:
        """Without the repetitions that at-least-once allows."""
        return list(dict.fromkeys(self.bodies[queue_id]))


class Slow:
    """Works as the other does, when it is told to go on."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, message: ReceivedMessage) -> None:
        async with self._watched.working(message):
            self.begun.set()
            await self.go.wait()
            self._watched.done(message)


async def lock(client: Client, queue: MessageQueue, owner: str = OTHER) -> list[Any]:
    body = {"consumerGroup": GROUP, "clientId": owner, "mqSet": [queue], "onlyThisBroker": False}
    answer = await client.ask(41, {}, body)
    assert answer.code == 0
    locked: list[Any] = msgspec.json.decode(answer.body)["lockOKMQSet"]
    return locked


async def unlock(client: Client, queue: MessageQueue, owner: str = OTHER) -> None:
    body = {"consumerGroup": GROUP, "clientId": owner, "mqSet": [queue], "onlyThisBroker": False}
    assert (await client.ask(42, {}, body)).code == 0


async def test_each_queue_keeps_its_order_also_when_messages_fail() -> None:
    watched, failed = Watched(), set[bytes]()

    async def handle(message: ReceivedMessage) -> Later | None:
        async with watched.working(message):
            await asyncio.sleep(0)
            if int(message.body) % 7 == 3 and message.body not in failed:
                failed.add(message.body)
                return Later()
            watched.done(message)
            return None

    async with shop(3) as (broker, sender), consumer_of(broker, handler=handle):
        for number in range(60):
            await sender.send(str(number).encode(), queue_id=number % 3)
        for queue_id in range(3):
            await sender.reaches(20, queue_id)
    for queue_id in range(3):
        assert watched.bodies[queue_id] == [str(n).encode() for n in range(queue_id, 60, 3)]
    assert len(failed) == 9
    assert watched.overlaps == []


async def test_a_message_that_fails_tells_how_often_and_holds_up_the_ones_behind() -> None:
    told: list[tuple[bytes, int, str]] = []

    async def handle(message: ReceivedMessage) -> Later | None:
        told.append((message.body, message.reconsume_times, message.queue.topic))
        return Later() if message.body == b"0" and message.reconsume_times < 2 else None

    async with shop() as (broker, sender), consumer_of(broker, handler=handle):
        await sender.send(*numbered(2))
        await sender.reaches(2)
    assert told == [(b"0", 0, TOPIC), (b"0", 1, TOPIC), (b"0", 2, TOPIC), (b"1", 0, TOPIC)]


async def test_of_a_batch_only_what_is_not_done_comes_again() -> None:
    batches: list[list[bytes]] = []

    async def handle(messages: list[ReceivedMessage]) -> Later | None:
        batches.append([message.body for message in messages])
        return Later(done=2) if len(batches) == 1 else None

    options = PushOptions(batch_size=4, suspend_s=0.01, commit_interval_s=0.05)
    async with shop() as (broker, sender):
        await sender.send(*numbered(6))
        async with consumer_of(broker, batch_handler=handle, options=options):
            await sender.reaches(6)
    assert batches == [numbered(4), numbered(6)[2:]]


async def test_after_its_last_try_a_message_goes_to_the_dead_letters() -> None:
    heard = Heard()

    async def handle(message: ReceivedMessage) -> Later | None:
        await heard(message)
        return Later() if message.body == b"0" else None

    options = PushOptions(max_reconsume_times=2, suspend_s=0.01, commit_interval_s=0.05)
    async with shop() as (broker, sender), consumer_of(broker, handler=handle, options=options):
        await sender.send(*numbered(2))
        await sender.reaches(2)
        (dead,) = await sender.client.arrival(f"%DLQ%{GROUP}")
    assert dead.body == b"0"
    assert heard.bodies == [b"0", b"0", b"0", b"1"]


async def test_a_hopeless_message_goes_to_the_dead_letters_at_once() -> None:
    async def handle(message: ReceivedMessage) -> Later | None:
        return Later(delay_level=-1) if message.body == b"0" else None

    async with shop() as (broker, sender), consumer_of(broker, handler=handle):
        await sender.send(*numbered(2))
        await sender.reaches(2)
        (dead,) = await sender.client.arrival(f"%DLQ%{GROUP}")
    assert dead.body == b"0"


async def test_plain_functions_consume_in_order_off_the_loop() -> None:
    bodies: list[bytes] = []
    threads: set[str] = set()

    def handle(message: ReceivedMessage) -> None:
        threads.add(threading.current_thread().name)
        bodies.append(message.body)

    async with shop() as (broker, sender), consumer_of(broker, handler=handle):
        await sender.send(*numbered(30))
        await sender.reaches(30)
    assert bodies == numbered(30)
    assert all(name.startswith("cometmq-handler") for name in threads)


async def test_a_handler_whose_own_work_was_cancelled_does_not_end_its_queue() -> None:
    heard = Heard()

    async def handle(message: ReceivedMessage) -> None:
        await heard(message)
        if len(heard.messages) == 1:
            never = asyncio.get_running_loop().create_future()
            never.cancel()
            await never

    async with shop() as (broker, sender), consumer_of(broker, handler=handle):
        await sender.send(*numbered(2))
        await sender.reaches(2)
    assert heard.bodies == [b"0", b"0", b"1"]


# -- locks -----------------------------------------------------------------------------------------


async def test_a_queue_that_another_has_locked_is_not_consumed_until_it_is_free() -> None:
    heard = Heard()
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with shop() as (broker, sender):
        assert await lock(sender.client, queue)
        await sender.send(b"locked")
        async with consumer_of(broker, handler=heard):
            await asyncio.sleep(0.3)
            assert heard.bodies == []
            await unlock(sender.client, queue)
            await heard.has(b"locked")
            assert not await lock(sender.client, queue)


async def test_a_lost_lock_stops_consumption_until_it_is_regained() -> None:
    heard = Heard()
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with shop() as (broker, sender), consumer_of(broker, handler=heard) as consumer:
        await sender.send(b"before")
        await heard.has(b"before")
        await unlock(sender.client, queue, consumer.client_id)
        assert await lock(sender.client, queue)
        workers = consumer._workers
        assert isinstance(workers, orderly.OrderlyWorkers)
        assert workers._locks is not None
        await workers._locks._take([queue])  # What it does every 20 seconds.
        await sender.send(b"not ours")
        await asyncio.sleep(0.3)
        assert heard.bodies == [b"before"]
        await unlock(sender.client, queue)
        await heard.has(b"not ours")


async def test_a_stopped_member_lets_its_locks_go() -> None:
    queue = MessageQueue(TOPIC, "broker-a", 0)
    heard = Heard()
    async with shop() as (broker, sender):
        async with consumer_of(broker, handler=heard):
            await sender.send(b"mine")
            await heard.has(b"mine")
            assert not await lock(sender.client, queue)
        assert await lock(sender.client, queue)


async def test_the_lock_of_a_killed_member_ends_by_itself() -> None:
    heard = Heard()
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with shop() as (broker, sender):
        assert await lock(sender.client, queue, "killed")
        await sender.send(b"waiting")
        async with consumer_of(broker, handler=heard):
            await asyncio.sleep(0.2)
            assert heard.bodies == []
            await broker.advance(61)
            await heard.has(b"waiting")


async def test_a_lock_that_a_restarted_broker_gave_to_another_is_not_relied_on() -> None:
    heard = Heard()
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with EmbeddedBroker(in_memory=True) as broker:
        await broker.create_topic(TOPIC, 1)
        async with consumer_of(broker, handler=heard):
            async with sending(broker.address) as sender:
                await sender.send(b"before")
                await heard.has(b"before")
            await broker.restart(abrupt=True)  # It has forgotten our lock.
            async with sending(broker.address) as sender:
                assert await lock(sender.client, queue)
                await sender.send(b"after")
                await sender.members(1)
                await asyncio.sleep(0.3)
                assert heard.bodies == [b"before"]
                await unlock(sender.client, queue)
                await heard.has(b"after")


# -- members ---------------------------------------------------------------------------------------


async def test_members_come_and_go_and_no_queue_is_ever_worked_on_twice() -> None:
    watched = Watched()
    queues, count = 4, 60
    async with shop(queues) as (broker, sender), contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(consumer_of(broker, handler=watched))

        async def send() -> None:
            for number in range(count):
                for queue_id in range(queues):
                    await sender.send(str(number).encode(), queue_id=queue_id)

        sending = asyncio.create_task(send())
        second = await stack.enter_async_context(consumer_of(broker, handler=watched))
        await until_shared([first, second], queues)
        async with consumer_of(broker, handler=watched) as third:
            await until_shared([first, second, third], queues)
        await until_shared([first, second], queues)
        await first.stop()
        await until_shared([second], queues)
        await sending
        for queue_id in range(queues):
            await sender.reaches(count, queue_id)
    assert watched.overlaps == []
    for queue_id in range(queues):
        assert watched.first_times(queue_id) == numbered(count)


async def test_a_handler_that_outlives_the_rebalance_is_waited_for() -> None:
    watched = Watched()
    slow = Slow(watched)
    async with shop() as (broker, sender):
        await sender.send(*numbered(3))
        async with consumer_of(broker, handler=slow, client_id="b") as first:
            await slow.begun.wait()
            async with consumer_of(broker, handler=watched, client_id="a") as second:
                await until_shared([second], 1)
                await until(lambda: not queues_of(first))
                await asyncio.sleep(0.2)
                assert watched.bodies[0] == []
                slow.go.set()
                await sender.reaches(3)
    assert watched.overlaps == []
    assert watched.bodies[0] == numbered(3)


async def test_a_queue_that_comes_and_goes_while_its_handler_runs_never_overlaps() -> None:
    watched = Watched()
    slow = Slow(watched)
    async with shop() as (broker, sender):
        await sender.send(*numbered(3))
        async with consumer_of(broker, handler=slow) as consumer:
            await slow.begun.wait()
            reader = consumer._reader
            for _ in range(3):  # What quick changes in the group amount to.
                await reader.set_queues(set())
                await asyncio.sleep(0.02)
                await reader.set_queues({MessageQueue(TOPIC, "broker-a", 0)})
                await asyncio.sleep(0.02)
            queue = MessageQueue(TOPIC, "broker-a", 0)
            assert not await lock(sender.client, queue)  # It is still ours.
            slow.go.set()
            await sender.reaches(3)
    assert watched.overlaps == []
    assert watched.bodies[0] == numbered(3)


async def test_stopping_while_a_queue_is_given_up_waits_for_its_handler_too() -> None:
    watched = Watched()
    slow = Slow(watched)
    async with shop() as (broker, sender):
        await sender.send(*numbered(3))
        consumer = consumer_of(broker, handler=slow)
        await consumer.start()
        await slow.begun.wait()
        await consumer._reader.set_queues(set())
        stopping = asyncio.create_task(consumer.stop())
        await asyncio.sleep(0.1)
        assert not await lock(sender.client, MessageQueue(TOPIC, "broker-a", 0))
        assert not stopping.done()
        slow.go.set()
        await stopping
        assert await sender.committed() == 1
        assert await lock(sender.client, MessageQueue(TOPIC, "broker-a", 0))


async def test_a_member_that_waits_after_a_failure_lets_go_at_once() -> None:
    failed = asyncio.Event()

    async def handle(_: ReceivedMessage) -> Later:
        failed.set()
        return Later()

    options = PushOptions(suspend_s=60, commit_interval_s=0.05)
    async with shop() as (broker, sender):
        await sender.send(b"no")
        consumer = consumer_of(broker, handler=handle, options=options)
        await consumer.start()
        await failed.wait()
        async with asyncio.timeout(5):
            await consumer.stop()
        assert await lock(sender.client, MessageQueue(TOPIC, "broker-a", 0))


# -- resets ----------------------------------------------------------------------------------------


async def test_a_reset_forgets_what_was_read_ahead() -> None:
    heard, go = Heard(), asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        await heard(message)
        await go.wait()

    async with shop() as (broker, sender):
        await sender.send(*numbered(10))
        async with consumer_of(broker, handler=handle) as consumer:
            await heard.counts(1)
            consumer._reader.feeds[MessageQueue(TOPIC, "broker-a", 0)].reset(10)
            go.set()
            await sender.reaches(10)
            await sender.send(b"new")
            await heard.has(b"new")
    assert heard.bodies == [b"0", b"new"]


async def test_a_reset_while_a_dead_letter_is_on_its_way_loses_nothing() -> None:
    heard, sent_back, go = Heard(), asyncio.Event(), asyncio.Event()

    async def handle(message: ReceivedMessage) -> Later | None:
        await heard(message)
        return Later(delay_level=-1) if len(heard.messages) == 1 else None

    async with shop() as (broker, sender):
        await sender.send(*numbered(3))
        consumer = consumer_of(broker, handler=handle)
        workers_of = consumer._orderly_workers

        def workers_with_a_slow_way_back() -> orderly.OrderlyWorkers:
            workers = workers_of()
            assert workers._returns is not None
            send_back = workers._returns.send_back

            async def slowly(message: ReceivedMessage, delay_level: int) -> bool:
                sent_back.set()
                await go.wait()
                return await send_back(message, delay_level)

            workers._returns.send_back = slowly  # type: ignore[method-assign]
            return workers

        consumer._new_workers = workers_with_a_slow_way_back
        async with consumer:
            await sent_back.wait()
            feed = consumer._reader.feeds[MessageQueue(TOPIC, "broker-a", 0)]
            feed.reset(0)
            await until(lambda: feed.window is not None and feed.window.count == 3)
            go.set()
            await sender.reaches(3)
    assert heard.bodies == [b"0", *numbered(3)]


async def test_the_group_survives_a_broker_restart_in_order() -> None:
    watched = Watched()
    async with EmbeddedBroker(in_memory=True) as broker:
        await broker.create_topic(TOPIC, 1)
        async with consumer_of(broker, handler=watched):
            async with sending(broker.address) as sender:
                await sender.send(*numbered(20))
                await until(lambda: len(watched.bodies[0]) >= 5, SOON_S)
            await broker.restart(abrupt=True)
            async with sending(broker.address) as sender:
                await sender.send(*numbered(40)[20:])
                await sender.reaches(40)
    assert watched.first_times(0) == numbered(40)
    assert watched.overlaps == []
