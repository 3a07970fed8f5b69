"""Power cuts: what was not synced is gone, page by page as chance has it."""

import asyncio
import contextlib
import random
from pathlib import Path

import pytest

from cometmq.testing.disk import PowerCutDisk
from cometmq.transport.errors import TransportError
from tests.broker.brokers import Client
from tests.quorum.groups import Group, group_of, read_all

LOOPS = ["asyncio"]


async def test_a_power_cut_of_all_members_takes_nothing_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(7)
    async with group_of(tmp_path / "before", flushDiskType="SYNC_FLUSH") as group:
        disks = {member: PowerCutDisk() for member in group.ports}
        group.disks.update(disks)
        await group.start()
        group.may_fail = True
        acknowledged = await _send_until_dark(group, disks, tmp_path / "after", chance)
    assert len(acknowledged) > 100
    async with group_of(tmp_path / "after", flushDiskType="SYNC_FLUSH") as group:
        await group.start()
        leader = await group.leader()
        found = await read_all(group.up[leader])
        assert set(acknowledged) <= set(found)
        await group.in_step()
        group.assert_same()


async def _send_until_dark(
    group: Group, disks: dict[str, PowerCutDisk], image: Path, chance: random.Random
) -> list[bytes]:
    """Send from several tasks, cut the power of all in the middle; what was acknowledged before."""
    leader = await group.leader()
    acknowledged: list[bytes] = []
    dark = False

    async def sender(number: int) -> None:
        client = await Client.to(group.up[leader])
        for count in range(10_000):
            body = b"%d:%06d" % (number, count)
            with contextlib.suppress(TransportError, asyncio.TimeoutError):
                answer = await client.send("orders", body, queue_id=number % 4)
                if dark:
                    return
                if answer.code == 0:
                    acknowledged.append(body)

    senders = [asyncio.create_task(sender(number)) for number in range(8)]
    async with asyncio.timeout(30):
        while len(acknowledged) < 300:
            await asyncio.sleep(0.01)
    for member, disk in disks.items():
        disk.cut_power(group.root / member, image / member, chance)
    dark = True
    for task in senders:
        task.cancel()
    await asyncio.gather(*senders, return_exceptions=True)
    return acknowledged


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_power_cut_of_one_member_is_made_up_for(tmp_path: Path, seed: int) -> None:
    """It comes back with less than it had written, but not with less than it had acknowledged."""
    chance = random.Random(seed)
    async with group_of(tmp_path / "group", flushDiskType="SYNC_FLUSH") as group:
        await group.start("n1", "n2")
        disk = group.disks["n0"] = PowerCutDisk()
        await group.start("n0")
        leader = await group.leader()
        client = await Client.to(group.up[leader])
        bodies = [b"%06d" % number for number in range(200)]
        answers = await asyncio.gather(
            *(client.send("orders", body, queue_id=n % 4) for n, body in enumerate(bodies))
        )
        assert {answer.code for answer in answers} == {0}
        disk.cut_power(tmp_path / "group" / "n0", tmp_path / "image", chance)
        group.may_fail = True
        await group.kill("n0")
        group.may_fail = False
        del group.disks["n0"]
        (tmp_path / "group" / "n0").rename(tmp_path / "dark")
        (tmp_path / "image").rename(tmp_path / "group" / "n0")
        await group.start("n0")
        await group.in_step()
        group.assert_same()
        assert await read_all(group.up["n0"]) == bodies
