"""Consumers that get messages as they come, concurrently: outcomes, limits, start and stop."""

import asyncio
import contextlib
import datetime as dt
import logging
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from cometmq.client.consumer import concurrent
from cometmq.client.consumer.feed import FlowLimits
from cometmq.client.consumer.handling import Later
from cometmq.client.consumer.options import PushOptions
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.consumer.subscriptions import ConsumeFrom, Sql
from cometmq.client.errors import BadSubscription, IllegalArgument, Unreachable
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.message_queue import MessageQueue
from cometmq.testing import EmbeddedBroker
from tests.broker.brokers import until

from .consumption import (
    GROUP,
    SOON_S,
    TOPIC,
    Heard,
    Sender,
    in_order,
    lively,
    numbered,
    sending,
    shop,
    until_due,
)

DEAD_LETTERS = f"%DLQ%{GROUP}"
FORGETFUL = {
    "mappedFileSizeCommitLog": 64 * 1024,
    "fileReservedTime": 1,
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
}
"""Settings of a broker that deletes what is over an hour old, at any hour."""
QUICK = PushOptions(commit_interval_s=0.05, stop_timeout_s=5.0)


def consumer_of(broker: EmbeddedBroker, **how: Any) -> PushConsumer:
    given = {"group": GROUP, "topics": TOPIC, "options": QUICK, **how}
    return PushConsumer(broker.namesrv, **given)


# -- outcomes --------------------------------------------------------------------------------------


async def test_messages_sent_before_and_after_the_start_are_consumed_and_committed() -> None:
    heard = Heard()
    async with shop() as (broker, sender):
        await sender.send(*numbered(40))
        async with consumer_of(broker, handler=heard):
            await heard.counts(40)
            await sender.send(b"late")
            await heard.has(b"late")
            await sender.reaches(41)
    assert in_order(heard.bodies) == [*numbered(40), b"late"]


async def test_a_message_that_failed_comes_again_as_the_same_message() -> None:
    heard = Heard()

    async def handle(message: ReceivedMessage) -> Later | None:
        await heard(message)
        return Later() if message.reconsume_times < 2 else None

    async with shop() as (broker, sender), consumer_of(broker, handler=handle):
        await sender.send(b"try me", KEYS="k1")
        await until_due(broker, lambda: len(heard.messages) == 3, step_s=30)
    assert [message.reconsume_times for message in heard.messages] == [0, 1, 2]
    assert {message.topic for message in heard.messages} == {TOPIC}
    assert {message.message_id for message in heard.messages} == {f"{1:032X}"}
    assert {message.queue.topic for message in heard.messages[1:]} == {f"%RETRY%{GROUP}"}
    assert heard.messages[2].keys == ["k1"]


async def test_a_delay_level_decides_when_a_message_comes_again() -> None:
    heard = Heard()

    async def handle(message: ReceivedMessage) -> Later | None:
        await heard(message)
        return Later(delay_level=2) if message.reconsume_times == 0 else None

    async with shop() as (broker, sender), consumer_of(broker, handler=handle):
        await sender.send(b"in five seconds")
        await sender.reaches(1)
        await broker.advance(4)
        await asyncio.sleep(0.2)  # Nothing comes: that alone cannot be waited for.
        assert len(heard.messages) == 1
        await until_due(broker, lambda: len(heard.messages) == 2, step_s=1)


async def test_a_hopeless_message_goes_to_the_dead_letters_at_once() -> None:
    async def handle(_: ReceivedMessage) -> Later:
        return Later(delay_level=-1)

    async with shop() as (broker, sender), consumer_of(broker, handler=handle):
        await sender.send(b"hopeless")
        await sender.reaches(1)
        (dead,) = await sender.client.arrival(DEAD_LETTERS)
    assert dead.body == b"hopeless"


async def test_a_message_that_failed_too_often_ends_among_the_dead_letters() -> None:
    heard = Heard()

    async def handle(message: ReceivedMessage) -> Later:
        await heard(message)
        return Later()

    options = PushOptions(max_reconsume_times=1, commit_interval_s=0.05)
    async with shop() as (broker, sender), consumer_of(broker, handler=handle, options=options):
        await sender.send(b"twice")
        await until_due(broker, lambda: len(heard.messages) == 2)
        (dead,) = await sender.client.arrival(DEAD_LETTERS)
    assert dead.body == b"twice"


@pytest.mark.parametrize("answer", [True, False, 0, "done", []])
async def test_an_odd_answer_counts_as_a_failure(
    answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()

    async def handle(message: ReceivedMessage) -> object:
        await heard(message)
        return answer if message.reconsume_times == 0 else None

    async with shop() as (broker, sender), consumer_of(broker, handler=handle):
        await sender.send(b"odd")
        await until_due(broker, lambda: len(heard.messages) == 2)
    assert f"the handler returned {answer!r}" in caplog.text


def _raise_stop_iteration(message: ReceivedMessage) -> None:
    if message.reconsume_times == 0:
        next(iter(()))


def _raise_value_error(message: ReceivedMessage) -> None:
    if message.reconsume_times == 0:
        raise ValueError("no")


async def _await_something_cancelled(message: ReceivedMessage) -> None:
    if message.reconsume_times == 0:
        never = asyncio.get_running_loop().create_future()
        never.cancel()
        await never


async def _return_a_negative_count(message: ReceivedMessage) -> Later | None:
    return Later(done=-1) if message.reconsume_times == 0 else None


@pytest.mark.parametrize(
    "broken",
    [
        _raise_stop_iteration,
        _raise_value_error,
        _await_something_cancelled,
        _return_a_negative_count,
    ],
)
async def test_whatever_a_handler_raises_its_worker_lives_on(broken: Callable[..., Any]) -> None:
    heard = Heard()
    is_async = asyncio.iscoroutinefunction(broken)

    async def handle(message: ReceivedMessage) -> Later | None:
        outcome: Later | None = await broken(message)
        await heard(message)
        return outcome

    def handle_off_the_loop(message: ReceivedMessage) -> None:
        broken(message)
        heard.messages.append(message)

    options = PushOptions(workers=1, commit_interval_s=0.05)
    how = {"handler": handle if is_async else handle_off_the_loop, "options": options}
    async with shop() as (broker, sender), consumer_of(broker, **how):
        await sender.send(b"bad", b"also bad")
        await sender.reaches(2)
        await until_due(broker, lambda: len(heard.messages) == 2)
    assert {message.reconsume_times for message in heard.messages} == {1}


async def test_of_a_batch_the_first_so_many_are_done() -> None:
    batches: list[list[bytes]] = []

    async def handle(messages: list[ReceivedMessage]) -> Later | None:
        batches.append([message.body for message in messages])
        return Later(done=3) if messages[0].reconsume_times == 0 else None

    options = PushOptions(batch_size=5, workers=1, commit_interval_s=0.05)
    async with shop() as (broker, sender):
        await sender.send(*numbered(5))
        async with consumer_of(broker, batch_handler=handle, options=options):
            await sender.reaches(5)
            await until_due(broker, lambda: sum(map(len, batches)) == 7)
    assert batches[0] == numbered(5)
    assert sorted(body for batch in batches[1:] for body in batch) == [b"3", b"4"]


async def test_a_batch_is_never_larger_than_allowed() -> None:
    sizes: list[int] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        sizes.append(len(messages))

    options = PushOptions(batch_size=7, commit_interval_s=0.05)
    async with shop() as (broker, sender):
        await sender.send(*numbered(30))
        async with consumer_of(broker, batch_handler=handle, options=options):
            await sender.reaches(30)
    assert sum(sizes) == 30
    assert max(sizes) == 7


async def test_a_message_that_the_broker_does_not_take_back_is_tried_here_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(concurrent, "_AGAIN_S", 0.3)
    heard = Heard()

    async def handle(message: ReceivedMessage) -> Later | None:
        await heard(message)
        return Later() if message.body == b"1" and message.reconsume_times == 0 else None

    async with shop() as (broker, sender):
        await sender.send(*numbered(3))
        # Without its retry topic's permission to write, a broker refuses what is sent back.
        await broker.create_topic(f"%RETRY%{GROUP}", 1, permission=4)
        async with consumer_of(broker, handler=handle):
            await heard.counts(3)
            await sender.reaches(1)  # Everything is done but the second message.
            await heard.counts(4)
            await sender.reaches(3)
    assert heard.messages[3].body == b"1"
    assert heard.messages[3].reconsume_times == 1
    assert heard.messages[3].queue.topic == TOPIC


# -- workers ---------------------------------------------------------------------------------------


class Busy:
    """A handler that counts how many of it are at work."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.may_end = asyncio.Event()

    async def __call__(self, _: ReceivedMessage) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await self.may_end.wait()
        self.now -= 1


async def test_no_more_handlers_are_at_work_than_there_are_workers() -> None:
    busy = Busy()
    options = PushOptions(workers=3, commit_interval_s=0.05)
    async with shop() as (broker, sender):
        await sender.send(*numbered(20))
        async with consumer_of(broker, handler=busy, options=options):
            await until(lambda: busy.now == 3)
            await asyncio.sleep(0.05)
            busy.may_end.set()
            await sender.reaches(20)
    assert busy.most == 3


async def test_plain_functions_block_without_stopping_heartbeats_and_pulls() -> None:
    go = threading.Event()
    heard: list[bytes] = []

    def handle(message: ReceivedMessage) -> None:
        if message.body == b"block":
            assert go.wait(SOON_S)
        heard.append(message.body)

    async with shop(settings={"channelExpiredTimeout": 500}) as (broker, sender):
        how: dict[str, Any] = {"handler": handle, "options": PushOptions(workers=2)}
        async with PushConsumer(lively(broker), group=GROUP, topics=TOPIC, **how):
            await sender.send(b"block")
            await sender.send(*numbered(10))
            await until(lambda: len(heard) == 10)
            for _ in range(10):
                await broker.advance(0.4)
                await asyncio.sleep(0.25)
                assert len(await sender.client.consumer_ids(GROUP)) == 1
            go.set()
            await until(lambda: len(heard) == 11)
    assert heard[-1] == b"block"


@pytest.mark.parametrize("orderly", [False, True])
async def test_handlers_that_never_wait_leave_the_loop_to_others(orderly: bool) -> None:
    turn = 0
    in_turns: Counter[int] = Counter()

    def work(_: ReceivedMessage) -> None:
        time.sleep(0.005)
        in_turns[turn] += 1

    async def handle(message: ReceivedMessage) -> None:
        work(message)

    async def watch() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    async with shop(8) as (broker, sender):
        for queue_id in range(8):
            await sender.send(*numbered(25), queue_id=queue_id)
        watching = asyncio.create_task(watch())
        async with consumer_of(broker, handler=handle, orderly=orderly):
            for queue_id in range(8):
                await sender.reaches(25, queue_id)
        watching.cancel()
    assert sum(in_turns.values()) == 200
    assert max(in_turns.values()) <= 4


async def test_a_handler_that_takes_too_long_is_cancelled_and_counts_as_failed() -> None:
    heard = Heard()

    async def handle(message: ReceivedMessage) -> None:
        await heard(message)
        if message.reconsume_times == 0:
            await asyncio.Event().wait()

    options = PushOptions(workers=1, consume_timeout_s=0.1, commit_interval_s=0.05)
    async with shop() as (broker, sender), consumer_of(broker, handler=handle, options=options):
        await sender.send(b"stuck", b"next")
        await sender.reaches(2)
        await until_due(broker, lambda: len(heard.messages) == 4)
    assert [message.reconsume_times for message in heard.messages] == [0, 0, 1, 1]


async def test_time_limits_inside_a_handler_still_work_after_one_was_cancelled() -> None:
    outcomes: list[str] = []

    async def handle(message: ReceivedMessage) -> None:
        if message.body == b"stuck":
            outcomes.append("stuck")
            await asyncio.Event().wait()
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            outcomes.append("timed out")

    options = PushOptions(workers=1, consume_timeout_s=0.2, commit_interval_s=0.05)
    async with shop() as (broker, sender), consumer_of(broker, handler=handle, options=options):
        await sender.send(b"stuck", *numbered(3))
        await sender.reaches(4)
    assert outcomes == ["stuck", *["timed out"] * 3]


async def test_a_blocked_thread_costs_no_other_message_its_turn() -> None:
    go = threading.Event()
    begun: list[tuple[bytes, int]] = []

    def handle(message: ReceivedMessage) -> None:
        begun.append((message.body, message.reconsume_times))
        if message.body == b"block" and message.reconsume_times == 0:
            assert go.wait(SOON_S)

    options = PushOptions(workers=1, consume_timeout_s=0.1, commit_interval_s=0.05)
    async with shop() as (broker, sender), consumer_of(broker, handler=handle, options=options):
        await sender.send(b"block", b"patient")
        await sender.reaches(1)  # The blocked one went back to the broker.
        await asyncio.sleep(0.3)  # Long enough for a message that waits to expire, if it did.
        go.set()
        await sender.reaches(2)
        await until_due(broker, lambda: len(begun) == 3)
    assert begun == [(b"block", 0), (b"patient", 0), (b"block", 1)]


# -- flow ------------------------------------------------------------------------------------------


async def _read_ahead(flow: FlowLimits, count: int, size: int = 10) -> list[tuple[int, int, int]]:
    """How far a consumer that is stuck at the first message reads: count, bytes and span."""
    busy = Busy()
    options = PushOptions(workers=1, flow=flow, pull_messages=10, commit_interval_s=0.05)
    async with shop() as (broker, sender):
        await sender.send(*[bytes(size)] * count)
        async with consumer_of(broker, handler=busy, options=options) as consumer:
            await until(lambda: busy.now == 1)
            await asyncio.sleep(0.2)
            (feed,) = [f for f in consumer._reader.feeds.values() if f.queue.topic == TOPIC]
            assert feed.window is not None
            told = (feed.window.count, feed.window.bytes, feed.window.span)
            busy.may_end.set()
            await sender.reaches(count)
    return [told]


async def test_reading_ahead_is_bounded_by_messages() -> None:
    ((count, _, _),) = await _read_ahead(FlowLimits(messages=25), 100)
    assert 25 <= count <= 34


async def test_reading_ahead_is_bounded_by_bytes() -> None:
    ((_, size, _),) = await _read_ahead(FlowLimits(bytes=25_000), 100, 1000)
    assert 25_000 <= size <= 34_000


async def test_reading_ahead_is_bounded_by_the_span_of_offsets() -> None:
    ((_, _, span),) = await _read_ahead(FlowLimits(span=25), 100)
    assert 25 <= span <= 34


async def test_a_paused_consumer_gets_nothing_until_it_goes_on() -> None:
    heard = Heard()
    async with shop() as (broker, sender), consumer_of(broker, handler=heard) as consumer:
        await sender.send(b"before")
        await heard.has(b"before")
        consumer.pause()
        await sender.send(b"while paused")
        await asyncio.sleep(0.2)
        assert heard.bodies == [b"before"]
        consumer.resume()
        await heard.has(b"while paused")
    assert heard.bodies == [b"before", b"while paused"]


async def test_queues_that_come_later_are_paused_too() -> None:
    heard = Heard()
    async with shop() as (broker, sender):
        how = {"group": GROUP, "topics": TOPIC, "handler": heard, "options": QUICK}
        async with PushConsumer(lively(broker), **how) as consumer:  # type: ignore[arg-type]
            consumer.pause()
            await broker.create_topic(TOPIC, 3)
            await until(lambda: sum(queue.topic == TOPIC for queue in consumer.queues) == 3)
            await sender.send(b"third", queue_id=2)
            await asyncio.sleep(0.2)
            assert heard.bodies == []
            consumer.resume()
            await heard.has(b"third")


# -- filters ---------------------------------------------------------------------------------------


async def test_tags_with_the_same_hash_are_told_apart() -> None:
    heard = Heard()
    async with shop() as (broker, sender):
        for tag in ("Aa", "BB", "C", "Aa"):
            await sender.send(tag.encode(), TAGS=tag)
        async with consumer_of(broker, handler=heard, topics={TOPIC: "Aa || D"}):
            await sender.reaches(4)
    assert heard.bodies == [b"Aa", b"Aa"]


async def test_a_filter_over_properties() -> None:
    heard = Heard()
    wanted = {TOPIC: Sql("price > 10 AND region IN ('EU', 'US')")}
    async with (
        shop(settings={"enablePropertyFilter": True}) as (broker, sender),
        consumer_of(broker, handler=heard, topics=wanted),
    ):
        await sender.send(b"cheap", price="5", region="EU")
        await sender.send(b"dear", price="50", region="EU")
        await sender.send(b"far", price="50", region="CN")
        await sender.send(b"last", price="11", region="US")
        await heard.has(b"last")
        await sender.reaches(4)
    assert heard.bodies == [b"dear", b"last"]


async def test_a_filter_that_cannot_be_read_is_refused_at_the_start() -> None:
    async with shop(settings={"enablePropertyFilter": True}) as (broker, _):
        consumer = consumer_of(broker, handler=Heard(), topics={TOPIC: Sql("price >")})
        with pytest.raises(BadSubscription, match="mend the filter"):
            await consumer.start()


async def test_a_filter_that_cannot_be_read_is_refused_while_running_and_changes_nothing() -> None:
    heard = Heard()
    async with (
        shop(settings={"enablePropertyFilter": True}) as (broker, sender),
        consumer_of(broker, handler=heard) as consumer,
    ):
        with pytest.raises(BadSubscription):
            await consumer.subscribe(TOPIC, Sql("price >"))
        await sender.send(b"still here")
        await heard.has(b"still here")


async def test_a_changed_subscription_holds_at_once() -> None:
    heard = Heard()
    async with (
        shop() as (broker, sender),
        consumer_of(broker, handler=heard, topics={TOPIC: "A"}) as consumer,
    ):
        await sender.send(b"a", TAGS="A")
        await heard.has(b"a")
        for expression in ("B", "B || C", "C || D"):  # Faster than the clock of versions.
            await consumer.subscribe(TOPIC, expression)
        await sender.send(b"b", TAGS="B")
        await sender.send(b"d", TAGS="D")
        async with asyncio.timeout(5):  # Sooner than a held pull would have ended.
            await heard.has(b"d")
    assert heard.bodies == [b"a", b"d"]


async def test_topics_come_and_go_while_it_runs() -> None:
    heard = Heard()
    async with shop() as (broker, sender), consumer_of(broker, handler=heard) as consumer:
        await broker.create_topic("parcels", 2)
        await consumer.subscribe("parcels")
        await sender.send(b"parcel", topic="parcels", queue_id=1)
        await heard.has(b"parcel")
        await sender.reaches(1, queue_id=1, topic="parcels")
        await consumer.unsubscribe("parcels")
        await until(
            lambda: {queue.topic for queue in consumer.queues} == {TOPIC, f"%RETRY%{GROUP}"}
        )
        await sender.send(b"unwanted", topic="parcels", queue_id=1)
        await sender.send(b"order")
        await heard.has(b"order")
    assert heard.bodies == [b"parcel", b"order"]


async def test_a_topic_may_be_created_after_its_consumer() -> None:
    heard = Heard()
    async with (
        shop() as (broker, sender),
        PushConsumer(lively(broker), group=GROUP, topics="later", handler=heard),
    ):
        await broker.create_topic("later", 1)
        await sender.send(b"here I am", topic="later")
        await heard.has(b"here I am")


# -- where a group begins --------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _aged() -> AsyncIterator[tuple[EmbeddedBroker, Sender]]:
    """A broker whose queue has lost its first messages to retention."""
    async with shop(settings=FORGETFUL) as (broker, sender):
        await sender.send(*[bytes(10_000)] * 12)
        await broker.advance(2 * 3600)
        await sender.send(b"recent")
        answer = await sender.client.ask(329)  # DELETE_EXPIRED_COMMITLOG
        assert answer.code == 0, answer.remark
        async with asyncio.timeout(SOON_S):
            while await least_offset(sender) == 0:
                await asyncio.sleep(0.05)
        yield broker, sender


async def least_offset(sender: Sender) -> int:
    answer = await sender.client.ask(31, {"topic": TOPIC, "queueId": 0})
    return int(answer.text_fields()["offset"])


async def test_a_new_group_reads_a_young_queue_from_its_beginning() -> None:
    heard = Heard()
    async with shop() as (broker, sender):
        await sender.send(b"before the group")
        async with consumer_of(broker, handler=heard, consume_from=ConsumeFrom.LAST):
            await heard.has(b"before the group")


async def test_a_new_group_begins_at_the_end_of_an_old_queue() -> None:
    heard = Heard()
    async with (
        _aged() as (broker, sender),
        consumer_of(broker, handler=heard, consume_from=ConsumeFrom.LAST),
    ):
        await sender.reaches(13)
        await sender.send(b"new")
        await heard.has(b"new")
    assert heard.bodies == [b"new"]


async def test_a_new_group_may_begin_at_the_oldest_message_that_is_left() -> None:
    heard = Heard()
    async with _aged() as (broker, sender):
        least = await least_offset(sender)
        async with consumer_of(broker, handler=heard, consume_from=ConsumeFrom.FIRST):
            await heard.has(b"recent")
    assert sorted(message.queue_offset for message in heard.messages) == list(range(least, 13))


async def test_a_new_group_may_begin_at_a_time() -> None:
    heard = Heard()
    async with shop() as (broker, sender):
        await sender.send(b"old")
        await broker.advance(3600)
        begin = dt.datetime.fromtimestamp(broker.clock.now_ms() / 1000, dt.UTC)
        await broker.advance(60)
        await sender.send(b"new")
        async with consumer_of(broker, handler=heard, consume_from=begin):
            await heard.has(b"new")
            await sender.reaches(2)
    assert heard.bodies == [b"new"]


async def test_a_group_goes_on_where_it_was_wherever_new_ones_begin() -> None:
    heard = Heard()
    async with shop() as (broker, sender):
        await sender.send(*numbered(5))
        await sender.move_to(3)
        async with consumer_of(broker, handler=heard, consume_from=ConsumeFrom.FIRST):
            await sender.reaches(5)
    assert in_order(heard.bodies) == [b"3", b"4"]


# -- offsets that the broker does not have ---------------------------------------------------------


async def test_an_offset_beyond_the_end_is_mended() -> None:
    heard = Heard()
    async with shop() as (broker, sender):
        await sender.send(b"first")
        await sender.move_to(1000)
        async with consumer_of(broker, handler=heard):
            await sender.reaches(1)
            await sender.send(b"second")
            await heard.has(b"second")
    assert heard.bodies == [b"second"]


async def test_an_offset_before_the_beginning_is_mended() -> None:
    heard = Heard()
    async with _aged() as (broker, sender):
        await sender.move_to(1)
        async with consumer_of(broker, handler=heard):
            await heard.has(b"recent")
            await sender.reaches(13)


async def test_what_was_read_before_its_deletion_is_still_consumed() -> None:
    heard, go = Heard(), [asyncio.Event(), asyncio.Event(), asyncio.Event()]

    async def handle(message: ReceivedMessage) -> None:
        await go[min(message.queue_offset, 2)].wait()
        await heard(message)

    flow = FlowLimits(messages=3)
    options = PushOptions(workers=1, pull_messages=2, flow=flow, commit_interval_s=0.05)
    async with shop(settings=FORGETFUL) as (broker, sender):
        await sender.send(*[bytes(10_000)] * 24)
        async with consumer_of(broker, handler=handle, options=options) as consumer:
            feed = consumer._reader.feeds[MessageQueue(TOPIC, "broker-a", 0)]
            await until(lambda: feed.window is not None and feed.window.count == 4)
            await broker.advance(2 * 3600)
            await sender.send(b"recent")
            await sender.client.ask(329)
            async with asyncio.timeout(SOON_S):
                while await least_offset(sender) <= 4:
                    await asyncio.sleep(0.05)
            least = await least_offset(sender)
            go[0].set()
            go[1].set()  # There is room to read on now, and what comes next is gone.
            await until(lambda: feed.window is not None and feed.window.next_offset >= least)
            go[2].set()
            await heard.has(b"recent")
            await sender.reaches(25)
    offsets = [message.queue_offset for message in heard.messages]
    assert offsets == [0, 1, 2, 3, *range(least, 25)]


# -- start and stop --------------------------------------------------------------------------------


async def test_stopping_waits_for_handlers_commits_and_leaves_the_group_at_once() -> None:
    busy = Busy()
    options = PushOptions(workers=2, commit_interval_s=60)
    async with shop() as (broker, sender):
        await sender.send(*numbered(10))
        consumer = consumer_of(broker, handler=busy, options=options)
        await consumer.start()
        await until(lambda: busy.now == 2)
        stopping = asyncio.create_task(consumer.stop())
        await asyncio.sleep(0.05)
        assert not stopping.done()
        busy.may_end.set()
        await stopping
        assert await sender.committed() == 2
        assert await sender.client.consumer_ids(GROUP) == []


async def test_a_failure_while_stopping_is_left_to_the_next_member() -> None:
    busy, heard = Busy(), Heard()

    async def handle(message: ReceivedMessage) -> Later:
        await busy(message)
        return Later()

    async with shop() as (broker, sender):
        await sender.send(b"one")
        consumer = consumer_of(broker, handler=handle)
        await consumer.start()
        await until(lambda: busy.now == 1)
        stopping = asyncio.create_task(consumer.stop())
        await asyncio.sleep(0.05)
        busy.may_end.set()
        await stopping
        assert await sender.committed() == 0
        async with consumer_of(broker, handler=heard):
            await heard.has(b"one")
            for _ in range(3):
                await broker.advance(60)
                await asyncio.sleep(0.05)
    assert [message.reconsume_times for message in heard.messages] == [0]


async def test_a_handler_that_does_not_end_is_cancelled_when_the_time_to_stop_is_up() -> None:
    busy = Busy()
    options = PushOptions(workers=1, stop_timeout_s=0.1, commit_interval_s=60)
    async with shop() as (broker, sender):
        await sender.send(*numbered(3))
        consumer = consumer_of(broker, handler=busy, options=options)
        await consumer.start()
        await until(lambda: busy.now == 1)
        async with asyncio.timeout(5):
            await consumer.stop()
        assert await sender.committed() <= 0


async def test_a_handler_cannot_wait_for_its_own_end(caplog: pytest.LogCaptureFixture) -> None:
    consumers: list[PushConsumer] = []
    called = asyncio.Event()

    async def handle(_: ReceivedMessage) -> None:
        called.set()
        await consumers[0].stop()

    async with shop() as (broker, sender), consumer_of(broker, handler=handle) as consumer:
        consumers.append(consumer)
        await sender.send(b"stop")
        await called.wait()
        await sender.reaches(1)
    assert "stop from outside" in caplog.text


async def test_a_consumer_starts_once_and_stops_as_often_as_one_likes() -> None:
    async with shop() as (broker, _):
        consumer = consumer_of(broker, handler=Heard())
        await consumer.stop()
        await consumer.start()
        with pytest.raises(IllegalArgument, match="starts once"):
            await consumer.start()
        await consumer.stop()
        await consumer.stop()
        with pytest.raises(IllegalArgument, match="starts once"):
            await consumer.start()


async def test_stopping_is_bounded_when_the_broker_is_silent() -> None:
    heard = Heard()
    async with shop(8, through_proxy=True) as (broker, sender):
        cluster = lively(broker, request_timeout_s=0.3, heartbeat_s=60)
        how: dict[str, Any] = {"group": GROUP, "topics": TOPIC, "orderly": True}
        consumer = PushConsumer(cluster, handler=heard, **how)
        await consumer.start()
        await sender.send(b"one")
        await heard.has(b"one")
        broker.proxy().stall()
        async with asyncio.timeout(4):  # Not 0.3 s for each of eight locks.
            await consumer.stop()
        broker.proxy().resume()


async def test_a_broker_that_cannot_hold_pulls_is_not_asked_without_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with shop() as (broker, sender):
        running = broker._at(0).broker
        assert running is not None
        running.parts.context.waiting_pulls.held_max = 0
        pulls = 0
        heard = Heard()
        async with consumer_of(broker, handler=heard) as consumer:
            puller = consumer._reader._puller
            pull = puller.pull

            async def counted(*given: Any, **more: Any) -> Any:
                nonlocal pulls
                pulls += 1
                return await pull(*given, **more)

            monkeypatch.setattr(puller, "pull", counted)
            await asyncio.sleep(0.5)
            assert 2 <= pulls <= 30  # Of two queues; thousands, if nothing slowed them down.
            await sender.send(b"still read")
            await heard.has(b"still read")


async def test_without_any_nameserver_the_start_fails_clearly() -> None:
    async with shop() as (broker, _):
        await broker.stop_namesrv()
        consumer = consumer_of(broker, handler=Heard())
        with pytest.raises(Unreachable, match="no NameServer answers"):
            await consumer.start()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({}, "handler or a batch_handler"),
        ({"handler": Heard(), "batch_handler": Heard()}, "one of the two"),
        ({"handler": Heard(), "group": ""}, "group"),
        ({"handler": Heard(), "group": "a b"}, "group"),
        ({"handler": Heard(), "group": "g" * 121}, "120"),
        ({"handler": Heard(), "topics": {TOPIC: "||"}}, "no tags"),
        ({"handler": Heard(), "consume_from": ConsumeFrom.TIMESTAMP}, "the time itself"),
        ({"handler": Heard(), "consume_from": dt.datetime(2026, 1, 1)}, "zone"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_sent(
    how: dict[str, Any], said: str
) -> None:
    with pytest.raises(IllegalArgument, match=said):
        PushConsumer("127.0.0.1:9876", **{"group": GROUP, "topics": TOPIC, **how})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workers": 0}, "at least 1"),
        ({"batch_size": 0}, "at least 1"),
        ({"pull_messages": 0}, "at least 1"),
        ({"consume_timeout_s": 0}, "more than 0"),
        ({"commit_interval_s": 0}, "more than 0"),
        ({"suspend_s": -1}, "not negative"),
        ({"stop_timeout_s": -1}, "not negative"),
    ],
)
def test_options_under_which_nothing_would_work_are_refused(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(IllegalArgument, match=said):
        PushOptions(**given)


@pytest.mark.parametrize("given", [{"messages": 0}, {"bytes": 0}, {"span": -1}])
def test_limits_under_which_nothing_would_be_read_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(IllegalArgument, match="nothing could ever be read"):
        FlowLimits(**given)


# -- a cluster that changes ------------------------------------------------------------------------


async def test_queues_that_a_topic_gets_later_are_consumed() -> None:
    heard = Heard()
    async with (
        shop() as (broker, sender),
        PushConsumer(lively(broker), group=GROUP, topics=TOPIC, handler=heard),
    ):
        await sender.send(b"first", queue_id=0)
        await heard.has(b"first")
        await broker.create_topic(TOPIC, 4)
        await sender.send(b"fourth", queue_id=3)
        await heard.has(b"fourth")


async def test_a_broker_that_comes_later_is_consumed_from() -> None:
    heard = Heard()
    async with EmbeddedBroker(in_memory=True, brokers=2) as broker:
        await broker.stop_broker(1)
        await broker.create_topic(TOPIC, 1)
        async with PushConsumer(lively(broker), group=GROUP, topics=TOPIC, handler=heard):
            await broker.start_broker(1)
            await broker.create_topic(TOPIC, 1)
            async with sending(broker.addresses[1]) as sender:
                await sender.send(b"from the second")
                await heard.has(b"from the second")


@pytest.mark.parametrize("abrupt", [False, True])
async def test_after_a_broker_restart_consumption_goes_on_and_nothing_is_lost(
    abrupt: bool,
) -> None:
    heard = Heard()
    async with EmbeddedBroker(in_memory=True) as broker:
        await broker.create_topic(TOPIC, 2)
        async with consumer_of(broker, handler=heard):
            async with sending(broker.address) as sender:
                await sender.send(*numbered(50, "a"), queue_id=0)
                await heard.counts(10)
            await broker.restart(abrupt=abrupt)
            async with sending(broker.address) as sender:
                await sender.send(*numbered(50, "b"), queue_id=1)
                await heard.has(*numbered(50, "a"), *numbered(50, "b"))
                await sender.members(1)


async def test_connections_cut_in_the_middle_of_a_frame_cost_nothing() -> None:
    heard = Heard()
    sent = [body * 20 for body in numbered(100)]
    async with shop(through_proxy=True) as (broker, sender):
        proxy = broker.proxy()
        async with consumer_of(broker, handler=heard, options=PushOptions(pull_messages=4)):
            for cuts in range(1, 6):
                proxy.cut_after(1000)
                await sender.send(*sent[cuts * 20 - 20 : cuts * 20])
                await until(lambda: proxy.traffic.cuts == cuts, SOON_S)  # noqa: B023
            await heard.has(*sent)


async def test_a_stall_of_the_network_costs_nothing() -> None:
    heard = Heard()
    async with shop(through_proxy=True) as (broker, sender):
        cluster = lively(broker, request_timeout_s=0.5)
        async with PushConsumer(cluster, group=GROUP, topics=TOPIC, handler=heard, options=QUICK):
            await sender.send(b"before")
            await heard.has(b"before")
            broker.proxy().stall()
            await sender.send(*numbered(20))
            await asyncio.sleep(1.5)
            broker.proxy().resume()
            await heard.has(*numbered(20))
            await sender.reaches(21)
            await sender.members(1)


async def test_a_broker_that_went_silent_is_reached_over_a_new_connection() -> None:
    heard = Heard()
    async with shop(through_proxy=True) as (broker, sender):
        cluster = lively(broker, request_timeout_s=0.3)
        async with PushConsumer(cluster, group=GROUP, topics=TOPIC, handler=heard):
            await sender.send(b"before")
            await heard.has(b"before")
            proxy = broker.proxy()
            made = proxy.traffic.connections
            proxy.drop()  # No word comes through, and none that the connection is gone.
            await until(lambda: proxy.traffic.connections > made)
            proxy.restore()
            await sender.send(b"after")
            await heard.has(b"after")


async def test_a_route_that_cannot_be_read_does_not_stop_the_client(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    async with (
        shop() as (broker, sender),
        PushConsumer(lively(broker), group=GROUP, topics=TOPIC, handler=heard) as consumer,
    ):
        ask = consumer._reader.link.routes._ask
        broken = asyncio.Event()

        async def nonsense(request: Any) -> Any:
            broken.set()
            answer = await ask(request)
            answer.body = b"{nonsense"
            return answer

        with caplog.at_level(logging.WARNING), monkeypatch.context() as patch:
            patch.setattr(consumer._reader.link.routes, "_ask", nonsense)
            await broken.wait()
            await until(lambda: "cannot be refreshed" in caplog.text)
        await broker.create_topic(TOPIC, 2)
        await sender.send(b"second queue", queue_id=1)
        await heard.has(b"second queue")
