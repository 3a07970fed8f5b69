"""Pulls that wait for a message: who is woken, by what, and who is not."""

import asyncio
import contextlib
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.broker import Broker
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.command import Command
from cometmq.protocol.scan import queue_key

from .brokers import (
    SUBSCRIPTION,
    SUSPEND,
    TOPIC,
    Client,
    bodies_in,
    bounded,
    broker_of,
    context_of,
    number,
    pull_fields,
    serving,
    until,
)

LONG_MS = 30_000
HOLD = SUBSCRIPTION | SUSPEND


def pulling(client: Client, offset: int = 0, **changes: Any) -> asyncio.Task[Command]:
    """A pull that may wait for long."""
    how = {"flag": HOLD, "suspendTimeoutMillis": LONG_MS, **changes}
    return asyncio.create_task(client.pull(offset=offset, **how))


async def held(broker: Broker, count: int, timeout_s: float = 10.0) -> None:
    await until(lambda: len(context_of(broker).waiting_pulls) == count, timeout_s)


async def with_topic(broker: Broker) -> Client:
    client = await Client.to(broker)
    await client.send(body=b"first")
    return client


# -- woken ---------------------------------------------------------------------------------------


@bounded
async def test_an_arrival_wakes_who_waits(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await with_topic(broker)
        waiting = pulling(client, 1)
        await held(broker, 1)
        begun = time.monotonic()
        await client.send(body=b"second")
        answer = await waiting

        assert time.monotonic() - begun < 3.0
        assert (answer.code, bodies_in(answer)) == (0, [b"second"])
        assert number(answer, "nextBeginOffset") == 2
        assert len(context_of(broker).waiting_pulls) == 0


@bounded
async def test_an_arrival_is_answered_in_the_turn_in_which_it_came(tmp_path: Path) -> None:
    """The median, since other programs have this machine's processor now and then."""
    delays = []
    async with serving(tmp_path) as broker:
        consumer, producer = await with_topic(broker), await Client.to(broker)
        for n in range(1, 40):
            waiting = pulling(consumer, n)
            await held(broker, 1)
            begun = time.monotonic()
            await producer.send(body=b"%d" % n)
            await waiting
            delays.append(time.monotonic() - begun)
    assert sorted(delays)[20] < 0.25


@bounded
async def test_the_first_message_of_a_queue_wakes_as_well(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await with_topic(broker)
        waiting = pulling(client, 0, queue_id=3)
        await held(broker, 1)
        await client.send(body=b"first of three", queue_id=3)
        assert bodies_in(await waiting) == [b"first of three"]


@bounded
async def test_all_who_wait_on_a_queue_are_woken_together(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        clients = [await with_topic(broker)] + [await Client.to(broker) for _ in range(4)]
        waiting = [pulling(client, 1, group=f"group-{n}") for client in clients for n in range(40)]
        elsewhere = pulling(clients[0], 0, queue_id=2)
        await held(broker, 201)
        await clients[0].send(body=b"for all")

        for answer in await asyncio.gather(*waiting):
            assert bodies_in(answer) == [b"for all"]
        assert not elsewhere.done()
        assert len(context_of(broker).waiting_pulls) == 1
        elsewhere.cancel()


@bounded
async def test_a_batch_wakes_once_with_all_of_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await with_topic(broker)
        waiting = pulling(client, 1)
        await held(broker, 1)
        await asyncio.gather(*(client.send(body=b"%d" % n) for n in range(10)))
        answer = await waiting
        following = await client.pull(offset=number(answer, "nextBeginOffset"))
        assert bodies_in(answer) + bodies_in(following) == [b"%d" % n for n in range(10)]


@bounded
async def test_a_message_that_comes_between_look_and_wait_is_not_missed(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await client.send(body=b"0")
        for n in range(1, 100):
            pulled, _ = await asyncio.gather(
                client.pull(offset=n, flag=HOLD, suspendTimeoutMillis=LONG_MS),
                client.send(body=b"%d" % n),
            )
            assert bodies_in(pulled) == [b"%d" % n]


# -- not woken -----------------------------------------------------------------------------------


@bounded
async def test_tags_that_do_not_match_wake_nobody(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await with_topic(broker)
        waiting = pulling(client, 1, subscription="red")
        await held(broker, 1)
        for _ in range(5):
            await client.send(properties={"TAGS": "green"})
        assert not waiting.done()
        assert len(context_of(broker).waiting_pulls) == 1
        await client.send(body=b"red", properties={"TAGS": "red"})

        answer = await waiting
        assert bodies_in(answer) == [b"red"]
        assert number(answer, "nextBeginOffset") == 7


@bounded
async def test_what_did_not_match_is_not_looked_at_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await with_topic(broker)
        waiting = pulling(client, 1, subscription="red", suspendTimeoutMillis=300)
        await held(broker, 1)
        await client.send(properties={"TAGS": "green"})
        answer = await waiting
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert number(answer, "nextBeginOffset") == 2


@bounded
async def test_other_queues_wake_nobody(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await with_topic(broker)
        waiting = pulling(client, 1)
        await held(broker, 1)
        await client.send(queue_id=1)
        await client.send("other")
        assert not waiting.done()
        waiting.cancel()


# -- how long ------------------------------------------------------------------------------------


@bounded
async def test_a_wait_ends_at_its_time_with_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await with_topic(broker)
        begun = time.monotonic()
        answer = await pulling(client, 1, suspendTimeoutMillis=400)

        assert 0.4 <= time.monotonic() - begun < 5
        assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")
        assert number(answer, "nextBeginOffset") == 1
        assert len(context_of(broker).waiting_pulls) == 0


@bounded
async def test_without_long_polling_a_pull_waits_a_moment(tmp_path: Path) -> None:
    how = {"longPollingEnable": False, "shortPollingTimeMills": 100}
    async with serving(tmp_path, **how) as broker:
        client = await with_topic(broker)
        answer = await pulling(client, 1)
        assert answer.code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("flag", [SUBSCRIPTION, 0])
@bounded
async def test_who_does_not_want_to_wait_does_not(tmp_path: Path, flag: int) -> None:
    async with serving(tmp_path) as broker:
        client = await with_topic(broker)
        await client.heartbeat("me", "billing")
        answer = await client.pull(offset=1, flag=flag, suspendTimeoutMillis=LONG_MS)
        assert answer.code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("offset", [2, 7, -1])
@bounded
async def test_only_who_is_at_the_end_waits(tmp_path: Path, offset: int) -> None:
    async with serving(tmp_path) as broker:
        client = await with_topic(broker)
        answer = await pulling(client, offset)
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED


@bounded
async def test_a_one_way_pull_does_not_wait(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await with_topic(broker)
        client.tell(11, pull_fields(offset=1, flag=HOLD, suspendTimeoutMillis=LONG_MS))
        await client.send()
        assert len(context_of(broker).waiting_pulls) == 0


# -- bounds --------------------------------------------------------------------------------------


@bounded
async def test_too_many_are_not_held_but_answered(tmp_path: Path) -> None:
    async with serving(tmp_path, pullThreadPoolQueueCapacity=3) as broker:
        client = await with_topic(broker)
        waiting = [pulling(client, 1) for _ in range(3)]
        await held(broker, 3)
        answer = await pulling(client, 1)
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        await client.send(body=b"second")
        assert [bodies_in(one) for one in await asyncio.gather(*waiting)] == [[b"second"]] * 3
        again = pulling(client, 2)
        await held(broker, 1)
        again.cancel()


@bounded
async def test_who_went_away_does_not_count_any_more(tmp_path: Path) -> None:
    async with serving(tmp_path, pullThreadPoolQueueCapacity=3) as broker:
        client, gone = await with_topic(broker), await Client.to(broker)
        lost = [pulling(gone, 1) for _ in range(3)]
        await held(broker, 3)
        gone.close()
        await asyncio.gather(*lost, return_exceptions=True)
        await held(broker, 0)
        waiting = pulling(client, 1)
        await held(broker, 1)
        await client.send(body=b"second")
        assert bodies_in(await waiting) == [b"second"]


@bounded
async def test_an_arrival_passes_over_who_went_away(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client, gone = await with_topic(broker), await Client.to(broker)
        lost, waiting = pulling(gone, 1), pulling(client, 1)
        await held(broker, 2)
        gone.close()
        await asyncio.gather(lost, return_exceptions=True)
        await client.send(body=b"second")
        assert bodies_in(await waiting) == [b"second"]
        assert len(context_of(broker).waiting_pulls) == 0


@bounded
async def test_what_a_waiting_pull_keeps_does_not_grow_with_its_request(tmp_path: Path) -> None:
    fields = pull_fields(
        offset=1, flag=HOLD, suspendTimeoutMillis=LONG_MS, junk="x" * 200_000,
        subscription="red||" + "y" * 15_000,
    )  # fmt: skip
    body = bytes(200_000)
    async with serving(tmp_path) as broker:
        client = await with_topic(broker)
        tracemalloc.start()
        try:
            waiting = [asyncio.create_task(client.ask(11, fields, body)) for _ in range(50)]
            await held(broker, 50, timeout_s=25)  # Tracing is slow, and slower on a busy machine.
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()  # Else all tests that follow are slow, and measured with this one.
        assert kept < 4 * 1024**2
        await client.send(body=b"red", properties={"TAGS": "red"})
        assert {answer.code for answer in await asyncio.gather(*waiting)} == {0}


# -- other ends ----------------------------------------------------------------------------------


@bounded
async def test_a_reset_offset_wakes_who_waits_and_sends_it_there(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client, context = await with_topic(broker), context_of(broker)
        for n in range(4):
            await client.send(body=b"%d" % n)
        waiting = pulling(client, 5)
        await held(broker, 1)
        context.offsets.reset("billing", TOPIC, 0, 2)
        context.waiting_pulls.arrived([queue_key(TOPIC, 0)])

        answer = await waiting
        assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert number(answer, "nextBeginOffset") == 2


@bounded
async def test_a_stop_answers_all_who_wait(tmp_path: Path) -> None:
    broker = broker_of(tmp_path)
    await broker.start()
    client = await with_topic(broker)
    waiting = [pulling(client, 1), pulling(client, 0, queue_id=2)]
    await held(broker, 2)
    await broker.stop()
    answers = await asyncio.gather(*waiting)
    assert {answer.code for answer in answers} == {ResponseCode.PULL_NOT_FOUND}


@bounded
async def test_who_comes_to_wait_during_a_stop_is_not_held_for_ever(tmp_path: Path) -> None:
    broker = broker_of(tmp_path)
    await broker.start()
    client = await with_topic(broker)
    context_of(broker).waiting_pulls.stop()
    late = pulling(client, 1)
    await held(broker, 1)
    await broker.stop()
    with contextlib.suppress(OSError):
        assert (await late).code == ResponseCode.PULL_NOT_FOUND


@bounded
async def test_one_pull_that_breaks_does_not_keep_others_from_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as broker:
        client, waiting_pulls = await with_topic(broker), context_of(broker).waiting_pulls
        broken, waiting = pulling(client, 1), pulling(client, 1)
        await held(broker, 2)
        (first, _) = next(iter(waiting_pulls._queues.values()))

        def fail(*_: object) -> bool:
            raise RuntimeError("as a bug would")

        monkeypatch.setattr(first, "retry", fail)
        await client.send(body=b"second")
        assert bodies_in(await waiting) == [b"second"]
        broken.cancel()
