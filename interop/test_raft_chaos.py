"""A Raft group under faults while Java and Python clients are at work.

The faults and the history that decides are those of `tests/quorum/test_chaos.py`. The short set has
one each of the faults that cost a group its leader; the full set has fifty, on three and five.
`COMETMQ_CHAOS_SEED` replays their choices.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest
from tests.quorum.chaos import chaos
from tests.quorum.clients import PythonClients

from cometmq.transport.loop import run
from interop import systems
from interop.java_workers import JavaClients

# The first three are: leader killed, stopped, isolated.
ROUNDS = 3 if systems.IS_SHORT else 50
SEED = int(os.environ.get("COMETMQ_CHAOS_SEED", random.randrange(10**6)))
TEST_TIMEOUT_S = 120.0 + 20.0 * ROUNDS


@pytest.mark.timeout(TEST_TIMEOUT_S + 30)
@pytest.mark.parametrize("size", [3, pytest.param(5, marks=pytest.mark.full)])
def test_java_clients_lose_nothing_in_faults_of_a_group(size: int, tmp_path: Path) -> None:
    async def wreak() -> None:
        async with chaos(tmp_path, size, SEED, "ASYNC_FLUSH") as work:
            python = PythonClients(work.namesrv, work.history)
            java = JavaClients(work.namesrv, work.history, tmp_path / "java")
            await work.run(ROUNDS, python, java)

    run(asyncio.wait_for(wreak(), TEST_TIMEOUT_S))
