"""Members that come, go, lag, lose their place, or have no room."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cometmq.broker.config import FAST_PORT_DISTANCE
from cometmq.client.admin import Admin
from cometmq.client.errors import BrokerError, IllegalArgument
from cometmq.protocol.raft_group import GroupStatus
from cometmq.raft.settings import RaftSettings
from cometmq.replication.quorum.links import RETRY_S
from cometmq.replication.quorum.quorum import Quorum
from cometmq.store.errors import StoreMismatch
from cometmq.testing.ports import ReservedPort
from tests.broker.brokers import Client, FullDisk, broker_of, until
from tests.quorum.groups import Group, group_of, read_all, send_all, store_of

LOOPS = ["uvloop"]
FILE_BYTES = 64 * 1024


async def known_status(admin: Admin, address: str) -> GroupStatus:
    """As soon as the NameServer knows the member there by its new role."""
    while True:
        with contextlib.suppress(IllegalArgument):
            return await admin.brokers.raft_status(address)
        await asyncio.sleep(0.05)


async def until_led(admin: Admin, member: str) -> None:
    """Until the NameServer knows who leads, which it hears a moment after messages are taken."""
    while (await admin.brokers.raft_status("broker-a")).member != member:
        await asyncio.sleep(0.05)


async def test_leadership_goes_to_the_member_that_is_named(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        await group.start()
        first = await group.leader()
        sent = await send_all(group.up[first], 50)
        to = group.followers()[0]
        async with Admin(group.name_server) as admin:
            await until_led(admin, first)
            await admin.brokers.transfer("broker-a", to)
            await until(lambda: group.serving() == [to])
            assert await group.leader() == to
            status = await known_status(admin, str(group.up[to].address))
            assert (status.leader, status.serves) == (to, True)
            assert [member.id for member in status.members if member.votes] == ["n0", "n1", "n2"]
            with pytest.raises(BrokerError, match="does not lead"):
                await admin.brokers.transfer(str(group.up[first].address), first)
        sent += await send_all(group.up[to], 50, first=50)
        assert await read_all(group.up[to]) == sent


async def test_a_rolling_restart_costs_no_more_than_an_election_each(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        await group.start()
        sent: list[bytes] = []
        for member in tuple(group.ports):
            sent += await send_all(group.up[await group.leader()], 20, first=len(sent))
            await group.stop(member)
            leader = await group.leader()
            sent += await send_all(group.up[leader], 20, first=len(sent))
            await group.start(member)
        assert len(sent) == 120
        await group.in_step()
        group.assert_same()
        assert await read_all(group.up["n0"]) == sent


async def test_a_leader_that_stops_hands_over_first(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        for member in group.up:
            be_patient(group.quorum(member))
        await asyncio.sleep(0.5)  # Until heartbeats have made all of them patient.
        await group.stop(leader)
        # Whoever had to notice that it is gone would take half a minute.
        await until(lambda: any(group.quorum(member).leads for member in group.up), 10)


def be_patient(quorum: Quorum) -> None:
    replica = quorum._core._replica
    replica.settings = RaftSettings(election_min_ms=30_000, election_max_ms=40_000)


async def test_the_whole_group_comes_back_after_it_was_down(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        await group.start()
        sent = await send_all(group.up[await group.leader()], 200)
        for member in tuple(group.up):
            await group.kill(member)
        await group.start()
        leader = await group.leader()
        assert await read_all(group.up[leader]) == sent
        sent += await send_all(group.up[leader], 20, first=200)
        assert len(sent) == 220
        await group.in_step()
        group.assert_same()


async def test_a_member_that_was_away_catches_up(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        away = group.followers()[0]
        await group.kill(away)
        sent = []
        for start in range(0, 2000, 500):
            sent += await send_all(group.up[leader], 500, first=start)
        assert store_of(group.up[leader]).appended.value > 3 * FILE_BYTES
        await group.start(away)
        await group.in_step()
        group.assert_same()
        assert await read_all(group.up[away]) == sent


async def test_a_member_whose_place_was_deleted_begins_anew(tmp_path: Path) -> None:
    """It was away for longer than the leader keeps files."""
    async with group_of(
        tmp_path, fileReservedTime=0, deleteWhen="", deleteFileBatchMax=100
    ) as group:
        await group.start()
        leader = await group.leader()
        away = group.followers()[0]
        await send_all(group.up[leader], 10)
        await group.kill(away)
        for start in range(0, 2000, 500):
            await send_all(group.up[leader], 500, first=start)
        store = store_of(group.up[leader])
        behind = store.appended.value
        assert await asyncio.to_thread(store.clean) > 0
        assert store.commit_log.start_offset > 0
        assert behind > store.commit_log.start_offset
        await group.start(away)
        await until(lambda: store_of(group.up[away]).appended.value >= behind, 20)
        await group.in_step()
        late = store_of(group.up[away])
        assert late.commit_log.start_offset >= FILE_BYTES
        assert await read_from_start(group, away) == await read_from_start(group, leader)
        # It can lead, and knows where every queue goes on.
        await group.kill(leader)
        second = await group.leader()
        assert len(await send_all(group.up[second], 8, first=5000)) == 8


async def read_from_start(group: Group, member: str) -> list[tuple[int, bytes]]:
    client = await Client.to(group.up[member])
    store = store_of(group.up[member])
    found = []
    for queue_id in range(4):
        low = store.min_offset("orders", queue_id)
        found += [(m.queue_offset, m.body) for m in await client.pulled("orders", queue_id, low)]
    client.close()
    return found


async def test_members_come_and_go(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        sent = await send_all(group.up[leader], 300)
        async with Admin(group.name_server) as admin:
            await until_led(admin, leader)
            group.ports["n3"] = ReservedPort()
            group.listening["n3"] = ReservedPort(FAST_PORT_DISTANCE)
            await group.start("n3", **{"raft.join": "true"})
            status = await admin.brokers.add_member("broker-a", f"n3-{group.address('n3')}")
            assert [m.id for m in status.members if m.votes] == ["n0", "n1", "n2", "n3"]
            await group.in_step()
            assert await read_all(group.up["n3"]) == sent
            gone = next(m for m in group.followers() if m != "n3")
            status = await admin.brokers.remove_member("broker-a", gone)
            assert gone not in [member.id for member in status.members]
            await group.kill(gone)
            with pytest.raises(BrokerError, match="hand over before"):
                await admin.brokers.remove_member("broker-a", leader)
        # Two of the three that are left decide, the new one among them.
        await group.kill(leader)
        second = await group.leader()
        sent += await send_all(group.up[second], 20, first=300)
        assert len(sent) == 320
        await group.in_step()
        assert await read_all(group.up["n3"]) == sent


async def test_a_member_that_left_is_dialled_no_more(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        await group.start()
        leader = group.up[await group.leader()]
        gone = group.followers()[0]
        async with Admin(group.name_server) as admin:
            await admin.brokers.remove_member(str(leader.address), gone)
        await group.kill(gone)
        await until(lambda: all(gone not in group.quorum(m).addresses for m in group.up))
        async with calls_at(group.ports[gone].number) as calls:
            await asyncio.sleep(5 * RETRY_S)
            assert calls == []
            # Its address still stands in the settings of those who start again.
            for member in tuple(group.up):
                await group.kill(member)
            await group.start(*(m for m in group.ports if m != gone))
            assert len(await send_all(group.up[await group.leader()], 8)) == 8
            await until(lambda: all(gone not in group.quorum(m).addresses for m in group.up))
            calls.clear()
            await asyncio.sleep(5 * RETRY_S)
            assert calls == []


@contextlib.asynccontextmanager
async def calls_at(port: int) -> AsyncIterator[list[object]]:
    """Who connects to where a member was."""
    calls: list[object] = []

    def called(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(writer.get_extra_info("peername"))
        writer.close()

    server = await asyncio.start_server(called, "127.0.0.1", port)
    try:
        yield calls
    finally:
        server.close()


async def test_a_member_without_room_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        disks = {member: FullDisk() for member in group.ports}
        group.disks.update(disks)
        await group.start()
        leader = await group.leader()
        full = group.followers()[0]
        disks[full].full = True
        sent = []
        for start in range(0, 2000, 500):
            sent += await send_all(group.up[leader], 500, first=start)
        assert len(sent) == 2000
        assert store_of(group.up[full]).appended.value < store_of(group.up[leader]).appended.value
        disks[full].full = False
        await group.in_step()
        group.assert_same()


async def test_a_leader_without_room_lets_another_one_lead(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        disks = {member: FullDisk() for member in group.ports}
        group.disks.update(disks)
        await group.start()
        first = await group.leader()
        disks[first].full = True
        sent: list[bytes] = []
        async with asyncio.timeout(20):
            while first in group.serving():
                sent += await send_all(group.up[first], 200, first=len(sent) + 10_000)
        second = await group.leader()
        assert second != first
        more = await send_all(group.up[second], 500)
        assert len(more) == 500
        assert set(sent) | set(more) <= set(await read_all(group.up[second]))
        disks[first].full = False
        await group.in_step()
        group.assert_same()


async def test_a_store_of_another_member_or_none_is_refused(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1) as group:
        await group.start()
        await send_all(group.up[await group.leader()], 5)
        await group.stop("n0")
        with pytest.raises(StoreMismatch, match="set enableDLegerCommitLog=true"):
            await broker_of(tmp_path / "n0").start()
        with pytest.raises(StoreMismatch, match="is that of member n0 of group broker-a"):
            await group.make("n0", dLegerGroup="others").start()
    alone = broker_of(tmp_path / "alone", mappedFileSizeCommitLog=FILE_BYTES)
    await alone.start()
    await send_all(alone, 5)
    await alone.stop()
    async with group_of(tmp_path, 1) as group:
        joining = group.make("n0", storePathRootDir=tmp_path / "alone")
        with pytest.raises(StoreMismatch, match="begins with an empty store"):
            await joining.start()
