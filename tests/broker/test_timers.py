"""Messages with a time of their own: when they come, in which order, and which are refused."""

import asyncio
import itertools
import random
from pathlib import Path

import pytest

from cometmq.broker.timers import due_slot as due_slot_module
from cometmq.broker.timers import timers as timers_module
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.properties import encode_properties
from cometmq.store.disk import Disk
from cometmq.testing.clock import ManualClock

from .brokers import (
    SUBSCRIPTION,
    SUSPEND,
    TOPIC,
    Client,
    FullDisk,
    bodies_in,
    bounded,
    context_of,
    long_send_fields,
    number,
    serving,
    until,
)
from .timing import (
    DAY_MS,
    HOUR_MS,
    SECOND_MS,
    TIMER_TOPIC,
    arrived,
    bodies,
    send_at,
    timers_of,
)

pytestmark = pytest.mark.usefixtures("frequent_looks")


# -- when ----------------------------------------------------------------------------------------


@bounded
async def test_a_timed_message_waits_elsewhere_and_comes_as_it_was_sent(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        sent = {"TIMER_DELAY_MS": "4500", "TAGS": "red", "KEYS": "k", "文": "宝"}
        answer = await client.send(body=b"later", queue_id=2, properties=sent, h=7)
        (waiting,) = await client.pulled(TIMER_TOPIC)
        due_ms = clock.now_ms() + 4500
        assert (number(answer, "queueId"), number(answer, "queueOffset")) == (2, 0)
        noted = waiting.property_map()
        assert (noted["REAL_TOPIC"], noted["REAL_QID"]) == (TOPIC, "2")
        assert noted["TIMER_OUT_MS"] == str(due_ms - 1)

        clock.advance(4500)
        (message,) = await client.arrival(TOPIC, 2, subscription="red")
        assert (message.body, message.queue_id, message.queue_offset) == (b"later", 2, 0)
        assert (message.flag, message.born_host) == (7, waiting.born_host)
        found = message.property_map()
        assert {name: found[name] for name in noted} == noted
        assert found.keys() - noted.keys() == {"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"}
        assert found["UNIQ_KEY"] == answer.text_fields()["transactionId"]


@pytest.mark.parametrize(
    ("name", "value", "delay_ms"),
    [
        ("TIMER_DELAY_SEC", "5", 5000),
        ("TIMER_DELAY_MS", "1", 1),
        ("TIMER_DELAY_MS", "1234", 1234),
        ("TIMER_DELAY_SEC", str(6 * 3600), 6 * HOUR_MS),
        ("TIMER_DELAY_SEC", "259200", 3 * DAY_MS),
        ("TIMER_DELIVER_MS", str(ManualClock().now_ms() + 7777), 7777),
        ("TIMER_DELIVER_MS", str(ManualClock().now_ms() + 8000), 8000),
        ("TIMER_DELIVER_MS", str(ManualClock().now_ms() + 3 * DAY_MS), 3 * DAY_MS),
    ],
)
@bounded
async def test_no_message_comes_early_or_late(
    tmp_path: Path, name: str, value: str, delay_ms: int
) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        assert (await client.send(properties={name: value})).code == 0
        clock.advance(delay_ms - 1)
        answer = await client.pull(flag=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=50)
        assert bodies_in(answer) == []
        clock.advance(1)
        assert len(await arrived(client, 1)) == 1


@bounded
async def test_by_the_wall_clock_messages_come_at_their_millisecond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        now_ms = context_of(broker).clock.now_ms()
        for n in range(10):
            await send_at(client, now_ms + 500 + n * 130, b"%d" % n)
        late_ms = [
            message.store_timestamp - int(message.property_map()["TIMER_DELIVER_MS"])
            for message in await arrived(client, 10)
        ]
        assert min(late_ms) >= 0
        # Other tests may have the processor: most are on time.
        assert sorted(late_ms)[5] < 300


@bounded
async def test_messages_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    clock, chance = ManualClock(), random.Random(3)
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        start_ms = clock.now_ms()
        expected = []
        for n in range(400):
            due_ms = start_ms + 1000 + chance.randrange(0, 5000, 20)
            await send_at(client, due_ms, b"%d" % n)
            expected.append((due_ms, n))
        clock.advance(60_000)
        found = [int(message.body) for message in await arrived(client, 400)]
        assert found == [n for _, n in sorted(expected)]


@bounded
async def test_a_short_time_overtakes_a_long_one_also_within_a_second(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        for delay_ms in (900, 300, 600, 301):
            await send_at(client, clock.now_ms() + delay_ms, b"%d" % delay_ms)
        clock.advance(300)
        assert [message.body for message in await arrived(client, 1)] == [b"300"]
        await send_at(client, clock.now_ms() + 1, b"late to join")
        clock.advance(600)
        found = [message.body for message in await arrived(client, 5)]
        assert found == [b"300", b"301", b"late to join", b"600", b"900"]


@bounded
async def test_a_delivery_wakes_who_waits(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        await send_at(client, clock.now_ms() + HOUR_MS)
        waiting = asyncio.create_task(
            client.pull(flag=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=30_000)
        )
        await until(lambda: len(context_of(broker).waiting_pulls) == 1)
        clock.advance(HOUR_MS)
        timers_of(broker).poke()
        assert bodies_in(await waiting) == [b"later"]


@bounded
async def test_a_clock_that_is_set_back_makes_nothing_early_and_loses_nothing(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        await send_at(client, clock.now_ms() + 2 * SECOND_MS, b"before")
        clock.advance(SECOND_MS)
        await until(lambda: timers_of(broker)._due_ms == clock.now_ms())
        clock.advance(-HOUR_MS)
        await send_at(client, clock.now_ms() + SECOND_MS, b"after")
        await until(lambda: timers_of(broker).behind == 0)
        clock.advance(HOUR_MS - 1)
        assert await bodies(client) == []
        clock.advance(SECOND_MS + 1)
        assert [message.body for message in await arrived(client, 2)] == [b"after", b"before"]


# -- which ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIMER_DELAY_SEC", "0"),
        ("TIMER_DELAY_MS", "-5"),
        ("TIMER_DELIVER_MS", "1"),
        ("TIMER_DELIVER_MS", str(ManualClock().now_ms())),
    ],
)
@bounded
async def test_a_time_that_is_over_is_no_delay(tmp_path: Path, name: str, value: str) -> None:
    async with serving(tmp_path, clock=ManualClock()) as broker:
        client = await Client.to(broker)
        answer = await client.send(properties={name: value})
        assert answer.code == 0
        assert "recallHandle" not in answer.text_fields()
        assert len(await client.pulled(TOPIC)) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIMER_DELAY_SEC", "259201"),
        ("TIMER_DELAY_MS", "259200001"),
        ("TIMER_DELIVER_MS", "9999999999999"),
        ("TIMER_DELAY_SEC", "9" * 19),
        ("TIMER_DELAY_SEC", "9" * 5000),
        ("TIMER_DELAY_SEC", "soon"),
        ("TIMER_DELAY_MS", "1.5"),
        ("TIMER_DELIVER_MS", "²"),
    ],
)
@bounded
async def test_a_time_too_far_off_or_unreadable_is_refused(
    tmp_path: Path, name: str, value: str
) -> None:
    async with serving(tmp_path, clock=ManualClock()) as broker:
        client = await Client.to(broker)
        answer = await client.send(properties={name: value})
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.remark is not None
        assert "should not be bigger than the max delay 259200000ms" in answer.remark
        assert await client.pulled(TIMER_TOPIC) == []


@bounded
async def test_a_delay_level_wins(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        properties = {"DELAY": "1", "TIMER_DELAY_SEC": "100", "TIMER_DELIVER_MS": "x"}
        assert (await client.send(properties=properties)).code == 0
        clock.advance(1000)
        (message,) = await arrived(client, 1)
        assert not any(name.startswith("TIMER") for name in message.property_map())


@bounded
async def test_the_old_form_of_a_send_knows_times_too(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        properties = encode_properties({"TIMER_DELAY_SEC": "2"}).decode()
        answer = await client.ask(10, long_send_fields(properties=properties), b"later")
        assert answer.code == 0
        assert await bodies(client) == []
        clock.advance(2000)
        assert len(await arrived(client, 1)) == 1


@bounded
async def test_a_batch_with_times_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        properties = encode_properties({"TIMER_DELAY_SEC": "2"})
        size, body = 24 + len(properties), b"hi"
        parts = (
            size.to_bytes(4, "big"), bytes(12), len(body).to_bytes(4, "big"), body,
            len(properties).to_bytes(2, "big"), properties,
        )  # fmt: skip
        answer = await client.send(body=b"".join(parts), m=True)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.remark is not None
        assert "time of their own" in answer.remark


@bounded
async def test_a_message_that_has_waited_does_not_wait_again(tmp_path: Path) -> None:
    """As one that a consumer sends on with all its properties."""
    async with serving(tmp_path, clock=ManualClock()) as broker:
        client = await Client.to(broker)
        properties = {"TIMER_DELAY_SEC": "100", "TIMER_OUT_MS": "1700000000000"}
        assert (await client.send(properties=properties)).code == 0
        assert len(await client.pulled(TOPIC)) == 1


@bounded
async def test_clients_cannot_send_to_the_topic_where_messages_wait(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        answer = await client.send(TIMER_TOPIC)
        assert answer.code == ResponseCode.NO_PERMISSION


@bounded
async def test_properties_must_leave_room_for_the_way(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)

        async def send(size: int) -> int:
            return (await client.send(properties={"TIMER_DELAY_MS": "9", "x": "y" * size})).code

        fits = 32_600
        while (code := await send(fits)) != 0:
            assert code == ResponseCode.MESSAGE_ILLEGAL
            fits -= 1
        assert fits > 32_000
        clock.advance(9)
        assert len(await arrived(client, 1)) == 1


@bounded
async def test_a_transaction_waits_for_its_producer_first_and_then_for_its_time(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        properties = {"TRAN_MSG": "true", "PGROUP": "p", "TIMER_DELAY_SEC": "10"}
        answer = await client.send(body=b"paid", properties=properties)
        assert await client.pulled(TIMER_TOPIC) == []
        ids = answer.text_fields()
        decision = {
            "producerGroup": "p", "tranStateTableOffset": ids["queueOffset"],
            "commitLogOffset": int(ids["msgId"][16:], 16), "commitOrRollback": 8,
            "msgId": ids["transactionId"],
        }  # fmt: skip
        assert (await client.ask(37, decision)).code == 0
        assert await bodies(client) == []
        clock.advance(10_000)
        (message,) = await arrived(client, 1)
        assert message.body == b"paid"


# -- long and many -------------------------------------------------------------------------------


@bounded
async def test_what_waits_longer_than_the_log_keeps_is_written_anew(tmp_path: Path) -> None:
    clock = ManualClock()
    how = {"clock": clock, "timerMaxDelaySec": 30 * 86_400, "fileReservedTime": 24}
    async with serving(tmp_path, **how) as broker:
        client, timers = await Client.to(broker), timers_of(broker)
        start_ms, due_ms = clock.now_ms(), clock.now_ms() + 10 * DAY_MS + 1234
        await send_at(client, due_ms, b"far")
        await send_at(client, start_ms + 17 * HOUR_MS, b"near")
        while clock.now_ms() < due_ms - 1:
            clock.advance(min(HOUR_MS, due_ms - 1 - clock.now_ms()))
            timers.poke()
            await until(lambda: timers._due_ms == clock.now_ms() and timers.behind == 0)
        waiting = await client.pulled(TIMER_TOPIC)
        assert await bodies(client) == [b"near"]
        # Never for longer than two thirds of what the log keeps, and not for much less either.
        copies = [message for message in waiting if message.body == b"far"]
        gaps = [
            later.store_timestamp - earlier.store_timestamp
            for earlier, later in itertools.pairwise(copies)
        ]
        assert max(gaps) <= 17 * HOUR_MS
        assert 14 <= len(gaps) <= 17
        clock.advance(1)
        found = await arrived(client, 2)
        assert [message.body for message in found] == [b"near", b"far"]
        assert found[1].property_map()["TIMER_ROLL_TIMES"] == str(len(gaps))
        assert found[1].store_timestamp == due_ms


@bounded
async def test_a_broker_that_was_away_for_weeks_delivers_all_of_it_in_order(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        for n in range(5):
            await send_at(client, clock.now_ms() + (5 - n) * HOUR_MS, b"%d" % n)
    clock.advance(13 * DAY_MS)
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        await send_at(client, clock.now_ms() + DAY_MS + HOUR_MS, b"new")
        found = await arrived(client, 5)
        assert [message.body for message in found] == [b"4", b"3", b"2", b"1", b"0"]
        clock.advance(DAY_MS + HOUR_MS)
        assert (await arrived(client, 6))[5].body == b"new"


@bounded
async def test_a_second_with_more_messages_than_memory_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_slot_module, "ENTRIES_MAX", 25)
    monkeypatch.setattr(timers_module, "READ_BATCH", 10)
    clock, chance = ManualClock(1_700_000_000_000), random.Random(5)
    async with serving(tmp_path, clock=clock) as broker:
        client, timers = await Client.to(broker), timers_of(broker)
        expected = []
        for n in range(300):
            due_ms = clock.now_ms() + 5000 + chance.choice((0, 0, 0, 7, 400, 999))
            await send_at(client, due_ms, b"%d" % n)
            expected.append((due_ms, n))
        most = 0
        for step_ms in (4500, 500, 7, 393, 600):
            clock.advance(step_ms)
            timers.poke()
            await until(lambda: timers._due_ms == clock.now_ms())
            most = max(most, sum(len(slot) for slot in timers._slots.values()))
        found = [int(message.body) for message in await arrived(client, 300)]
        assert found == [n for _, n in sorted(expected)]
        assert 0 < most <= 50


@bounded
async def test_memory_does_not_grow_with_the_messages_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers_module, "CHANGES_MAX", 50)
    clock, chance = ManualClock(), random.Random(7)
    async with serving(tmp_path, clock=clock, timerFlushIntervalMs=10) as broker:
        client, timers = await Client.to(broker), timers_of(broker)
        most = 0
        for n in range(1000):
            due_ms = clock.now_ms() + chance.randrange(10_000, 3 * DAY_MS)
            await send_at(client, due_ms, b"%d" % n)
            most = max(most, timers._files.wheel.changes)
        await until(lambda: timers.behind == 0)
        assert timers.waiting == 1000
        assert sum(len(slot) for slot in timers._slots.values()) == 0
        assert 0 < most <= 50 + timers_module.TAKE_IN_BATCH
        for _ in range(6):
            clock.advance(DAY_MS // 2)
        found = {int(message.body) for message in await arrived(client, 1000)}
        assert found == set(range(1000))


@bounded
async def test_a_full_disk_holds_messages_up_until_there_is_space(tmp_path: Path) -> None:
    clock, disk = ManualClock(), FullDisk()
    async with serving(tmp_path, clock=clock, disk=disk, cleanResourceInterval=10) as broker:
        client = await Client.to(broker)
        await send_at(client, clock.now_ms() + SECOND_MS, b"first")
        await until(lambda: timers_of(broker).behind == 0)
        disk.percent = 95.0
        while (await client.send("other")).code == 0:
            await asyncio.sleep(0.01)
        clock.advance(SECOND_MS)
        await asyncio.sleep(0.05)
        assert await bodies(client) == []
        disk.percent = 10.0
        assert [message.body for message in await arrived(client, 1)] == [b"first"]


@bounded
async def test_a_wheel_that_finds_no_space_leaves_messages_in_the_queue(tmp_path: Path) -> None:
    class NoRoomForTimers(FullDisk):
        def create(self, path: Path, size: int, reserved: int) -> int:
            if not path.relative_to(tmp_path).parts[0].startswith("timer"):
                return Disk.create(self, path, size, reserved)
            return super().create(path, size, reserved)

    clock, disk = ManualClock(), NoRoomForTimers()
    async with serving(tmp_path, clock=clock, disk=disk) as broker:
        client, timers = await Client.to(broker), timers_of(broker)
        disk.full = True
        for n in range(3):
            await send_at(client, clock.now_ms() + SECOND_MS, b"%d" % n)
        await asyncio.sleep(0.05)
        assert timers.behind == 3
        disk.full = False
        await until(lambda: timers.behind == 0)
        clock.advance(SECOND_MS)
        assert [message.body for message in await arrived(client, 3)] == [b"0", b"1", b"2"]
