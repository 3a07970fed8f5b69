"""A real broker killed with SIGKILL amid timed and delayed messages: each comes exactly once.

`COMETMQ_CHAOS_ROUNDS` kills it more often than a test run has time for.
"""

import asyncio
import os
import random
import selectors
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cometmq.transport.loop import run

from .brokers import Client, settings_of
from .timing import twice

ROUNDS = int(os.environ.get("COMETMQ_CHAOS_ROUNDS", "2"))
START_S = 60
TOPICS = ("timed", "levels")
SENDS_AT_ONCE = 50
PER_ROUND = 600


@asynccontextmanager
async def running(
    root: Path, round_number: int
) -> AsyncIterator[tuple[subprocess.Popen[bytes], Client]]:
    """A broker process and a client of it."""
    settings = settings_of(
        root, messageDelayLevel="1s 2s", flushDelayOffsetInterval=100, timerFlushIntervalMs=100
    )
    config = root.with_name("broker.conf")
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    with root.with_name(f"errors-{round_number}").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "cometmq.cli.main", "broker", "-c", str(config)],
            stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
    client = None
    try:
        client = await Client.to(_address(process))
        yield process, client
    finally:
        if client is not None:
            client.close()
        process.kill()
        process.wait(START_S)
        assert process.stdout is not None
        process.stdout.close()


def _address(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(START_S), "the broker did not start"
    return process.stdout.readline().decode().strip().rpartition("@")[2]


async def send(client: Client, topic: str, body: bytes, delay_ms: int) -> None:
    if topic == "timed":
        properties = {"TIMER_DELAY_MS": str(delay_ms)}
    else:
        properties = {"DELAY": str(1 + delay_ms % 2)}
    answer = await client.send(topic, body, properties=properties)
    assert answer.code == 0, answer.remark


async def delivered(client: Client, topic: str) -> list[bytes]:
    return [message.body for message in await client.pulled(topic)]


def test_a_killed_broker_neither_loses_nor_doubles_what_waits(tmp_path: Path) -> None:
    run(asyncio.wait_for(kill_again_and_again(tmp_path / "store"), START_S + 10 * ROUNDS))


async def kill_again_and_again(root: Path) -> None:
    chance = random.Random(ROUNDS)
    acknowledged: dict[str, set[bytes]] = {topic: set() for topic in TOPICS}

    async def produce(client: Client, first: int) -> None:
        async def one(topic: str, body: bytes) -> None:
            await send(client, topic, body, chance.randrange(300, 3000))
            acknowledged[topic].add(body)

        for start in range(first, first + PER_ROUND, SENDS_AT_ONCE):
            numbers = range(start, start + SENDS_AT_ONCE)
            await asyncio.gather(*(one(TOPICS[n % 2], b"%d" % n) for n in numbers))

    for number in range(ROUNDS):
        async with running(root, number) as (process, client):
            producing = asyncio.create_task(produce(client, number * PER_ROUND))
            await asyncio.sleep(chance.uniform(1, 2))
            process.kill()
            (outcome,) = await asyncio.gather(producing, return_exceptions=True)
            assert not isinstance(outcome, AssertionError), outcome

    async with running(root, ROUNDS) as (_, client):
        # Whatever would come twice is due before these.
        await asyncio.sleep(1)
        for topic in TOPICS:
            await send(client, topic, b"last", 2001)
        for topic in TOPICS:
            while b"last" not in (found := await delivered(client, topic)):
                await asyncio.sleep(0.05)
            assert twice(found) == []
            assert acknowledged[topic] <= set(found)
            assert len(acknowledged[topic]) > PER_ROUND // 4
