"""`cometmq broker group|transfer|join|leave` against a Raft group of real processes."""

import asyncio
from pathlib import Path

import pytest

from cometmq.testing import BlockingEmbeddedBroker
from tests.quorum.processes import ProcessGroup
from tests.replication.pairs import name_server

from .program import Program


def test_a_group_is_shown_and_led_by_whom_one_wants(tmp_path: Path) -> None:
    async def work() -> None:
        async with name_server(tmp_path) as address:
            group = ProcessGroup(tmp_path, address, 3)
            try:
                await group.start()
                await group.leader()
                await asyncio.to_thread(look_and_transfer, Program(tmp_path, address))
            finally:
                await group.end()

    asyncio.run(work())


def look_and_transfer(cometmq: Program) -> None:
    text, group = cometmq.both("broker", "group", "broker-a")
    assert [one["member"] for one in group["members"]] == ["n0", "n1", "n2"]
    assert [one["member"] for one in group["members"] if one["leads"]] == [group["leader"]]
    assert ["MEMBER", "ADDRESS", "VOTES", "STORED", "LEADS"] in text.rows
    other = next(one["member"] for one in group["members"] if not one["leads"])
    moved = cometmq("broker", "transfer", "broker-a", "--to", other, "-o", "json").value
    assert moved["leader"] == other
    assert moved["epoch"] > group["epoch"]
    left = next(one["member"] for one in group["members"] if one["member"] != other)
    fewer = cometmq("broker", "leave", "broker-a", left, "-o", "json").value
    assert left not in [one["member"] for one in fewer["members"]]
    assert "n7" in cometmq("broker", "leave", "broker-a", "n7", code=1).err


@pytest.mark.parametrize("action", [("group",), ("transfer",), ("leave", "n1")])
def test_a_broker_of_no_group_says_so(
    cometmq: Program, cluster: BlockingEmbeddedBroker, action: tuple[str, ...]
) -> None:
    told = cometmq.fails("broker", action[0], cluster.address, *action[1:], code=1)
    assert "group" in told
