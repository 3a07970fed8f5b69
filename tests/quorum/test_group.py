"""Three brokers that elect their master: messages, failover, restarts."""

from pathlib import Path

from tests.quorum.groups import group_of, read_all, send_all

LOOPS = ["uvloop"]


async def test_messages_are_at_every_member_byte_for_byte(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        sent = await send_all(group.up[leader], 500)
        assert len(sent) == 500
        await group.in_step()
        group.assert_same()
        for member in group.up:
            assert await read_all(group.up[member]) == sent


async def test_nothing_acknowledged_is_lost_with_the_leader(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        await group.start()
        first = await group.leader()
        sent = await send_all(group.up[first], 200)
        await group.kill(first)
        second = await group.leader()
        assert second != first
        assert await read_all(group.up[second]) == sent
        sent += await send_all(group.up[second], 200, first=200)
        assert len(sent) == 400
        await group.start(first)
        await group.in_step()
        group.assert_same()
        assert await read_all(group.up[first]) == sent
