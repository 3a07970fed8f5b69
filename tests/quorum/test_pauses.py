"""Members that were held up, by a stop of their process or a busy machine."""

import asyncio
import contextlib
import re
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from cometmq.raft.settings import RaftSettings
from tests.replication.pairs import name_server

from .processes import MemberProcess, ProcessGroup

# The event loop that runs timers before it reads sockets: there the order makes a difference.
LOOPS = ["uvloop"]
PAUSE_S: Final = 1.2
"""Longer than a follower is patient in most cases, shorter than a leader is."""
PAUSES: Final = 3
_SETTINGS: Final = RaftSettings()


@contextlib.asynccontextmanager
async def processes(root: Path) -> AsyncIterator[ProcessGroup]:
    async with name_server(root) as address:
        group = ProcessGroup(root, address, 3)
        try:
            await group.start()
            yield group
        finally:
            await group.end()


async def test_followers_that_were_held_up_hear_their_leader_first(tmp_path: Path) -> None:
    """Its heartbeats wait in their sockets. Who counted the silence first would want to lead."""
    async with processes(tmp_path) as group:
        leader = await group.leader()
        await group.in_step()
        followers = [member for member in group.members.values() if member is not leader]
        before = [await told_by(member) for member in group.members.values()]
        for _ in range(PAUSES):
            await pause(followers)
            # As long as a campaign would take that one of them began.
            await asyncio.sleep(_SETTINGS.campaign_max_ms / 1000)
        assert [await told_by(member) for member in group.members.values()] == before


async def pause(members: list[MemberProcess]) -> None:
    began_s = time.monotonic()
    for member in members:
        member.signal(signal.SIGSTOP)
    await asyncio.sleep(PAUSE_S)
    for member in members:
        member.signal(signal.SIGCONT)
    took_ms = (time.monotonic() - began_s) * 1000
    # A heartbeat may have been on its way when they stopped. After a longer pause a leader may go.
    if took_ms >= _SETTINGS.check_quorum_ms - _SETTINGS.heartbeat_ms:
        pytest.skip(f"this machine stood still: the pause took {took_ms:.0f} ms")


async def told_by(member: MemberProcess) -> tuple[int, str, list[str]]:
    """Epoch, leader, and which roles a member had."""
    status = await member.status()
    assert status is not None
    roles = re.findall(r"(\w+) in epoch \d+, leader", member.output.read_text())
    return status.epoch, status.leader, roles
