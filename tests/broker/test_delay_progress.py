"""Delay levels over crashes: what the log has is counted, so each message comes exactly once."""

import itertools
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker import delays as delays_module
from cometmq.broker.broker import Broker
from cometmq.broker.origins import delivered_since, first_waiting
from cometmq.protocol.host import pack_host
from cometmq.protocol.message import Message
from cometmq.store.errors import StoreFailed
from cometmq.store.message_store import MessageStore
from cometmq.testing.clock import ManualClock
from cometmq.testing.disk import PowerCutDisk
from tests.store.stores import small_config

from .brokers import Client, bounded, broker_of, context_of, serving, until
from .timing import HOUR_MS, SCHEDULE, bodies, crashed, delays_of, twice

pytestmark = pytest.mark.usefixtures("frequent_looks")


async def send(client: Client, body: bytes, level: int) -> None:
    answer = await client.send(body=body, properties={"DELAY": str(level)})
    assert answer.code == 0


async def all_delivered(broker: Broker, *levels: int) -> None:
    delays, store = delays_of(broker), context_of(broker).store
    await until(
        lambda: all(delays.next_offset(n) == store.max_offset(SCHEDULE, n - 1) for n in levels)
    )


@bounded
async def test_crashes_amid_deliveries_neither_lose_nor_double(tmp_path: Path) -> None:
    """Again and again: each broker goes on with what a kill of the one before it has left."""
    clock, root, numbers = ManualClock(), tmp_path / "0", itertools.count(1)
    how: dict[str, Any] = {
        "clock": clock,
        "messageDelayLevel": "1s 2s 5s",
        "flushDelayOffsetInterval": 50,
    }
    broker = broker_of(root, **how)
    await broker.start()
    sent = []
    for n in range(8):
        client = await Client.to(broker)
        for level in (1, 2, 3):
            for m in range(5):
                sent.append(b"%d %d %d" % (n, level, m))
                await send(client, sent[-1], level)
        clock.advance(1000)
        if n % 2:
            await all_delivered(broker, 1)
        image = await crashed(broker, tmp_path / str(next(numbers)))
        await broker.stop()
        root, broker = image, broker_of(image, **how)
        await broker.start()
    clock.advance(HOUR_MS)
    await all_delivered(broker, 1, 2, 3)
    found = await bodies(await Client.to(broker))
    await broker.stop()
    assert twice(found) == []
    assert set(found) == set(sent)


@pytest.mark.parametrize("file", ["kept", "lost"])
@bounded
async def test_saved_progress_is_a_start_and_the_log_the_truth(tmp_path: Path, file: str) -> None:
    clock = ManualClock()
    running = tmp_path / "running"
    async with serving(running, clock=clock) as broker:
        client = await Client.to(broker)
        await send(client, b"0", 1)
        clock.advance(1000)
        await all_delivered(broker, 1)
        context_of(broker).store.flush()
        delays_of(broker).save()
        for n in range(1, 5):
            await send(client, b"%d" % n, 1)
        clock.advance(1000)
        await all_delivered(broker, 1)
        await send(client, b"5", 1)
        image = await crashed(broker, tmp_path / "image")
    saved = json.loads((image / "config/delayOffset.json").read_bytes())
    assert saved["offsetTable"]["1"] == 1
    if file == "lost":
        shutil.rmtree(image / "config")
    clock.advance(1000)
    async with serving(image, clock=clock) as broker:
        await all_delivered(broker, 1)
        assert await bodies(await Client.to(broker)) == [b"%d" % n for n in range(6)]


@bounded
async def test_the_file_of_a_rocketmq_is_taken_at_its_word(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        for n in range(3):
            await send(client, b"%d" % n, 1)
    (tmp_path / "config/delayOffset.json").write_text('{"offsetTable":{1:2}}')
    clock.advance(1000)
    async with serving(tmp_path, clock=clock) as broker:
        await all_delivered(broker, 1)
        assert await bodies(await Client.to(broker)) == [b"2"]


@bounded
async def test_what_a_power_cut_takes_from_the_log_is_delivered_again(tmp_path: Path) -> None:
    clock, disk = ManualClock(), PowerCutDisk()
    root, image = tmp_path / "running", tmp_path / "image"
    broker = broker_of(root, disk=disk, clock=clock, flushIntervalCommitLog=60_000)
    await broker.start()
    client = await Client.to(broker)
    for n in range(20):
        await send(client, b"%d" % n, 1)
    context_of(broker).store.flush()
    clock.advance(1000)
    await all_delivered(broker, 1)
    delays_of(broker).save()
    disk.cut_power(root, image, random.Random(3))
    with pytest.raises(StoreFailed, match="the power is off"):
        await broker.stop()
    async with serving(image, clock=clock) as again:
        await all_delivered(again, 1)
        found = await bodies(await Client.to(again))
        assert twice(found) == []
        assert set(found) == {b"%d" % n for n in range(20)}


@bounded
async def test_a_start_never_has_much_of_the_log_to_look_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delays_module, "LOG_BYTES_UNSAVED_MAX", 1000)
    async with serving(tmp_path) as broker:
        client, store = await Client.to(broker), context_of(broker).store

        async def saved_at(size: int) -> int:
            """The end of the log in the file, after a message of that size."""
            await client.send(body=bytes(size))
            store.flush()
            delays_of(broker).save()
            content = json.loads((tmp_path / "config/delayOffset.json").read_bytes())
            return int(content["logOffset"])

        first = await saved_at(1)
        assert await saved_at(1) == first < store.appended.value
        assert await saved_at(1000) == store.appended.value


# -- the copies ----------------------------------------------------------------------------------


def put(
    store: MessageStore, topic: str, key: bytes, *, origin: int = 0, ip: str = "10.0.0.1"
) -> int:
    message = Message(
        topic, 0, b"x", b"UNIQ_KEY\x01" + key + b"\x02", born_host=pack_host(ip, 1),
        prepared_transaction_offset=origin,
    )  # fmt: skip
    return store.put(message).physical_offset


def test_copies_are_known_by_what_they_were_made_from(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path)) as store:
        waiting = [
            put(store, "waiting", b"K%d" % n, ip=ip) for n, ip in enumerate(("::1", "1.2.3.4"))
        ]
        half = put(store, "half", b"H")
        start = store.appended.value
        put(store, "real", b"K0", origin=waiting[0])
        copy = put(store, "real", b"K1", origin=waiting[1], ip="2001:db8::1")
        put(store, "real", b"other", origin=waiting[1])
        put(store, "real", b"H", origin=half)
        put(store, "real", b"K1", origin=waiting[1] + 1)
        put(store, "real", b"K1", origin=1 << 40)
        put(store, "real", b"plain")

        def found(begin: int) -> list[int]:
            copies = delivered_since(store, begin, ("waiting",))
            return [copy.origin.physical_offset for copy in copies]

        assert waiting[0] == 0
        assert found(start) == found(0) == waiting
        assert found(copy) == [waiting[1]]
        assert found(store.appended.value) == []
        assert first_waiting(store, "waiting", 0) == 0
        assert first_waiting(store, "half", 0) == half
        assert first_waiting(store, "nobody", 0) == store.appended.value


def test_the_first_record_of_the_log_is_not_the_origin_of_everything(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path)) as store:
        put(store, "waiting", b"FIRST")
        put(store, "real", b"plain")
        put(store, "waiting", b"second")
        assert list(delivered_since(store, 0, ("waiting",))) == []
        put(store, "real", b"FIRST")
        assert len(list(delivered_since(store, 0, ("waiting",)))) == 1
