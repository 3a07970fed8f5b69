"""A slave has its master's log, byte for byte, whatever happens between them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.broker import Broker
from cometmq.replication.errors import LogsDiffer, OutOfStep
from cometmq.replication.stream import frame_header
from cometmq.store.errors import StoreMismatch
from cometmq.testing import FaultProxy
from cometmq.testing.link import Direction
from tests.broker.brokers import Client, FullDisk, broker_of, context_of, until
from tests.replication.pairs import (
    FILE_BYTES,
    QUICK,
    assert_same_log,
    doomed,
    follower_of,
    in_step,
    log_bytes,
    master,
    name_server,
    pair,
    queue_bytes,
    read_all,
    send_all,
    slave,
    slaves_of,
    store_of,
    stranger,
)


async def test_a_slave_copies_what_comes_byte_for_byte(tmp_path: Path) -> None:
    async with master(tmp_path) as leader, slave(tmp_path, leader) as follower:
        assert set(await send_all(leader, 2000)) == {0}
        await in_step(leader, follower)
        assert_same_log(leader, follower)
        assert queue_bytes(tmp_path / "master") == queue_bytes(tmp_path / "slave-1")


async def test_records_larger_than_a_frame_are_put_together(tmp_path: Path) -> None:
    async with (
        master(tmp_path, haTransferBatchSize=1024) as leader,
        slave(tmp_path, leader) as follower,
    ):
        await send_all(leader, 30, size=10_000)
        await in_step(leader, follower)
        assert_same_log(leader, follower)


async def test_a_slave_finds_its_master_through_the_name_server(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names, pair(tmp_path, names) as (leader, follower):
        await send_all(leader, 50)
        await in_step(leader, follower)
        assert_same_log(leader, follower)
        await until(lambda: context_of(follower).topics.get("orders"))
        assert await read_all(follower) == await read_all(leader) != []


async def test_a_slave_that_comes_before_its_master_waits_for_it(tmp_path: Path) -> None:
    async with (
        name_server(tmp_path) as names,
        slave(tmp_path, waits=False, namesrvAddr=names) as follower,
        master(tmp_path, namesrvAddr=names) as leader,
    ):
        await send_all(leader, 50)
        await in_step(leader, follower)
        assert_same_log(leader, follower)


async def test_messages_are_found_by_key_at_a_slave(tmp_path: Path) -> None:
    async with master(tmp_path) as leader, slave(tmp_path, leader) as follower:
        client = await Client.to(leader)
        await client.send("orders", b"found", properties={"KEYS": "invoice-7"})
        client.close()
        await in_step(leader, follower)
        assert [m.body for m in store_of(follower).query("orders", "invoice-7")] == [b"found"]


# -- starts and ends -----------------------------------------------------------------------------


@pytest.mark.parametrize("abrupt", [False, True])
async def test_a_slave_goes_on_where_it_was(tmp_path: Path, abrupt: bool) -> None:
    async with master(tmp_path) as leader:
        away = await started_slave(tmp_path, leader)
        await send_all(leader, 300)
        await in_step(leader, away)
        await (away.abandon() if abrupt else away.stop())
        await send_all(leader, 1500)
        async with slave(tmp_path, leader) as back:
            await in_step(leader, back)
            assert_same_log(leader, back)
            assert store_of(back).commit_log.start_offset == 0


@pytest.mark.parametrize("abrupt", [False, True])
async def test_a_slave_follows_a_master_that_was_away(tmp_path: Path, abrupt: bool) -> None:
    async with (
        name_server(tmp_path) as names,
        doomed(tmp_path, namesrvAddr=names) as leader,
        slave(tmp_path, namesrvAddr=names) as follower,
    ):
        await send_all(leader, 300)
        await in_step(leader, follower)
        await (leader.abandon() if abrupt else leader.stop())
        async with master(tmp_path, namesrvAddr=names) as back:
            await send_all(back, 300)
            await in_step(back, follower)
            assert_same_log(back, follower)


async def started_slave(root: Path, leader: Broker, **settings: Any) -> Broker:
    broker = broker_of(
        root / "slave-1", brokerRole="SLAVE", brokerId=1,
        haMasterAddress=context_of(leader).ha_address, **{**QUICK, **settings},
    )  # fmt: skip
    await broker.start()
    await until(lambda: follower_of(broker).is_following)
    return broker


async def test_a_master_that_stops_in_order_leaves_nothing_behind(tmp_path: Path) -> None:
    async with doomed(tmp_path) as leader, slave(tmp_path, leader) as follower:
        await send_all(leader, 1000)
        end = store_of(leader).appended.value
        await leader.stop()
        assert store_of(follower).appended.value == end


async def test_a_new_slave_begins_with_the_masters_last_file(tmp_path: Path) -> None:
    """As RocketMQ's do: what is older is at the master alone."""
    async with master(tmp_path) as leader:
        await send_all(leader, 1500)
        last = store_of(leader).commit_log.segments.last
        assert last is not None
        assert last.base > FILE_BYTES
        async with slave(tmp_path, leader) as follower:
            await in_step(leader, follower)
            assert store_of(follower).commit_log.start_offset == last.base
            end = store_of(leader).appended.value
            copied = log_bytes(tmp_path / "slave-1", end)
            assert copied == {last.path.name: log_bytes(tmp_path / "master", end)[last.path.name]}
            for queue_id in range(4):
                ends = {store_of(b).max_offset("orders", queue_id) for b in (leader, follower)}
                assert len(ends) == 1
        async with slave(tmp_path, leader) as again:
            await send_all(leader, 300)
            await in_step(leader, again)
            assert store_of(again).commit_log.start_offset == last.base


async def test_two_slaves_follow_one_master(tmp_path: Path) -> None:
    async with (
        master(tmp_path) as leader,
        slave(tmp_path, leader, 1) as first,
        slave(tmp_path, leader, 2) as second,
    ):
        await send_all(leader, 500)
        await in_step(leader, first, second)
        assert_same_log(leader, first)
        assert_same_log(leader, second)


# -- faults --------------------------------------------------------------------------------------


async def test_a_connection_that_breaks_anywhere_costs_nothing(tmp_path: Path) -> None:
    async with (
        master(tmp_path) as leader,
        FaultProxy(context_of(leader).ha_address) as proxy,
        slave(tmp_path, proxy.address) as follower,
    ):
        for bytes_left in (1, 7, 12, 13, 500, 3333):
            proxy.cut_after(bytes_left, Direction.TO_CLIENT)
            await send_all(leader, 50)
            await in_step(leader, follower)
        assert proxy.traffic.cuts >= 5
        assert_same_log(leader, follower)


async def test_a_silent_master_is_given_up_and_found_again(tmp_path: Path) -> None:
    async with (
        master(tmp_path) as leader,
        FaultProxy(context_of(leader).ha_address) as proxy,
        slave(tmp_path, proxy.address, haHousekeepingInterval=1000) as follower,
    ):
        await send_all(leader, 50)
        await in_step(leader, follower)
        proxy.silence()
        await send_all(leader, 50)
        await in_step(leader, follower)
        assert_same_log(leader, follower)


async def test_a_silent_slave_is_given_up(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"haHousekeepingInterval": 600}
    async with (
        master(tmp_path, **settings) as leader,
        FaultProxy(context_of(leader).ha_address) as proxy,
        slave(tmp_path, proxy.address),
    ):
        await until(lambda: list(slaves_of(leader)))
        proxy.refuse()
        proxy.silence()
        await until(lambda: not list(slaves_of(leader)))


async def test_signs_of_life_keep_an_idle_connection(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"haHousekeepingInterval": 700}
    async with (
        master(tmp_path, **settings) as leader,
        FaultProxy(context_of(leader).ha_address) as proxy,
        slave(tmp_path, proxy.address, **settings) as follower,
    ):
        await until(lambda: follower_of(follower).is_following)
        await asyncio.sleep(1.5)
        assert proxy.traffic.connections == 1
        assert follower_of(follower).is_following


async def test_a_slave_that_does_not_read_costs_the_master_no_memory(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "mappedFileSizeCommitLog": 8 * 1024**2,
        "haHousekeepingInterval": 60_000,
    }
    async with master(tmp_path, **settings) as leader:
        host, port = context_of(leader).ha_address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(bytes(8))
        await until(lambda: [link.sent for link in slaves_of(leader)] == [0])
        for _ in range(8):
            await send_all(leader, 50, size=100_000)
        (link,) = slaves_of(leader)
        assert store_of(leader).appended.value > 38 * 1024**2
        assert link._transport is not None
        assert link._transport.get_write_buffer_size() < 3 * 1024**2
        del reader
        writer.transport.abort()
        await until(lambda: not list(slaves_of(leader)))


async def test_a_slave_whose_disk_is_full_goes_on_when_there_is_space(tmp_path: Path) -> None:
    disk = FullDisk()
    async with master(tmp_path) as leader:
        await send_all(leader, 100)
        async with slave(tmp_path, leader, disk=disk) as follower:
            await in_step(leader, follower)
            disk.full = True
            # Beyond the file that is there, and the one that was made ahead.
            await send_all(leader, 1500)
            await until(lambda: "No space" in str(follower_of(follower).trouble))
            disk.full = False
            await in_step(leader, follower)
            assert_same_log(leader, follower)


# -- logs that are not copies --------------------------------------------------------------------


async def test_a_slave_that_is_ahead_of_its_master_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with name_server(tmp_path) as names:
        async with pair(tmp_path, names) as (leader, follower):
            await send_all(leader, 300)
            await in_step(leader, follower)
        async with stranger(tmp_path, namesrvAddr=names) as other:
            await send_all(other, 20)
            async with slave(tmp_path, namesrvAddr=names) as follower:
                end = store_of(follower).appended.value
                await until(lambda: isinstance(follower_of(follower).trouble, LogsDiffer))
                assert store_of(follower).appended.value == end
                assert len(await read_all(follower)) == 300
    assert "Empty this store" in caplog.text
    assert "make this broker the master" in caplog.text


async def test_a_master_refuses_a_slave_that_is_ahead_and_counts_it_for_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with master(tmp_path) as leader:
        await send_all(leader, 1)
        host, port = context_of(leader).ha_address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write((10**9).to_bytes(8, "big"))
        assert await reader.read() == b""
        writer.close()
        assert store_of(leader).replicated.value == 0
    assert "is refused: its log goes to 1000000000" in caplog.text


async def test_a_slave_with_another_last_message_is_refused(tmp_path: Path) -> None:
    """Also where both logs have records of the same size at the same places."""
    async with name_server(tmp_path) as names:
        async with pair(tmp_path, names) as (leader, follower):
            await send_all(leader, 100)
            await in_step(leader, follower)
        async with stranger(tmp_path, namesrvAddr=names) as other:
            await send_all(other, 200)
            async with slave(tmp_path, namesrvAddr=names) as follower:
                end = store_of(follower).appended.value
                await until(lambda: "another one" in str(follower_of(follower).trouble))
                assert store_of(follower).appended.value == end


async def test_without_a_name_server_a_log_that_goes_on_differently_is_seen(
    tmp_path: Path,
) -> None:
    async with master(tmp_path) as leader, slave(tmp_path, leader) as follower:
        await send_all(leader, 100, size=100)
        await in_step(leader, follower)
    async with stranger(tmp_path) as other:
        await send_all(other, 100, size=333)
        async with slave(tmp_path, other) as follower:
            end = store_of(follower).appended.value
            await until(lambda: isinstance(follower_of(follower).trouble, LogsDiffer))
            assert store_of(follower).appended.value == end


async def test_a_slave_whose_next_bytes_are_deleted_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with name_server(tmp_path) as names, master(tmp_path, namesrvAddr=names) as leader:
        async with slave(tmp_path, namesrvAddr=names) as follower:
            await send_all(leader, 10)
            await in_step(leader, follower)
        await send_all(leader, 1500)
        store = store_of(leader)
        store.commit_log.segments.remove_first()
        async with slave(tmp_path, namesrvAddr=names) as follower:
            await until(lambda: isinstance(follower_of(follower).trouble, LogsDiffer))
        async with slave(tmp_path, leader) as follower:
            await until(lambda: "closed the connection" in str(follower_of(follower).trouble))
    assert "what lies between is deleted" in caplog.text


async def test_files_of_another_size_are_refused(tmp_path: Path) -> None:
    async with master(tmp_path) as leader:
        other: dict[str, Any] = {"mappedFileSizeCommitLog": FILE_BYTES * 2}
        async with slave(tmp_path, leader, **other) as follower:
            await send_all(leader, 1500)
            await until(lambda: isinstance(follower_of(follower).trouble, StoreMismatch))
            assert "mappedFileSizeCommitLog" in str(follower_of(follower).trouble)


async def test_a_frame_for_another_place_ends_the_connection(tmp_path: Path) -> None:
    """A master that is none of ours, or speaks nonsense."""

    async def nonsense(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame_header(0, 4) + b"abcd" + frame_header(77, 4) + b"efgh")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with slave(tmp_path, f"127.0.0.1:{port}") as follower:
        await until(lambda: isinstance(follower_of(follower).trouble, OutOfStep))
        assert store_of(follower).appended.value == 4
        assert store_of(follower).confirmed.value == 0
    server.close()
