"""A clock that tests move, and a broker that goes by it."""

import asyncio
import time

import msgspec
import pytest

from cometmq.broker import delays
from cometmq.broker.timers import timers
from cometmq.broker.transactions import transactions
from cometmq.clock import SystemClock
from cometmq.protocol.codes import RequestCode
from cometmq.testing import EmbeddedBroker, ManualClock, MovableClock
from cometmq.transport.connection import Handler
from cometmq.transport.dial import connect
from tests.broker.brokers import TOPIC, Client, until
from tests.broker.test_transactions import COMMIT, Producer
from tests.broker.test_transactions import GROUP as PAYERS
from tests.testing.clients import cluster_of, connected

HOUR_S = 3600
LEVEL_2_H = "18"
PROMPTLY_S = 5.0
"""Less than the minute after which a broker of these tests looks at its clock by itself."""


@pytest.fixture(autouse=True)
def _brokers_look_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (delays, timers, transactions):
        monkeypatch.setattr(module, "LOOK_INTERVAL_S", 60.0)


def test_a_movable_clock_runs_and_is_ahead_by_what_it_was_moved() -> None:
    clock, system = MovableClock(), SystemClock()
    before = system.now_ms()
    assert before <= clock.now_ms() <= system.now_ms()
    clock.advance(HOUR_S * 1000)
    assert before <= clock.now_ms() - HOUR_S * 1000 <= system.now_ms()


def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(5000)
    assert clock.now_ms() == clock.now_ms() == 5000
    clock.advance(7)
    assert clock.now_ms() == 5007


@pytest.mark.parametrize("kind", [MovableClock, ManualClock])
def test_who_watches_a_clock_hears_that_it_was_moved(kind: type[MovableClock]) -> None:
    clock, heard = kind(), list[int]()

    def moved() -> None:
        heard.append(clock.now_ms())

    clock.watch(moved)
    before = clock.now_ms()
    clock.advance(1000)
    clock.unwatch(moved)
    clock.advance(1000)
    assert len(heard) == 1
    assert heard[0] >= before + 1000


# -- a broker that goes by it --------------------------------------------------------------------


@pytest.mark.parametrize(
    "properties",
    [{"DELAY": LEVEL_2_H}, {"TIMER_DELAY_SEC": str(2 * HOUR_S)}],
    ids=["level", "timer"],
)
@pytest.mark.parametrize("kind", [MovableClock, ManualClock])
async def test_a_message_delayed_by_two_hours_arrives_in_milliseconds(
    kind: type[MovableClock], properties: dict[str, str]
) -> None:
    async with (
        EmbeddedBroker(clock=kind()) as broker,
        connected(broker.address) as client,
    ):
        await broker.create_topic(TOPIC)
        answer = await client.send(body=b"later", properties=properties)
        assert answer.code == 0, answer.remark
        await broker.advance(2 * HOUR_S - 60)
        assert await client.pulled(TOPIC) == []
        begun = time.perf_counter()
        await broker.advance(61)
        (message,) = await client.arrival(TOPIC)
        took_s = time.perf_counter() - begun
        print(f"{took_s * 1000:.1f} ms")
        assert message.body == b"later"
        assert took_s < PROMPTLY_S


async def test_moving_the_clock_itself_is_enough() -> None:
    clock = MovableClock()
    async with EmbeddedBroker(clock=clock) as broker, connected(broker.address) as client:
        await client.send(properties={"DELAY": LEVEL_2_H})
        begun = time.perf_counter()
        clock.advance(2 * HOUR_S * 1000 + 1)
        assert len(await client.arrival(TOPIC)) == 1
        assert time.perf_counter() - begun < PROMPTLY_S


def test_a_blocking_brokers_clock_is_moved_from_the_tests_thread() -> None:
    with EmbeddedBroker() as broker:

        async def delayed() -> float:
            async with connected(broker.address) as client:
                await client.send(properties={"DELAY": LEVEL_2_H})
                begun = time.perf_counter()
                broker.advance(2 * HOUR_S + 1)
                assert len(await client.arrival(TOPIC)) == 1
                return time.perf_counter() - begun

        assert asyncio.run(delayed()) < PROMPTLY_S


async def test_a_producer_is_asked_about_its_transaction_as_soon_as_time_has_passed() -> None:
    async with EmbeddedBroker() as broker:
        producer = await joined(broker.address)
        try:
            begun_at = time.perf_counter()
            await producer.begin()
            await broker.advance(7)
            question = await producer.questions.get()
            assert time.perf_counter() - begun_at < PROMPTLY_S
            assert (await producer.end_as_asked(question, COMMIT)).code == 0
            assert [m.body for m in await producer.pulled(TOPIC, 2)] == [b"payment"]
        finally:
            producer.connection.abort()
            await until(lambda: not producer.connection.is_open)


async def joined(address: str) -> Producer:
    producer = Producer()
    handlers: dict[int, Handler] = {RequestCode.CHECK_TRANSACTION_STATE: producer._asked}
    producer._connection = await connect(address, handlers)
    await producer.heartbeat("payer", producers=[PAYERS])
    return producer


async def locked(client: Client, client_id: str) -> int:
    queue = {"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}
    body = {"consumerGroup": "billing", "clientId": client_id, "mqSet": [queue]}
    answer = await client.ask(41, {}, body)
    return len(msgspec.json.decode(answer.body)["lockOKMQSet"])


async def test_a_lock_is_over_when_the_clock_says_so_and_clients_stay() -> None:
    async with EmbeddedBroker() as broker, connected(broker.address) as client:
        await broker.create_topic(TOPIC)
        await client.heartbeat("a", "billing")
        assert (await locked(client, "a"), await locked(client, "b")) == (1, 0)
        await broker.advance(61)
        assert await locked(client, "b") == 1
        await broker.advance(2 * HOUR_S)
        assert await client.consumer_ids() == ["a"]
        assert await cluster_of(broker.namesrv) == {"broker-a": broker.address}


async def test_expired_files_go_when_the_clock_says_so() -> None:
    settings = {
        "mappedFileSizeCommitLog": 16 * 1024, "fileReservedTime": 1,
        "deleteWhen": ";".join(map(str, range(24))),
    }  # fmt: skip
    async with EmbeddedBroker(settings=settings) as broker, connected(broker.address) as client:
        for _ in range(8):
            assert (await client.send(body=bytes(6000))).code == 0
        log = broker.directory / "broker-a" / "commitlog"
        assert (log / f"{0:020}").exists()
        await broker.advance(2 * HOUR_S)
        await until(lambda: not (log / f"{0:020}").exists(), PROMPTLY_S)
        offset = await client.ask(31, {"topic": TOPIC, "queueId": 0})
        assert int(offset.text_fields()["offset"]) > 0
