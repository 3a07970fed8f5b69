"""A master and its slaves inside the test's own loop, with a NameServer or without."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from cometmq.broker.broker import Broker
from cometmq.namesrv.config import NamesrvConfig
from cometmq.namesrv.server import NameServer
from cometmq.replication.follower import Follower
from cometmq.replication.slaves import Slaves
from cometmq.store.message_store import MessageStore
from tests.broker.brokers import Client, broker_of, context_of, until

FILE_BYTES: Final = 64 * 1024
"""Small enough for a few messages to go on in the next one."""
QUICK: Final[dict[str, Any]] = {
    "mappedFileSizeCommitLog": FILE_BYTES,
    "haSendHeartbeatInterval": 200,
    "registerNameServerPeriod": 300,
    "diskMaxUsedSpaceRatio": 100,
    "diskSpaceCleanForciblyRatio": 100,
    "diskSpaceWarningLevelRatio": 100,
}


@contextlib.asynccontextmanager
async def name_server(tmp_path: Path, **settings: Any) -> AsyncIterator[str]:
    config = NamesrvConfig(port=0, kv_config_path=tmp_path / "kvConfig.json", **settings)
    server = NameServer(config)
    await server.start()
    try:
        yield str(server.address)
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def running(root: Path, **settings: Any) -> AsyncIterator[Broker]:
    broker = broker_of(root, **{**QUICK, **settings})
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


@contextlib.asynccontextmanager
async def doomed(root: Path, **settings: Any) -> AsyncIterator[Broker]:
    """A master that a test ends by itself, by `stop` or `abandon`."""
    broker = broker_of(root / "master", **{**QUICK, **settings})
    await broker.start()
    try:
        yield broker
    finally:
        if store_of(broker)._opened:
            await broker.abandon()


def master(root: Path, **settings: Any) -> "contextlib.AbstractAsyncContextManager[Broker]":
    return running(root / "master", **settings)


@contextlib.asynccontextmanager
async def slave(
    root: Path,
    of: Broker | str | None = None,
    number: int = 1,
    *,
    waits: bool = True,
    **settings: Any,
) -> AsyncIterator[Broker]:
    """A slave that is told where the stream of its master is, or asks NameServers. With `waits` it
    follows, or says why not: a new one takes what comes from then on."""
    if of is not None:
        settings["haMasterAddress"] = of if isinstance(of, str) else context_of(of).ha_address
    role = {"brokerRole": "SLAVE", "brokerId": number}
    async with running(root / f"slave-{number}", **role, **settings) as broker:
        follower = follower_of(broker)
        if waits:
            await until(lambda: follower.is_following or follower.trouble is not None)
        yield broker


@contextlib.asynccontextmanager
async def pair(root: Path, names: str) -> AsyncIterator[tuple[Broker, Broker]]:
    """A master and a slave that has found it through the NameServer."""
    async with (
        master(root, namesrvAddr=names) as leader,
        slave(root, namesrvAddr=names) as follower,
    ):
        yield leader, follower


def stranger(root: Path, **settings: Any) -> "contextlib.AbstractAsyncContextManager[Broker]":
    """Another master, with an empty log, in the place of the one that was there."""
    (root / "master").rename(root / "lost")
    return master(root, **settings)


def store_of(broker: Broker) -> MessageStore:
    return context_of(broker).store


def slaves_of(broker: Broker) -> Slaves:
    found = context_of(broker).slaves
    assert found is not None
    return found


def follower_of(broker: Broker) -> Follower:
    found = context_of(broker).follower
    assert found is not None
    return found


async def in_step(leader: Broker, *others: Broker, timeout_s: float = 20.0) -> None:
    """Wait until all of a master's log is at its slaves, and readable there."""
    end = store_of(leader).appended.value
    await until(lambda: all(store_of(other).dispatched.value >= end for other in others), timeout_s)


def log_bytes(root: Path, end: int) -> dict[str, bytes]:
    """The CommitLog files below `end`, by name, without what lies behind it."""
    files = {}
    for path in sorted((root / "commitlog").iterdir()):
        # Beside them may be one that is being made ahead.
        if path.name.isdigit() and int(path.name) < end:
            files[path.name] = path.read_bytes()[: end - int(path.name)]
    return files


def queue_bytes(root: Path) -> dict[str, bytes]:
    """All ConsumeQueue files by their place; unused ends are zeros everywhere."""
    top = root / "consumequeue"
    return {
        str(path.relative_to(top)): path.read_bytes().rstrip(b"\0")
        for path in sorted(top.rglob("*"))
        if path.is_file()
    }


def assert_same_log(leader: Broker, other: Broker) -> None:
    ours, theirs = store_of(leader), store_of(other)
    assert ours.appended.value == theirs.appended.value
    end = ours.appended.value
    assert log_bytes(ours.config.root, end) == log_bytes(theirs.config.root, end)


async def send_all(
    broker: Broker | str, count: int, *, topic: str = "orders", size: int = 100, queues: int = 4
) -> list[int]:
    """Send messages and give back the answers' codes."""
    client = await Client.to(broker)
    try:
        sends = (
            client.send(topic, b"%06d " % number + b"x" * size, queue_id=number % queues)
            for number in range(count)
        )
        return [answer.code for answer in await asyncio.gather(*sends)]
    finally:
        client.close()


async def read_all(broker: Broker | str, topic: str = "orders", queues: int = 4) -> list[bytes]:
    client = await Client.to(broker)
    try:
        found = []
        for queue_id in range(queues):
            found += [m.body for m in await client.pulled(topic, queue_id)]
        return sorted(found)
    finally:
        client.close()
