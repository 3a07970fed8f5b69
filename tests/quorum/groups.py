"""Members of a Raft group inside the test's own loop, with a NameServer."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from cometmq.broker.broker import Broker
from cometmq.broker.config import FAST_PORT_DISTANCE
from cometmq.replication.quorum.quorum import Quorum
from cometmq.store.disk import Disk
from cometmq.store.message_store import MessageStore
from cometmq.testing.fault_proxy import FaultProxy
from cometmq.testing.ports import ReservedPort
from tests.broker.brokers import Client, broker_of, context_of, until
from tests.replication.pairs import QUICK, log_bytes, name_server, queue_bytes

ELECTION_S: Final = 10.0


class Group:
    """Brokers n0, n1 … of one name, by their ids; those that are down are not among `up`."""

    def __init__(self, root: Path, name_server: str, size: int, **settings: Any) -> None:
        self.root = root
        self.name_server = name_server
        self.ports = {f"n{number}": ReservedPort() for number in range(size)}
        self.listening = {member: ReservedPort(FAST_PORT_DISTANCE) for member in self.ports}
        self.up: dict[str, Broker] = {}
        self.disks: dict[str, Disk] = {}
        self.may_fail = False
        """Whether members may have to stop, because of what the test does to them."""
        self.ways: dict[tuple[str, str], FaultProxy] = {}
        """From whom to whom; without an entry the way is a direct one."""
        self._settings = settings

    def peers(self, member: str) -> str:
        """The members, as one of them reaches them."""
        return ";".join(f"{to}-{self._way(member, to)}" for to in self.ports)

    def _way(self, member: str, to: str) -> str:
        way = self.ways.get((member, to))
        return self.address(to) if way is None else way.address

    def address(self, member: str) -> str:
        """Where a member listens for the others."""
        return f"127.0.0.1:{self.ports[member].number}"

    def build_ways(self) -> None:
        """Let everything that members say to one another go over proxies."""
        for member, to in itertools.permutations(self.ports, 2):
            self.ways[member, to] = way = FaultProxy(self.address(to))
            way.start()

    def lose(self, member: str, to: str) -> None:
        """What the one says to the other is lost from now on."""
        self.ways[member, to].drop()

    def isolate(self, member: str) -> None:
        for (one, other), way in self.ways.items():
            if member in (one, other):
                way.drop()

    def heal(self) -> None:
        for way in self.ways.values():
            way.restore()

    def make(self, member: str, **changes: Any) -> Broker:
        return broker_of(
            self.root / member,
            disk=self.disks.get(member),
            **{
                **QUICK,
                "namesrvAddr": self.name_server,
                "enableDLegerCommitLog": "true",
                "dLegerGroup": "broker-a",
                "dLegerPeers": self.peers(member),
                "dLegerSelfId": member,
                "listenPort": self.listening[member].number,
                **self._settings,
                **changes,
            },
        )

    async def start(self, *members: str, **changes: Any) -> None:
        for member in members or tuple(self.ports):
            self.up[member] = broker = self.make(member, **changes)
            await broker.start()

    async def kill(self, member: str) -> None:
        broker = self.up.pop(member)
        assert self.may_fail or quorum_of(broker).failure is None
        await broker.abandon()

    async def stop(self, *members: str) -> None:
        for member in members or tuple(self.up):
            await self.up.pop(member).stop()

    async def end(self) -> None:
        for way in self.ways.values():
            await way.stop()
        for port in (*self.ports.values(), *self.listening.values()):
            port.release()

    def quorum(self, member: str) -> Quorum:
        return quorum_of(self.up[member])

    def serving(self) -> list[str]:
        return [member for member in self.up if self.quorum(member).serves]

    async def leader(self, timeout_s: float = ELECTION_S) -> str:
        """The member that takes messages, when there is one."""
        await until(lambda: self._in_charge() is not None, timeout_s)
        found = self._in_charge()
        assert found is not None
        return found

    def _in_charge(self) -> str | None:
        ready = [m for m in self.serving() if self.up[m].parts._is_in_charge]
        return max(ready, key=lambda m: self.quorum(m).epoch, default=None)

    def followers(self) -> list[str]:
        return [member for member in self.up if member not in self.serving()]

    async def in_step(self) -> None:
        """Wait until all who are up have the same log, all of it confirmed and dispatched."""

        def same() -> bool:
            stores = [store_of(broker) for broker in self.up.values()]
            ends = {s.appended.value for s in stores} | {s.dispatched.value for s in stores}
            return len(ends) == 1

        await until(same, 20)

    def assert_same(self) -> None:
        """Logs and queues of all who are up are the same, byte for byte."""
        first, *others = (store_of(broker) for broker in self.up.values())
        end = first.appended.value
        for other in others:
            assert other.appended.value == end
            assert log_bytes(first.config.root, end) == log_bytes(other.config.root, end)
            assert queue_bytes(first.config.root) == queue_bytes(other.config.root)


@contextlib.asynccontextmanager
async def group_of(
    root: Path, size: int = 3, *, proxied: bool = False, **settings: Any
) -> AsyncIterator[Group]:
    async with name_server(root) as address:
        group = Group(root, address, size, **settings)
        if proxied:
            group.build_ways()
        try:
            yield group
        finally:
            for member in tuple(group.up):
                await group.kill(member)
            await group.end()


def quorum_of(broker: Broker) -> Quorum:
    found = context_of(broker).quorum
    assert found is not None
    return found


def store_of(broker: Broker) -> MessageStore:
    return context_of(broker).store


async def send_all(
    broker: Broker, count: int, *, first: int = 0, topic: str = "orders"
) -> list[bytes]:
    """Send messages all at once; the bodies of those that were acknowledged."""
    client = await Client.to(broker)
    try:

        async def one(number: int) -> bytes | None:
            body = b"%06d" % number
            answer = await client.send(topic, body, queue_id=number % 4)
            return body if answer.code == 0 else None

        answers = await asyncio.gather(*(one(n) for n in range(first, first + count)))
        return [body for body in answers if body is not None]
    finally:
        client.close()


async def read_all(broker: Broker, topic: str = "orders") -> list[bytes]:
    client = await Client.to(broker)
    try:
        found = []
        for queue_id in range(4):
            found += [m.body for m in await client.pulled(topic, queue_id)]
        return sorted(found)
    finally:
        client.close()
