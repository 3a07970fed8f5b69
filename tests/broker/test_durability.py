"""When a send may be acknowledged, and what the disk has then."""

import asyncio
import errno
import random
from pathlib import Path

import pytest

from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.command import Command
from cometmq.protocol.message_id import parse_offset_id
from cometmq.store import watermark
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore
from cometmq.testing.clock import ManualClock
from cometmq.testing.disk import FailingDisk, PowerCutDisk

from .brokers import (
    GROUP,
    SUBSCRIPTION,
    SUSPEND,
    TOPIC,
    Client,
    FullDisk,
    HeldDisk,
    bodies_in,
    bounded,
    broker_of,
    context_of,
    number,
    serving,
    settings_of,
    until,
)

SYNC = "SYNC_FLUSH"


def started(client: Client, count: int = 1) -> list[asyncio.Task[Command]]:
    """Sends under way."""
    return [asyncio.create_task(client.send(body=b"%d" % n)) for n in range(count)]


@bounded
async def test_a_synchronous_send_is_answered_when_the_disk_has_it(tmp_path: Path) -> None:
    disk = HeldDisk()
    async with serving(tmp_path, disk=disk, flushDiskType=SYNC) as broker:
        client, store = await Client.to(broker), context_of(broker).store
        disk.hold()
        sends = started(client, 20)
        await until(lambda: store.appended.value > 0)
        # Another request on the same connection is answered: it is the disk that they wait for.
        assert number(await client.ask(30, {"topic": TOPIC, "queueId": 0}), "offset") == 20
        assert store.flushed.value == 0
        assert not any(send.done() for send in sends)
        disk.let_go()

        answers = await asyncio.gather(*sends)
        assert store.flushed.value == store.appended.value
        assert [answer.code for answer in answers] == [0] * 20


@bounded
async def test_what_was_acknowledged_survives_a_power_cut(tmp_path: Path) -> None:
    disk = PowerCutDisk()
    broker = broker_of(tmp_path / "store", disk=disk, flushDiskType=SYNC)
    await broker.start()
    clients = [await Client.to(broker) for _ in range(4)]
    acknowledged: set[bytes] = set()

    async def produce(client: Client, name: int) -> None:
        for n in range(10_000):
            body = b"%d of %d" % (n, name)
            if (await client.send(body=body)).code != 0:
                return
            acknowledged.add(body)

    producers = [asyncio.create_task(produce(c, name)) for name, c in enumerate(clients)]
    await until(lambda: len(acknowledged) >= 200)
    disk.cut_power(tmp_path / "store", tmp_path / "image", random.Random(7))
    await asyncio.gather(*producers)
    with pytest.raises(OSError, match="the power is off"):
        await broker.stop()

    async with serving(tmp_path / "image") as again:
        client = await Client.to(again)
        found = {message.body for message in await client.pulled(TOPIC)}
    assert acknowledged <= found


@bounded
async def test_an_asynchronous_send_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    disk = HeldDisk()
    async with serving(tmp_path, disk=disk) as broker:
        client = await Client.to(broker)
        disk.hold()
        assert (await client.send()).code == 0
        assert context_of(broker).store.flushed.value == 0
        disk.let_go()


@bounded
async def test_a_producer_may_choose_not_to_wait(tmp_path: Path) -> None:
    disk = HeldDisk()
    async with serving(tmp_path, disk=disk, flushDiskType=SYNC) as broker:
        client = await Client.to(broker)
        disk.hold()
        answer = await client.send(properties={"WAIT": "false"})
        assert (answer.code, number(answer, "queueOffset")) == (0, 0)
        waiting = asyncio.create_task(client.send(properties={"MY_WAIT": "false"}))
        await until(lambda: context_of(broker).store.max_offset(TOPIC, 0) == 2)
        assert not waiting.done()
        disk.let_go()
        assert (await waiting).code == 0


@bounded
async def test_a_disk_that_takes_too_long_is_told_with_where_the_message_is(tmp_path: Path) -> None:
    disk = HeldDisk()
    async with serving(tmp_path, disk=disk, flushDiskType=SYNC, syncFlushTimeout=100) as broker:
        client = await Client.to(broker)
        disk.hold()
        answer = await client.send(body=b"late")
        disk.let_go()

        assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
        host, _ = parse_offset_id(answer.text_fields()["msgId"])
        assert host == broker.address
        assert (number(answer, "queueId"), number(answer, "queueOffset")) == (0, 0)
        assert [message.body for message in await client.pulled(TOPIC)] == [b"late"]
        assert (await client.send()).code == 0


@bounded
async def test_too_many_who_wait_for_the_disk_are_told_to_come_later(tmp_path: Path) -> None:
    disk = HeldDisk()
    settings = {"flushDiskType": SYNC, "sendThreadPoolQueueCapacity": 3}
    async with serving(tmp_path, disk=disk, **settings) as broker:
        client, store = await Client.to(broker), context_of(broker).store
        disk.hold()
        waiting = started(client, 3)
        await until(lambda: store.max_offset(TOPIC, 0) == 3)
        refused = await client.send()
        back = await client.ask(36, {"offset": 0, "group": GROUP, "delayLevel": 1})
        disk.let_go()

        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert refused.remark is not None
        assert "3 sends wait for the disk" in refused.remark
        assert back.code == ResponseCode.SYSTEM_BUSY
        assert [answer.code for answer in await asyncio.gather(*waiting)] == [0, 0, 0]
        assert (await client.send()).code == 0


@bounded
async def test_more_who_wait_than_the_store_keeps_are_told_and_consumers_still_woken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, flushDiskType=SYNC) as broker:
        client = await Client.to(broker)
        await client.send(body=b"first")
        waiting = asyncio.create_task(
            client.pull(offset=1, flag=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=30_000)
        )
        await until(lambda: len(context_of(broker).waiting_pulls) == 1)
        monkeypatch.setattr(watermark, "WAITERS_MAX", 0)
        refused = await client.send(body=b"second")
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert bodies_in(await waiting) == [b"second"]


@bounded
async def test_one_sender_that_cannot_be_told_does_not_keep_others_waiting(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        told: list[BaseException | None] = []

        def broken(_: BaseException | None) -> None:
            raise RuntimeError("as a bug would")

        turns = context_of(broker).turns
        for settled in (told.append, broken, told.append):
            turns.appended(settled)
        await until(lambda: told)
        assert told == [None, None]


@bounded
async def test_a_sync_that_fails_is_told_to_all_who_wait_and_all_who_come(tmp_path: Path) -> None:
    disk = FailingDisk(errno.EIO)
    broker = broker_of(tmp_path, disk=disk, flushDiskType=SYNC)
    await broker.start()
    client = await Client.to(broker)
    assert (await client.send(body=b"safe")).code == 0
    disk.failing = True
    answers = await asyncio.gather(*started(client, 5))
    assert {answer.code for answer in answers} == {ResponseCode.SERVICE_NOT_AVAILABLE}
    later = await client.send()
    assert later.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert later.remark is not None
    assert "could not be made durable" in later.remark
    await broker.stop()

    async with serving(tmp_path) as again:
        client = await Client.to(again)
        assert b"safe" in {message.body for message in await client.pulled(TOPIC)}


@bounded
async def test_a_full_disk_refuses_sends_and_takes_them_again(tmp_path: Path) -> None:
    disk, clock = FullDisk(), ManualClock()
    how = {"disk": disk, "clock": clock, "mappedFileSizeCommitLog": 64 * 1024}
    async with serving(tmp_path, **how) as broker:
        client = await Client.to(broker)
        assert (await client.send(body=bytes(4000))).code == 0
        disk.full = True
        answers = [await client.send(body=bytes(4000)) for _ in range(60)]
        taken = [answer.code for answer in answers].count(0)

        assert 0 < taken < 60
        assert {answer.code for answer in answers[taken:]} == {ResponseCode.SERVICE_NOT_AVAILABLE}
        assert answers[-1].remark is not None
        assert "No space left on device" in answers[-1].remark
        assert len(await client.pulled(TOPIC)) == taken + 1

        disk.full = False
        clock.advance(1001)
        assert (await client.send(body=bytes(4000))).code == 0
        assert len(await client.pulled(TOPIC)) == taken + 2


@bounded
async def test_over_the_disks_mark_sends_are_refused_until_it_is_below(tmp_path: Path) -> None:
    disk = FullDisk()
    async with serving(tmp_path, disk=disk, cleanResourceInterval=10) as broker:
        client = await Client.to(broker)
        assert (await client.send()).code == 0
        disk.percent = 95.0
        while (refused := await client.send()).code == 0:
            await asyncio.sleep(0.01)
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert refused.remark is not None
        assert "over 90 % full" in refused.remark
        assert (await client.pull()).code == 0
        disk.percent = 50.0
        while (await client.send()).code != 0:
            await asyncio.sleep(0.01)


# -- stopping ------------------------------------------------------------------------------------


@bounded
async def test_a_stop_lets_answers_out(tmp_path: Path) -> None:
    disk = HeldDisk()
    broker = broker_of(tmp_path, disk=disk, flushDiskType=SYNC)
    await broker.start()
    client, store = await Client.to(broker), context_of(broker).store
    disk.hold()
    waiting = started(client, 5)
    await until(lambda: store.max_offset(TOPIC, 0) == 5)
    stopping = asyncio.create_task(broker.stop())
    await asyncio.sleep(0)
    refused = await client.send()
    disk.let_go()
    await stopping

    assert [answer.code for answer in await asyncio.gather(*waiting)] == [0] * 5
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert refused.remark is not None
    assert "the broker is stopping" in refused.remark


@bounded
async def test_a_stop_right_behind_a_send_answers_it(tmp_path: Path) -> None:
    broker = broker_of(tmp_path)
    await broker.start()
    client, topics = await Client.to(broker), context_of(broker).topics
    stops = []
    # A new topic is told in the middle of the send, ahead of the end of its turn.
    topics.on_change = lambda: stops.append(asyncio.create_task(broker.stop()))
    assert (await client.send("fresh")).code == 0
    await asyncio.gather(*stops)
    assert len(stops) == 1


@bounded
async def test_a_disk_full_at_the_stop_still_closes_the_store_in_order(tmp_path: Path) -> None:
    class NoRoomForTables(FullDisk):
        def write_whole(self, path: Path, content: bytes) -> None:
            if self.full and path.suffix == ".json":
                raise OSError(errno.ENOSPC, "no space", str(path))
            super().write_whole(path, content)

    disk = NoRoomForTables()
    broker = broker_of(tmp_path, disk=disk)
    await broker.start()
    client = await Client.to(broker)
    await client.send()
    context_of(broker).groups.find("fresh")
    disk.full = True
    with pytest.raises(OSError, match="no space"):
        await broker.stop()
    assert not (tmp_path / "abort").exists()

    values = settings_of(tmp_path)
    config = StoreConfig(
        root=tmp_path,
        commit_log_file_bytes=values["mappedFileSizeCommitLog"],
        consume_queue_file_bytes=values["mappedFileSizeConsumeQueue"],
        index_slots=values["maxHashSlotNum"],
        index_items=values["maxIndexNum"],
    )
    with MessageStore(config) as store:
        assert store.max_offset(TOPIC, 0) == 1
