"""A master that waits for its slaves, and what it answers when they are late or missing."""

import asyncio
import time
from pathlib import Path

from cometmq.protocol.codes import ResponseCode
from cometmq.testing import FaultProxy
from cometmq.testing.link import Direction
from tests.broker.brokers import Client, HeldDisk, context_of, until
from tests.replication.pairs import (
    assert_same_log,
    follower_of,
    in_step,
    master,
    read_all,
    send_all,
    slave,
    slaves_of,
    store_of,
)

SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}


async def test_what_is_acknowledged_is_at_the_slave(tmp_path: Path) -> None:
    async with master(tmp_path, **SYNC) as leader, slave(tmp_path, leader) as follower:
        client = await Client.to(leader)
        for number in range(50):
            answer = await client.send("orders", b"%d" % number)
            assert answer.code == 0
            assert store_of(follower).appended.value == store_of(leader).appended.value
        client.close()
        assert_same_log(leader, follower)


async def test_many_senders_share_one_wait(tmp_path: Path) -> None:
    async with (
        master(tmp_path, **SYNC) as leader,
        FaultProxy(context_of(leader).ha_address) as proxy,
        slave(tmp_path, proxy.address),
    ):
        proxy.delay(0.2)
        before = time.monotonic()
        assert set(await send_all(leader, 1000)) == {0}
        # One after the other they would take minutes.
        assert time.monotonic() - before < 5


async def test_a_slow_slave_is_waited_for_and_nobody_else_is_held_up(tmp_path: Path) -> None:
    async with (
        master(tmp_path, **SYNC, slaveTimeout=3000) as leader,
        FaultProxy(context_of(leader).ha_address) as proxy,
        slave(tmp_path, proxy.address) as follower,
    ):
        await send_all(leader, 1)
        proxy.stall()
        client, other = await Client.to(leader), await Client.to(leader)
        sent = asyncio.create_task(client.send("orders", b"late"))
        await until(lambda: store_of(leader).replicated.awaited)
        began = time.monotonic()
        for _ in range(100):
            assert (await other.ask(28)).code == 0
        assert time.monotonic() - began < 2.5
        assert not sent.done()
        answer = await sent
        assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert "queueOffset" in answer.text_fields()
        # It is stored, and comes to the slave as soon as that can be.
        proxy.resume()
        await in_step(leader, follower)
        assert b"late" in await read_all(leader)
        client.close()
        other.close()


async def test_an_acknowledgement_that_is_lost_is_made_up_for(tmp_path: Path) -> None:
    async with (
        master(tmp_path, **SYNC) as leader,
        FaultProxy(context_of(leader).ha_address) as proxy,
        slave(tmp_path, proxy.address),
    ):
        proxy.stall(Direction.TO_SERVER)
        client = await Client.to(leader)
        sent = asyncio.create_task(client.send("orders", b"heard"))
        await until(lambda: store_of(leader).replicated.awaited)
        proxy.cut()
        proxy.resume()
        assert (await sent).code == 0
        client.close()


async def test_without_a_slave_the_answer_comes_at_once_and_says_so(tmp_path: Path) -> None:
    async with master(tmp_path, **SYNC) as leader:
        began = time.monotonic()
        assert await send_all(leader, 3) == [ResponseCode.SLAVE_NOT_AVAILABLE] * 3
        assert time.monotonic() - began < 2
        assert len(await read_all(leader)) == 3
        async with slave(tmp_path, leader) as follower:
            await in_step(leader, follower)
            await until(lambda: slaves_of(leader).in_sync == 2)
            assert await send_all(leader, 3) == [0] * 3


async def test_a_slave_that_is_far_behind_counts_as_missing(tmp_path: Path) -> None:
    async with (
        master(tmp_path, **SYNC, haMaxGapNotInSync=10_000, slaveTimeout=300) as leader,
        FaultProxy(context_of(leader).ha_address) as proxy,
        slave(tmp_path, proxy.address),
    ):
        assert await send_all(leader, 1) == [0]
        proxy.stall()
        assert set(await send_all(leader, 3, size=2000)) == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
        assert set(await send_all(leader, 9, size=2000)) == {ResponseCode.SLAVE_NOT_AVAILABLE}
        proxy.resume()
        await until(lambda: slaves_of(leader).in_sync == 2)
        assert await send_all(leader, 1) == [0]


async def test_with_one_replica_nobody_is_waited_for(tmp_path: Path) -> None:
    """The default of RocketMQ 5."""
    async with master(tmp_path, brokerRole="SYNC_MASTER") as leader:
        assert await send_all(leader, 3) == [0] * 3


async def test_three_replicas_need_both_slaves(tmp_path: Path) -> None:
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 3, "slaveTimeout": 400}
    async with (
        master(tmp_path, **settings) as leader,
        FaultProxy(context_of(leader).ha_address) as proxy,
        slave(tmp_path, leader, 1),
        slave(tmp_path, proxy.address, 2),
    ):
        await until(lambda: slaves_of(leader).in_sync == 3)
        assert await send_all(leader, 3) == [0] * 3
        proxy.stall()
        assert await send_all(leader, 1) == [ResponseCode.FLUSH_SLAVE_TIMEOUT]
        proxy.cut()
        proxy.refuse()
        await until(lambda: slaves_of(leader).in_sync == 2)
        assert await send_all(leader, 1) == [ResponseCode.SLAVE_NOT_AVAILABLE]


async def test_a_sender_that_does_not_want_to_wait_does_not(tmp_path: Path) -> None:
    async with master(tmp_path, **SYNC) as leader:
        client = await Client.to(leader)
        answer = await client.send("orders", b"quick", properties={"WAIT": "false"})
        assert answer.code == 0
        client.close()


async def test_the_number_of_replicas_changes_while_the_master_runs(tmp_path: Path) -> None:
    async with master(tmp_path, **SYNC) as leader:
        assert await send_all(leader, 1) == [ResponseCode.SLAVE_NOT_AVAILABLE]
        client = await Client.to(leader)
        assert (await client.ask(25, {}, b"inSyncReplicas=1")).code == 0
        client.close()
        assert await send_all(leader, 1) == [0]


# -- with acting masters -------------------------------------------------------------------------


async def test_too_few_replicas_are_a_refusal_where_slaves_may_act(tmp_path: Path) -> None:
    settings = {**SYNC, "enableSlaveActingMaster": True}
    async with master(tmp_path, **settings) as leader:
        client = await Client.to(leader)
        answer = await client.send("orders", b"refused")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "in-sync replicas not enough" in (answer.remark or "")
        assert store_of(leader).appended.value == 0
        # Who does not wait needs no replicas.
        assert (await client.send("orders", b"any", properties={"WAIT": "false"})).code == 0
        client.close()
        async with slave(tmp_path, leader):
            await until(lambda: slaves_of(leader).in_sync == 2)
            assert await send_all(leader, 1) == [0]


async def test_a_master_may_do_with_fewer_replicas(tmp_path: Path) -> None:
    settings = {
        "brokerRole": "SYNC_MASTER", "enableSlaveActingMaster": True, "inSyncReplicas": 3,
        "enableAutoInSyncReplicas": True, "minInSyncReplicas": 2,
    }  # fmt: skip
    async with master(tmp_path, **settings) as leader:
        assert await send_all(leader, 1) == [ResponseCode.SYSTEM_ERROR]
        async with slave(tmp_path, leader):
            await until(lambda: slaves_of(leader).in_sync == 2)
            assert await send_all(leader, 1) == [0]


# -- disks ---------------------------------------------------------------------------------------


async def test_a_slave_with_synchronous_flush_acknowledges_what_its_disk_has(
    tmp_path: Path,
) -> None:
    disk = HeldDisk()
    async with (
        master(tmp_path, **SYNC, slaveTimeout=500) as leader,
        slave(tmp_path, leader, flushDiskType="SYNC_FLUSH", disk=disk) as follower,
    ):
        assert await send_all(leader, 1) == [0]
        disk.hold()
        try:
            assert await send_all(leader, 1) == [ResponseCode.FLUSH_SLAVE_TIMEOUT]
            assert store_of(follower).appended.value == store_of(leader).appended.value
        finally:
            disk.let_go()
        await until(lambda: store_of(leader).replicated.value == store_of(leader).appended.value)
        assert await send_all(leader, 1) == [0]
        assert follower_of(follower).is_following


async def test_a_missing_slave_counts_more_than_a_slow_disk(tmp_path: Path) -> None:
    disk = HeldDisk()
    settings = {**SYNC, "flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": 300}
    async with master(tmp_path, **settings, disk=disk) as leader:
        disk.hold()
        try:
            assert await send_all(leader, 1) == [ResponseCode.SLAVE_NOT_AVAILABLE]
        finally:
            disk.let_go()
