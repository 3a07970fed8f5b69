"""Groups of processes under faults: nothing acknowledged is lost, and outages are short.

`COMETMQ_CHAOS_ROUNDS` says how many faults, `COMETMQ_CHAOS_SEED` replays their choices. A history
of what senders were told decides.
"""

import os
import random
from pathlib import Path

import pytest

from .chaos import chaos
from .clients import PythonClients

LOOPS = ["uvloop"]
ROUNDS = int(os.environ.get("COMETMQ_CHAOS_ROUNDS", "3"))
IS_LONG = "COMETMQ_CHAOS_ROUNDS" in os.environ
SEED = int(os.environ.get("COMETMQ_CHAOS_SEED", random.randrange(10**6)))
TEST_TIMEOUT_S = 120.0 + 30.0 * ROUNDS
pytestmark = pytest.mark.timeout(TEST_TIMEOUT_S + 30)


async def wreak(root: Path, size: int, flush: str) -> None:
    async with chaos(root, size, SEED, flush) as work:
        await work.run(ROUNDS, PythonClients(work.namesrv, work.history))


async def test_faults_of_all_kinds_lose_nothing(tmp_path: Path) -> None:
    await wreak(tmp_path, 3, "ASYNC_FLUSH")


@pytest.mark.skipif(not IS_LONG, reason="`make chaos` does")
@pytest.mark.parametrize(("size", "flush"), [(3, "SYNC_FLUSH"), (5, "ASYNC_FLUSH")])
async def test_larger_and_synced_groups_lose_nothing(tmp_path: Path, size: int, flush: str) -> None:
    await wreak(tmp_path, size, flush)
