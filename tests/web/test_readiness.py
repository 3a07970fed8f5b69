"""Ready is who is caught up and writable; whoever is not says why."""

from pathlib import Path

from cometmq.namesrv.config import NamesrvConfig
from cometmq.namesrv.server import NameServer
from cometmq.testing.clock import ManualClock
from cometmq.testing.disk import FailingDisk
from cometmq.web.endpoint import Endpoint
from cometmq.web.pages import of_broker, of_name_server, pages
from cometmq.web.readiness import broker_troubles, namesrv_troubles
from tests.broker.brokers import Client, FullDisk, bounded, broker_of, context_of, serving, until
from tests.quorum.groups import ELECTION_S, group_of
from tests.replication import pairs
from tests.web.scrapes import fetched, scraped
from tests.web.test_broker_metrics import observed


@bounded
async def test_a_broker_that_serves_is_alive_and_ready(tmp_path: Path) -> None:
    async with observed(tmp_path) as (_, address):
        health, ready = await fetched(address, "/health"), await fetched(address, "/ready")
        assert (health.status, health.body) == (200, b"alive\n")
        assert (ready.status, ready.body) == (200, b"ready\n")
        assert (await scraped(address)).value("cometmq_ready") == 1


@bounded
async def test_one_that_may_not_be_written_to_is_alive_and_not_ready(tmp_path: Path) -> None:
    async with observed(tmp_path, brokerPermission=4) as (_, address):
        ready = await fetched(address, "/ready")
        assert (ready.status, ready.body) == (503, b"brokerPermission=4 lets nobody write\n")
        assert (await fetched(address, "/health")).status == 200
        assert (await scraped(address)).value("cometmq_ready") == 0


@bounded
async def test_a_full_disk_is_a_reason_until_there_is_space(tmp_path: Path) -> None:
    disk = FullDisk()
    async with serving(tmp_path, disk=disk) as broker:
        assert broker_troubles(broker) == []
        disk.percent = 95.0
        context_of(broker).store.clean(by_hand=False)
        (trouble,) = broker_troubles(broker)
        assert trouble.endswith("is over 90 % full")
        disk.percent = 50.0
        context_of(broker).store.clean(by_hand=False)
        assert broker_troubles(broker) == []


@bounded
async def test_a_disk_that_failed_is_a_reason(tmp_path: Path) -> None:
    disk = FailingDisk()
    broker = broker_of(tmp_path, disk=disk, flushDiskType="SYNC_FLUSH")
    await broker.start()
    try:
        disk.failing = True
        client = await Client.to(broker)
        assert (await client.send()).code != 0
        (trouble,) = broker_troubles(broker)
        assert "could not be made durable" in trouble
    finally:
        await broker.abandon()


@bounded
async def test_a_master_without_the_replicas_it_insists_on_is_not_ready(tmp_path: Path) -> None:
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "enableSlaveActingMaster": "true"}
    async with pairs.master(tmp_path, **settings) as leader:
        assert broker_troubles(leader) == ["1 of 2 replicas are in sync, the master counted"]
        async with pairs.slave(tmp_path, leader):
            await until(lambda: not broker_troubles(leader))


@bounded
async def test_a_slave_is_ready_when_it_has_what_its_master_has(tmp_path: Path) -> None:
    async with pairs.doomed(tmp_path) as leader:
        await pairs.send_all(leader, 5)
        async with pairs.slave(tmp_path, leader, waits=False) as other:
            assert broker_troubles(other)[0].startswith("it does not follow its master")
            await until(lambda: not broker_troubles(other))
            await pairs.in_step(leader, other)
            await leader.abandon()
            await until(lambda: broker_troubles(other))
            assert broker_troubles(other)[0].startswith("it does not follow its master")


@bounded
async def test_a_slave_that_is_far_behind_says_how_far(tmp_path: Path) -> None:
    async with (
        pairs.master(tmp_path) as leader,
        pairs.slave(tmp_path, leader, haMaxGapNotInSync=1000) as other,
    ):
        await until(lambda: not broker_troubles(other))
        pairs.follower_of(other).told_end = pairs.store_of(other).appended.value + 1001
        assert broker_troubles(other) == ["1001 bytes behind its master, haMaxGapNotInSync is 1000"]


@bounded
async def test_members_of_a_group_are_ready_as_long_as_it_has_a_leader(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        await until(lambda: all(group.quorum(member).is_following for member in group.up))
        assert [broker_troubles(broker) for broker in group.up.values()] == [[], [], []]
        told = (await pages([of_broker(group.up[leader])])["/metrics"]()).body.decode()
        assert "cometmq_raft_leading 1" in told
        assert told.count("cometmq_raft_member_behind_bytes{") == 2
        one, other = (member for member in group.up if member != leader)
        for member in (leader, one):
            await group.kill(member)
        await until(lambda: broker_troubles(group.up[other]) != [], ELECTION_S)
        assert broker_troubles(group.up[other]) == ["group broker-a has no leader that it knows of"]


@bounded
async def test_a_name_server_that_gives_brokers_time_is_not_ready_before(tmp_path: Path) -> None:
    clock = ManualClock()
    server = NameServer(NamesrvConfig(port=0, wait_for_service=True, wait_for_service_s=45), clock)
    await server.start()
    endpoint = Endpoint(pages([of_name_server(server)]))
    try:
        address = str(await endpoint.listen("127.0.0.1", 0))
        ready = await fetched(address, "/ready")
        assert (ready.status, ready.body) == (
            503, b"routes are told in 45 s (needWaitForService)\n",
        )  # fmt: skip
        clock.advance(45_000)
        assert namesrv_troubles(server) == []
        assert (await fetched(address, "/ready")).status == 200
    finally:
        endpoint.stop()
        await server.stop()
