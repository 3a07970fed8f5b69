"""Timed messages over restarts, crashes, power cuts and damaged files: each comes exactly once."""

import asyncio
import errno
import itertools
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.broker.broker import Broker
from cometmq.broker.timers import timers as timers_module
from cometmq.broker.timers.checkpoint import Checkpoint
from cometmq.broker.timers.files import TimerFiles
from cometmq.broker.timers.timer_log import ENTRY, ENTRY_BYTES
from cometmq.broker.timers.wheel import FILE_BYTES
from cometmq.store.disk import Disk
from cometmq.store.errors import StoreFailed
from cometmq.store.message_store import MessageStore
from cometmq.testing.clock import ManualClock
from cometmq.testing.disk import FailingDisk, PowerCutDisk

from .brokers import TOPIC, Client, FullDisk, bounded, broker_of, context_of, serving, until
from .timing import (
    DAY_MS,
    HOUR_MS,
    SECOND_MS,
    TIMER_TOPIC,
    arrived,
    bodies,
    crashed,
    send_at,
    timers_of,
    twice,
)

pytestmark = pytest.mark.usefixtures("frequent_looks")


def caught_up(broker: Broker, clock: ManualClock) -> Callable[[], bool]:
    """Whether everything that is due has been delivered."""
    timers = timers_of(broker)
    return lambda: timers.behind == 0 and timers._due_ms >= clock.now_ms()


async def send_some(client: Client, clock: ManualClock, count: int, seconds: int = 10) -> None:
    """Messages that are due over the next seconds, many of them at the same millisecond."""
    for n in range(count):
        await send_at(client, clock.now_ms() + SECOND_MS * (1 + n % seconds), b"%d" % n)


def expected(count: int, seconds: int = 10) -> list[bytes]:
    """Their order."""
    return [b"%d" % n for n in sorted(range(count), key=lambda n: n % seconds)]


# -- restarts ------------------------------------------------------------------------------------


@bounded
async def test_a_restart_in_order_neither_loses_nor_doubles(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        await send_some(await Client.to(broker), clock, 60)
    for _ in range(6):
        clock.advance(2 * SECOND_MS)
        async with serving(tmp_path, clock=clock) as broker:
            await until(caught_up(broker, clock))
    async with serving(tmp_path, clock=clock) as broker:
        assert await bodies(await Client.to(broker)) == expected(60)


@bounded
async def test_a_restart_does_not_read_the_waiting_messages_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        for n in range(200):
            await send_at(client, clock.now_ms() + DAY_MS + n * SECOND_MS, b"%d" % n)
    clock.advance(HOUR_MS)
    async with serving(tmp_path, clock=clock) as broker:
        store, read = context_of(broker).store, []

        def message_at(offset: int) -> None:
            read.append(offset)

        monkeypatch.setattr(store, "message_at", message_at)
        await until(caught_up(broker, clock))
        assert timers_of(broker).waiting == 200
        assert read == []


@bounded
async def test_a_crash_in_the_midst_of_deliveries_neither_loses_nor_doubles(
    tmp_path: Path,
) -> None:
    """Again and again: each broker goes on with what a kill of the one before it has left."""
    clock, root, numbers = ManualClock(), tmp_path / "0", itertools.count(1)
    broker = broker_of(root, clock=clock)
    await broker.start()
    await send_some(await Client.to(broker), clock, 100)
    for n in range(12):
        if n % 3 == 0:
            await send_at(await Client.to(broker), clock.now_ms() + 5 * SECOND_MS, b"more %d" % n)
        clock.advance(SECOND_MS)
        await (until(caught_up(broker, clock)) if n % 2 else asyncio.sleep(0.003))
        image = await crashed(broker, tmp_path / str(next(numbers)))
        await broker.stop()
        root, broker = image, broker_of(image, clock=clock)
        await broker.start()
    clock.advance(HOUR_MS)
    await until(caught_up(broker, clock))
    found = await bodies(await Client.to(broker))
    await broker.stop()
    assert twice(found) == []
    assert set(found) == {*expected(100), *(b"more %d" % n for n in (0, 3, 6, 9))}


@pytest.mark.parametrize("step", ["log", "wheel", "checkpoint"])
@bounded
async def test_a_crash_in_the_midst_of_a_save_neither_loses_nor_doubles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    clock, running = ManualClock(), tmp_path / "running"
    done: list[str] = []

    def partly(files: TimerFiles, checkpoint: Checkpoint, store: MessageStore) -> None:
        store.flush()
        files.log.sync(checkpoint.timer_log_end)
        if step != "log":
            frozen = files.wheel._frozen
            if step == "wheel":  # Only half of the slots.
                files.wheel._frozen = dict(list(frozen.items())[::2])
            files.wheel.write()
            files.wheel._frozen = frozen
        done.append(step)
        raise OSError(errno.ENOSPC, "no space")

    async with serving(running, clock=clock, timerFlushIntervalMs=20) as broker:
        client = await Client.to(broker)
        await send_some(client, clock, 50)
        await until(lambda: timers_of(broker)._saved[:2] == (50 * ENTRY_BYTES, 50))
        clock.advance(3 * SECOND_MS)
        await until(caught_up(broker, clock))
        monkeypatch.setattr(TimerFiles, "write", partly)
        for n in range(50, 100):
            await send_at(client, clock.now_ms() + SECOND_MS * (1 + n % 10), b"%d" % n)
        clock.advance(2 * SECOND_MS)
        await until(caught_up(broker, clock))
        done.clear()
        await until(lambda: len(done) > 1)
        image = await crashed(broker, tmp_path / "image")
        monkeypatch.undo()

    monkeypatch.setattr(timers_module, "LOOK_INTERVAL_S", 0.01)
    clock.advance(HOUR_MS)
    async with serving(image, clock=clock) as broker:
        await until(caught_up(broker, clock))
        found = await bodies(await Client.to(broker))
        assert sorted(found) == sorted(expected(100))


@bounded
async def test_a_power_cut_takes_no_acknowledged_message(tmp_path: Path) -> None:
    for seed in range(3):
        clock, disk = ManualClock(), PowerCutDisk()
        root, image = tmp_path / f"{seed}", tmp_path / f"{seed}-image"
        broker = broker_of(
            root, disk=disk, clock=clock, flushDiskType="SYNC_FLUSH", timerFlushIntervalMs=20
        )
        await broker.start()
        await send_some(await Client.to(broker), clock, 60)
        for _ in range(5):
            clock.advance(SECOND_MS)
            await until(caught_up(broker, clock))
        delivered = await bodies(await Client.to(broker))
        disk.cut_power(root, image, random.Random(seed))
        with pytest.raises(OSError, match="the power is off"):
            await broker.stop()
        assert len(delivered) == 30

        clock.advance(HOUR_MS)
        async with serving(image, clock=clock) as again:
            await until(caught_up(again, clock))
            found = await bodies(await Client.to(again))
            assert set(found) == set(expected(60))
            assert twice(found) == []


@bounded
async def test_what_a_power_cut_takes_from_the_log_is_delivered_again(tmp_path: Path) -> None:
    clock, disk = ManualClock(), PowerCutDisk()
    root, image = tmp_path / "running", tmp_path / "image"
    broker = broker_of(
        root, disk=disk, clock=clock, flushIntervalCommitLog=60_000, timerFlushIntervalMs=60_000
    )
    await broker.start()
    await send_some(await Client.to(broker), clock, 40)
    store, timers = context_of(broker).store, timers_of(broker)
    await until(caught_up(broker, clock))
    timers.save_soon()
    await until(lambda: timers._saved)
    kept = store.flushed.value
    clock.advance(HOUR_MS)
    await until(caught_up(broker, clock))
    assert len(await bodies(await Client.to(broker))) == 40
    disk.cut_power(root, image, random.Random(1))
    with pytest.raises((OSError, StoreFailed), match="the power is off"):
        await broker.stop()

    async with serving(image, clock=clock) as again:
        recovered = context_of(again).store.appended.value
        assert recovered >= kept
        await until(caught_up(again, clock))
        found = await bodies(await Client.to(again))
        assert twice(found) == []
        assert set(found) == set(expected(40))


# -- damage --------------------------------------------------------------------------------------


def overwrite(path: Path, start: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(content)


def garbage(path: Path, size: int) -> None:
    overwrite(path, 0, random.Random(11).randbytes(size))


def remove_everything(root: Path) -> None:
    shutil.rmtree(root / "timerlog")
    (root / "timerwheel").unlink()
    (root / "config/timercheck").unlink()


def first_log_file(root: Path) -> Path:
    return min((root / "timerlog").iterdir())


def wheel_slot(root: Path, clock: ManualClock) -> int:
    """Where the next second that has messages stands in the wheel."""
    second = clock.now_ms() // 1000 + 2
    return second % (FILE_BYTES // 32) * 32


DAMAGES: dict[str, Callable[[Path, ManualClock], object]] = {
    "no wheel": lambda root, _: (root / "timerwheel").unlink(),
    "a short wheel": lambda root, _: (root / "timerwheel").write_bytes(b"short"),
    "an empty wheel": lambda root, _: (root / "timerwheel").write_bytes(bytes(FILE_BYTES)),
    "a slot of zeros": lambda root, clock: overwrite(
        root / "timerwheel", wheel_slot(root, clock), bytes(32)
    ),
    "a slot that points elsewhere": lambda root, clock: overwrite(
        root / "timerwheel", wheel_slot(root, clock) + 16, (52).to_bytes(8, "big")
    ),
    "a slot that points nowhere": lambda root, clock: overwrite(
        root / "timerwheel", wheel_slot(root, clock) + 16, (1 << 40).to_bytes(8, "big")
    ),
    "no log": lambda root, _: first_log_file(root).unlink(),
    "a log of garbage": lambda root, _: garbage(first_log_file(root), 20_000),
    "a damaged log": lambda root, _: overwrite(first_log_file(root), 30 * ENTRY_BYTES, b"\xff"),
    "no checkpoint": lambda root, _: (root / "config/timercheck").unlink(),
    "an empty checkpoint": lambda root, _: (root / "config/timercheck").write_bytes(b""),
    "a damaged checkpoint": lambda root, _: overwrite(root / "config/timercheck", 70, b"\xff"),
    "a damaged start": lambda root, _: overwrite(root / "config/timercheck", 3, b"\xff"),
    "a checkpoint of garbage": lambda root, _: garbage(root / "config/timercheck", 4096),
    "nothing": lambda root, _: remove_everything(root),
}


@pytest.mark.parametrize("what", DAMAGES)
@bounded
async def test_damaged_files_are_made_anew_from_the_queue(tmp_path: Path, what: str) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        await send_some(client, clock, 80)
        clock.advance(4 * SECOND_MS)
        await until(caught_up(broker, clock))
        assert len(await bodies(client)) == 32
    DAMAGES[what](tmp_path, clock)
    for _ in range(2):
        async with serving(tmp_path, clock=clock) as broker:
            client = await Client.to(broker)
            clock.advance(3 * SECOND_MS)
            await until(caught_up(broker, clock))
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        await send_at(client, clock.now_ms() + SECOND_MS, b"last")
        clock.advance(SECOND_MS)
        await until(caught_up(broker, clock))
        assert await bodies(client) == [*expected(80), b"last"]


@bounded
async def test_damage_that_shows_while_it_runs_is_repaired_while_it_runs(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        await send_some(client, clock, 80)
        clock.advance(4 * SECOND_MS)
        await until(caught_up(broker, clock))
        overwrite(first_log_file(tmp_path), 0, bytes(79 * ENTRY_BYTES))
        clock.advance(HOUR_MS)
        await until(lambda: len(timers_of(broker)._files.log._chain) == 1)
        await arrived(client, 80)
        await until(caught_up(broker, clock))
        assert await bodies(client) == expected(80)


@pytest.mark.parametrize("when", ["at the start", "while it runs"])
@bounded
async def test_a_full_disk_only_puts_the_repair_off(tmp_path: Path, when: str) -> None:
    class NoRoomForTimers(FullDisk):
        def create(self, path: Path, size: int, reserved: int) -> int:
            if path.name == "timerwheel":
                return super().create(path, size, reserved)
            return Disk.create(self, path, size, reserved)

    clock, disk = ManualClock(), NoRoomForTimers()
    async with serving(tmp_path, clock=clock, disk=disk) as broker:
        await send_some(await Client.to(broker), clock, 40)
        await until(caught_up(broker, clock))
        if when == "while it runs":
            disk.full = True
            overwrite(first_log_file(tmp_path), 0, bytes(40 * ENTRY_BYTES))
            clock.advance(4 * SECOND_MS)
            await until(lambda: not timers_of(broker)._files.exist)
    if when == "at the start":
        (tmp_path / "timerwheel").unlink()
        disk.full = True
    async with serving(tmp_path, clock=clock, disk=disk) as broker:
        client = await Client.to(broker)
        clock.advance(HOUR_MS)
        await send_at(client, clock.now_ms() + SECOND_MS, b"last")
        await asyncio.sleep(0.05)
        assert await bodies(client) == []
        disk.full = False
        await arrived(client, 40)
        clock.advance(SECOND_MS)
        await until(caught_up(broker, clock))
        assert await bodies(client) == [*expected(40), b"last"]


@bounded
async def test_rolled_messages_come_once_when_files_are_made_anew(tmp_path: Path) -> None:
    clock = ManualClock()
    how = {"clock": clock, "timerRollWindowSlot": 3600}
    async with serving(tmp_path, **how) as broker:
        client = await Client.to(broker)
        for n in range(10):
            await send_at(client, clock.now_ms() + 5 * HOUR_MS + n, b"%d" % n)
        for _ in range(4):
            clock.advance(HOUR_MS)
            await until(caught_up(broker, clock))
        assert len(await client.pulled(TIMER_TOPIC)) >= 30
    (tmp_path / "timerwheel").unlink()
    async with serving(tmp_path, **how) as broker:
        client = await Client.to(broker)
        clock.advance(HOUR_MS + 100)
        await until(caught_up(broker, clock))
        assert await bodies(client) == [b"%d" % n for n in range(10)]


@bounded
async def test_a_sync_that_fails_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    class TimerDisk(FailingDisk):
        def sync(self, path: Path, fd: int) -> None:
            if "timerlog" in path.parts:
                super().sync(path, fd)
            else:
                Disk.sync(self, path, fd)

    clock, disk = ManualClock(), TimerDisk()
    running = tmp_path / "running"
    failures: list[StoreFailed] = []
    broker = broker_of(running, clock=clock, disk=disk, timerFlushIntervalMs=20)
    broker._on_failure = failures.append
    await broker.start()
    client = await Client.to(broker)
    disk.failing = True
    await send_some(client, clock, 20)
    await until(lambda: failures)
    assert "the timer wheel could not be made durable" in str(failures[0])
    image = await crashed(broker, tmp_path / "image")
    disk.failing = False
    await broker.stop()

    clock.advance(HOUR_MS)
    async with serving(image, clock=clock) as again:
        await until(caught_up(again, clock))
        assert await bodies(await Client.to(again)) == expected(20)


# -- files of RocketMQ ---------------------------------------------------------------------------


def make_foreign(root: Path, second_ms: int, entries: int) -> None:
    """Turn our files into what a RocketMQ has: no checksums, whole seconds, no part of ours."""
    log = first_log_file(root)
    content = bytearray(log.read_bytes())
    for end in range(0, entries * ENTRY_BYTES, ENTRY_BYTES):
        size, previous, kind, written, delay, *rest, _ = ENTRY.unpack_from(content, end)
        out_ms = (written + delay - 1) // 1000 * 1000
        ENTRY.pack_into(content, end, size, previous, kind, written, out_ms - written, *rest, 0)
    end = entries * ENTRY_BYTES
    log.write_bytes(content[:end].ljust(len(content), b"\0"))
    checkpoint = struct.pack(">7q", second_ms, end, entries, entries, 0, second_ms, 900)
    (root / "config/timercheck").write_bytes(checkpoint.ljust(4096, b"\0"))


@bounded
async def test_what_waits_at_a_rocketmq_is_taken_over_at_its_exact_time(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        for n in range(30):
            await send_at(client, clock.now_ms() + 1000 + n * 250, b"%d" % n)
        await until(caught_up(broker, clock))
    clock.advance(3000)
    # It has delivered the seconds up to here, and has not looked at the last five messages.
    make_foreign(tmp_path, clock.now_ms(), 25)
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        await until(caught_up(broker, clock))
        clock.advance(249)
        await until(caught_up(broker, clock))
        assert await bodies(client) == []
        clock.advance(1)
        assert [message.body for message in await arrived(client, 1)] == [b"9"]
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        clock.advance(HOUR_MS)
        await until(caught_up(broker, clock))
        assert await bodies(client) == [b"%d" % n for n in range(9, 30)]


@bounded
async def test_the_topic_of_others_is_left_alone(tmp_path: Path) -> None:
    """A copy that a consumer sends on is none of ours, whatever its properties say."""
    clock = ManualClock()
    running = tmp_path / "running"
    async with serving(running, clock=clock) as broker:
        client = await Client.to(broker)
        answer = await send_at(client, clock.now_ms() + HOUR_MS, b"first of the log")
        (waiting,) = await client.pulled(TIMER_TOPIC)
        forged = waiting.property_map() | {"UNIQ_KEY": "another"}
        assert (await client.send(body=b"forged", properties=forged)).code == 0
        assert answer.text_fields()["queueOffset"] == "0"
        image = await crashed(broker, tmp_path / "image")
    clock.advance(HOUR_MS)
    async with serving(image, clock=clock) as broker:
        client = await Client.to(broker)
        await arrived(client, 2)
        image = await crashed(broker, tmp_path / "second")
    async with serving(image, clock=clock) as broker:
        client = await Client.to(broker)
        await until(caught_up(broker, clock))
        assert await bodies(client) == [b"forged", b"first of the log"]
        assert TOPIC in {topic.topic_name for topic in context_of(broker).topics}
