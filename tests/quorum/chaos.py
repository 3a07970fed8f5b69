"""Faults of all kinds at a group of processes, while clients are at work; the history decides.

Which clients is up to the test: those of other languages come from `interop`.
"""

import asyncio
import contextlib
import random
import signal
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from cometmq.client.admin import Admin
from cometmq.client.cluster import Cluster
from cometmq.protocol.message import StoredMessage
from tests.broker.brokers import Client, until
from tests.replication.pairs import name_server

from .clients import QUEUES, SEND_TIMEOUT_S, TOPIC, Clients
from .history import History
from .processes import MemberProcess, ProcessGroup

FAULT_S: Final = (1.5, 3.5)
RECOVER_S: Final = 30.0
READ_S: Final = 60.0
OUTAGE_MEDIAN_S, OUTAGE_MAX_S = 3.0, 10.0
FAULTS: Final = (
    "leader killed", "leader stopped", "leader isolated", "follower killed", "leader unheard",
    "follower stopped", "leader deaf", "leader full", "follower isolated", "follower chosen",
)  # fmt: skip


class Chaos:
    """Use as `async with chaos(root, size) as work`."""

    def __init__(self, group: ProcessGroup, namesrv: str, seed: int) -> None:
        self.group = group
        self.namesrv = namesrv
        self.history = History()
        self._seed = seed
        self._chance = random.Random(seed)
        self._cluster = Cluster(namesrv, request_timeout_s=SEND_TIMEOUT_S)

    # -- clients ---------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _at_work(self, clients: Sequence[Clients]) -> AsyncIterator[None]:
        """Leaving waits until everything acknowledged has come, or for long enough."""
        async with contextlib.AsyncExitStack() as stack:
            for each in clients:
                stack.push_async_callback(each.stop)
                await each.start()
            await self._acknowledged(clients, time.monotonic())
            yield
            for each in clients:
                await each.stop_sending()
            acked = {ack.body for ack in self.history.acks}
            received = [self.history.received[each.name] for each in clients]
            # The history says what is missing.
            with contextlib.suppress(TimeoutError):
                await until(lambda: all(acked <= came.keys() for came in received), READ_S)

    async def _acknowledged(self, clients: Sequence[Clients], since_s: float) -> None:
        """Until senders of all kinds had success with something they began since then."""
        newest_s = self.history.newest_s
        await until(lambda: all(newest_s[each.name] > since_s for each in clients), RECOVER_S)

    async def run(self, rounds: int, *clients: Clients) -> None:
        """Faults in turn, while these clients are at work; then the verdict."""
        async with self._at_work(clients):
            for number in range(rounds):
                await self._round(FAULTS[number % len(FAULTS)], clients)
            await self.group.in_step()
        print(f"\n{len(self.group.members)} members, COMETMQ_CHAOS_SEED={self._seed}")
        print(self.history.report())
        await self._judge()
        for each in clients:
            outages = self.history.failovers(each.name)
            assert statistics.median(outages) <= OUTAGE_MEDIAN_S, each.name
            assert max(self.history.outages(each.name)) <= OUTAGE_MAX_S, each.name

    # -- faults ----------------------------------------------------------------------------------

    async def _round(self, name: str, clients: Sequence[Clients]) -> None:
        """One fault, for some seconds; then all is well again, and messages flow."""
        leader = await self.group.leader()
        others = [m for m in self.group.members.values() if m is not leader]
        follower = self._chance.choice(others)
        at_s = time.monotonic()
        self.history.faults.append((at_s, name))
        await self._break(name, leader, follower)
        await asyncio.sleep(self._chance.uniform(*FAULT_S))
        await self._acknowledged(clients, at_s)
        if name == "leader full":
            await self._set_full(leader, full=False)
        await self.group.heal()

    async def _break(self, name: str, leader: MemberProcess, follower: MemberProcess) -> None:
        who, _, what = name.partition(" ")
        one = leader if who == "leader" else follower
        match what:
            case "killed":
                one.kill()
            case "stopped":
                one.signal(signal.SIGSTOP)
            case "isolated":
                self.group.isolate(one.id)
            case "unheard":
                self.group.lose(of=one.id)
            case "deaf":
                self.group.lose(to=one.id)
            case "full":
                await self._set_full(one, full=True)
            case "chosen":
                async with Admin(self._cluster) as admin:
                    await admin.brokers.transfer(leader.address, one.id)

    async def _set_full(self, member: MemberProcess, *, full: bool) -> None:
        """Let a member take its disk for full, by the mark from which on it does."""
        client = await Client.to(member.address)
        percent = 0 if full else 100
        await client.ask(25, {}, b"diskSpaceWarningLevelRatio=%d\n" % percent)
        client.close()

    # -- verdict ---------------------------------------------------------------------------------

    async def _judge(self) -> None:
        await self.group.in_step()
        found = {name: await _all_of(member) for name, member in self.group.members.items()}
        first = next(iter(found.values()))
        for member, messages in found.items():
            assert _shown(messages) == _shown(first), f"{member} has other messages"
        self.history.check(first)


def _shown(found: dict[int, list[StoredMessage]]) -> dict[int, list[tuple[int, int, bytes]]]:
    return {
        queue: [(m.queue_offset, m.physical_offset, m.body) for m in messages]
        for queue, messages in found.items()
    }


async def _all_of(member: MemberProcess) -> dict[int, list[StoredMessage]]:
    client = await Client.to(member.address)
    found = {queue_id: await client.pulled(TOPIC, queue_id) for queue_id in range(QUEUES)}
    client.close()
    return found


@contextlib.asynccontextmanager
async def chaos(root: Path, size: int, seed: int, flush: str) -> AsyncIterator[Chaos]:
    async with name_server(root) as address:
        group = ProcessGroup(root, address, size, flushDiskType=flush)
        try:
            await group.start()
            work = Chaos(group, address, seed)
            leader = await group.leader()
            client = await Client.to(leader.address)
            fields = {"topic": TOPIC, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
            assert (await client.ask(17, {**fields, "topicFilterType": "SINGLE_TAG"})).code == 0
            client.close()
            yield work
        finally:
            await group.end()
