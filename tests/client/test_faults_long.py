"""Random faults, several at once, for as long as one likes; and handlers that block for a minute.

`COMETMQ_CHAOS_ROUNDS` says how many rounds; `COMETMQ_CHAOS_SEED` is the first one's seed, chosen
by chance otherwise. Every test has its seed in its name, and replays that schedule.
"""

import os
import random

import pytest

from cometmq.client.cluster import Cluster
from cometmq.testing import EmbeddedBroker
from tests.transport.conftest import LOOPS as ALL_LOOPS

from .chaos import BROKERS, Chaos
from .test_blocking_handlers import TOPIC, check_that_a_blocking_handler_costs_nothing
from .test_faults import quick
from .workload import Workload

LOOPS = ALL_LOOPS[-1:]
TEST_TIMEOUT_S = 240.0
RECOVER_S = 90.0
"""A lock whose release was lost lives for a minute."""
ROUNDS = int(os.environ.get("COMETMQ_CHAOS_ROUNDS", "1"))
SEED = int(os.environ.get("COMETMQ_CHAOS_SEED", random.randrange(10**6)))
FOR_LONG = pytest.mark.skipif("COMETMQ_CHAOS_ROUNDS" not in os.environ, reason="`make chaos` does")


@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
async def test_random_faults_lose_nothing(seed: int) -> None:
    print(f"COMETMQ_CHAOS_SEED={seed}")
    async with EmbeddedBroker(in_memory=True, brokers=BROKERS, through_proxy=True) as broker:
        await broker.create_topic(TOPIC, 2)
        cluster = quick(broker.namesrv)
        async with Workload(cluster, TOPIC) as work:
            chaos = Chaos(broker, cluster, work, seed)
            await chaos.wreak()
            print(*chaos.schedule, sep="\n")
            await work.recover(RECOVER_S)
            await work.verdict()


@FOR_LONG
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_a_handler_that_blocks_for_a_minute_costs_no_rebalance(
    orderly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"channelExpiredTimeout": 45_000}
    async with EmbeddedBroker(in_memory=True, settings=settings) as broker:
        await broker.create_topic(TOPIC, 4)
        await check_that_a_blocking_handler_costs_nothing(
            Cluster(broker.namesrv), monkeypatch, orderly=orderly, block_s=60.0
        )
