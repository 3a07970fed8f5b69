"""Delayed messages: in order, never early, and none lost or doubled by a restart in order."""

import asyncio
import json
from pathlib import Path

import pytest

from cometmq.protocol.message import StoredMessage
from cometmq.testing.clock import ManualClock

from .brokers import (
    SUBSCRIPTION,
    SUSPEND,
    TOPIC,
    Client,
    FullDisk,
    HeldDisk,
    bodies_in,
    bounded,
    context_of,
    number,
    serving,
    until,
)
from .timing import SCHEDULE, crashed, delays_of

pytestmark = pytest.mark.usefixtures("frequent_looks")


def progress_in(root: Path) -> dict[str, int]:
    file = root / "config/delayOffset.json"
    if not file.exists():
        return {}
    table: dict[str, int] = json.loads(file.read_bytes())["offsetTable"]
    return table


async def delay(client: Client, body: bytes, level: object = 1, queue_id: int = 0) -> None:
    answer = await client.send(body=body, queue_id=queue_id, properties={"DELAY": str(level)})
    assert answer.code == 0


async def arrived(client: Client, count: int, queue_id: int = 0) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    while len(found) < count:
        found += await client.arrival(TOPIC, queue_id, len(found))
    return found


# -- when ----------------------------------------------------------------------------------------


@bounded
async def test_a_delayed_message_waits_elsewhere_and_comes_as_it_was_sent(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        properties = {"DELAY": "3", "TAGS": "red", "KEYS": "k", "文": "宝"}
        answer = await client.send(body=b"later", queue_id=2, properties=properties, h=7)
        (waiting,) = await client.pulled(SCHEDULE, 2)
        assert (number(answer, "queueId"), number(answer, "queueOffset")) == (2, 0)
        assert (waiting.topic, waiting.queue_id) == (SCHEDULE, 2)
        assert waiting.property_map()["REAL_TOPIC"] == TOPIC
        assert waiting.property_map()["REAL_QID"] == "2"

        clock.advance(10_000)
        (message,) = await client.arrival(TOPIC, 2, subscription="red")
        assert (message.body, message.queue_id, message.queue_offset) == (b"later", 2, 0)
        assert (message.flag, message.born_host) == (7, waiting.born_host)
        stored = message.property_map()
        assert (stored["TAGS"], stored["KEYS"], stored["文"]) == ("red", "k", "宝")
        assert stored["UNIQ_KEY"] == answer.text_fields()["transactionId"]


@pytest.mark.parametrize(
    ("level", "delay_ms"), [(1, 1000), (2, 5000), (5, 60_000), (18, 7_200_000)]
)
@bounded
async def test_no_message_comes_early(tmp_path: Path, level: int, delay_ms: int) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        await delay(client, b"later", level)
        clock.advance(delay_ms - 1)
        answer = await client.pull(flag=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=50)
        assert bodies_in(answer) == []
        clock.advance(1)
        assert len(await arrived(client, 1)) == 1


@bounded
async def test_by_the_wall_clock_a_second_is_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await delay(client, b"later")
        (waiting,) = await client.pulled(SCHEDULE)
        (message,) = await arrived(client, 1)
        assert 1000 <= message.store_timestamp - waiting.store_timestamp < 5000


@pytest.mark.parametrize("level", ["0", "-1", "soon", "--5", "²", "9" * 5000, ""])
@bounded
async def test_a_level_that_is_none_is_no_delay(tmp_path: Path, level: str) -> None:
    async with serving(tmp_path, messageDelayLevel="1s 2s") as broker:
        client = await Client.to(broker)
        answer = await client.send(i=f"DELAY\x01{level}\x02")
        assert answer.code == 0
        assert len(await client.pulled(TOPIC)) == 1


@bounded
async def test_a_level_beyond_the_last_is_the_last(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock, messageDelayLevel="1s 2s") as broker:
        client = await Client.to(broker)
        await delay(client, b"later", 99)
        (waiting,) = await client.pulled(SCHEDULE, 1)
        assert waiting.property_map()["DELAY"] == "2"
        clock.advance(1999)
        assert await client.pulled(TOPIC) == []
        clock.advance(1)
        assert len(await arrived(client, 1)) == 1


@bounded
async def test_messages_of_a_level_come_in_their_order(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        for n in range(150):
            await delay(client, b"%d" % n)
            clock.advance(5)
        clock.advance(1000)
        found = await arrived(client, 150)
        assert [message.body for message in found] == [b"%d" % n for n in range(150)]


@bounded
async def test_a_short_delay_overtakes_a_long_one(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        await delay(client, b"long", 3)
        await delay(client, b"short", 1)
        clock.advance(1000)
        await arrived(client, 1)
        clock.advance(9000)
        assert [m.body for m in await arrived(client, 2)] == [b"short", b"long"]


@bounded
async def test_a_delivery_wakes_who_waits(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        await delay(client, b"later")
        waiting = asyncio.create_task(
            client.pull(flag=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=30_000)
        )
        await until(lambda: len(context_of(broker).waiting_pulls) == 1)
        clock.advance(1000)
        assert bodies_in(await waiting) == [b"later"]


# -- progress ------------------------------------------------------------------------------------


@bounded
async def test_progress_is_saved_while_the_broker_runs(tmp_path: Path) -> None:
    clock = ManualClock()
    how = {"clock": clock, "flushDelayOffsetInterval": 10, "flushIntervalCommitLog": 10}
    async with serving(tmp_path, **how) as broker:
        client = await Client.to(broker)
        for n in range(3):
            await delay(client, b"%d" % n)
        clock.advance(1000)
        await arrived(client, 3)
        await until(lambda: progress_in(tmp_path).get("1") == 3)
        assert json.loads((await client.ask(45)).body)["offsetTable"]["1"] == 3


@bounded
async def test_a_restart_in_order_neither_loses_nor_doubles(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        await delay(client, b"delivered")
        clock.advance(1000)
        await arrived(client, 1)
        await delay(client, b"pending")
        await delay(client, b"far", 2)
    assert progress_in(tmp_path)["1"] == 1
    clock.advance(1000)
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        await arrived(client, 2)
        clock.advance(5000)
        found = await arrived(client, 3)
        assert [m.body for m in found] == [b"delivered", b"pending", b"far"]
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        clock.advance(60_000)
        await delay(client, b"mark")
        clock.advance(1000)
        assert (await arrived(client, 4))[3].body == b"mark"


@bounded
async def test_after_a_crash_some_come_twice_and_none_is_missing(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path / "running", clock=clock) as broker:
        client = await Client.to(broker)
        for n in range(5):
            await delay(client, b"%d" % n)
        clock.advance(1000)
        await arrived(client, 5)
        await delay(client, b"pending")
        image = await crashed(broker, tmp_path / "image")
    clock.advance(1000)
    async with serving(image, clock=clock) as broker:
        client = await Client.to(broker)
        await until(lambda: delays_of(broker).next_offset(1) == 6)
        found = [message.body for message in await client.pulled(TOPIC)]
        assert set(found) == {b"%d" % n for n in range(5)} | {b"pending"}


@bounded
async def test_progress_is_not_saved_ahead_of_what_the_disk_has(tmp_path: Path) -> None:
    clock, disk = ManualClock(), HeldDisk()
    async with serving(tmp_path, clock=clock, disk=disk, flushIntervalCommitLog=10) as broker:
        client, delays = await Client.to(broker), delays_of(broker)
        await delay(client, b"later")
        store = context_of(broker).store
        await until(lambda: store.flushed.value == store.appended.value)
        disk.hold()
        clock.advance(1000)
        await arrived(client, 1)
        delays.save()
        assert progress_in(tmp_path).get("1", 0) == 0
        disk.let_go()
        await until(lambda: store.flushed.value == store.appended.value)
        delays.save()
        assert progress_in(tmp_path)["1"] == 1


@bounded
async def test_under_constant_load_progress_follows_a_save_behind(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock, flushIntervalCommitLog=60_000) as broker:
        client, delays = await Client.to(broker), delays_of(broker)
        store = context_of(broker).store
        for n in range(3):
            await delay(client, b"%d" % n)
            clock.advance(1000)
            await arrived(client, n + 1)
            delays.save()
            store.flush()
            await client.send("other")  # The log's end is never on disk when a save begins.
        assert progress_in(tmp_path)["1"] == 2


@bounded
async def test_progress_beyond_the_end_of_the_log_is_put_right(tmp_path: Path) -> None:
    """As after a power cut that took the end of the log, but not the file."""
    clock = ManualClock()
    config = tmp_path / "config"
    config.mkdir()
    (config / "delayOffset.json").write_text('{"offsetTable":{1:50}}')
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        await delay(client, b"later")
        clock.advance(1000)
        assert [message.body for message in await arrived(client, 1)] == [b"later"]


@bounded
async def test_a_full_disk_holds_deliveries_up_until_there_is_space(tmp_path: Path) -> None:
    clock, disk = ManualClock(), FullDisk()
    async with serving(tmp_path, clock=clock, disk=disk, cleanResourceInterval=10) as broker:
        client = await Client.to(broker)
        for n in range(3):
            await delay(client, b"%d" % n)
        disk.percent = 95.0
        while (await client.send("other")).code == 0:
            await asyncio.sleep(0.01)
        clock.advance(1000)
        await asyncio.sleep(0.05)
        assert await client.pulled(TOPIC) == []
        disk.percent = 10.0
        assert [m.body for m in await arrived(client, 3)] == [b"0", b"1", b"2"]
