"""What tests of consumers share: a broker with a topic, someone who sends, handlers that record.

Messages are sent by bare requests, so that these tests depend on nothing but the consumers.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final

from cometmq.client.cluster import Cluster
from cometmq.client.consumer.pull import PullConsumer
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.message_queue import MessageQueue
from cometmq.testing import EmbeddedBroker
from tests.broker.brokers import POLL_S, Client, until
from tests.testing.clients import connected

TOPIC, GROUP = "orders", "billing"
SOON_S: Final = 20.0


class Heard:
    """A handler that takes everything and remembers it."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []

    async def __call__(self, message: ReceivedMessage) -> None:
        self.messages.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def has(self, *bodies: bytes) -> None:
        """Wait until all of these were heard."""
        await until(lambda: set(bodies) <= set(self.bodies), SOON_S)

    async def counts(self, count: int) -> None:
        await until(lambda: len(self.messages) >= count, SOON_S)


class Sender:
    def __init__(self, client: Client) -> None:
        self.client = client
        self._unique = 0

    async def send(
        self, *bodies: bytes, queue_id: int = 0, topic: str = TOPIC, **properties: str
    ) -> None:
        for body in bodies:
            self._unique += 1
            named = {"UNIQ_KEY": f"{self._unique:032X}", **properties}
            answer = await self.client.send(topic, body, queue_id=queue_id, properties=named)
            assert answer.code == 0, answer.remark

    async def committed(self, queue_id: int = 0, topic: str = TOPIC, group: str = GROUP) -> int:
        return await self.client.offset_of(topic, queue_id, group)

    async def reaches(
        self, offset: int, queue_id: int = 0, topic: str = TOPIC, group: str = GROUP
    ) -> None:
        """Wait until the group has committed that offset."""
        async with asyncio.timeout(SOON_S):
            while await self.committed(queue_id, topic, group) != offset:
                await asyncio.sleep(POLL_S)

    async def move_to(self, offset: int, group: str = GROUP) -> None:
        """Let a group stand at an offset of the first queue, before its first member starts."""
        answer = await self.client.ask(200, {}, {"groupName": group})
        assert answer.code == 0, answer.remark
        answer = await self.client.commit(offset, TOPIC, 0, group)
        assert answer.code == 0, answer.remark

    async def members(self, count: int, group: str = GROUP) -> None:
        async with asyncio.timeout(SOON_S):
            while len(await self.client.consumer_ids(group)) != count:
                await asyncio.sleep(POLL_S)


@contextlib.asynccontextmanager
async def sending(address: str) -> AsyncIterator[Sender]:
    async with connected(address) as client:
        yield Sender(client)


@contextlib.asynccontextmanager
async def shop(queues: int = 1, **how: Any) -> AsyncIterator[tuple[EmbeddedBroker, Sender]]:
    """A broker with the topic, and someone who sends to it."""
    async with EmbeddedBroker(in_memory=True, **how) as broker:
        await broker.create_topic(TOPIC, queues)
        async with sending(broker.address) as sender:
            yield broker, sender


def lively(broker: EmbeddedBroker, **more: Any) -> Cluster:
    """The cluster for a client that looks after routes and heartbeats all the time."""
    return Cluster(broker.namesrv, **{"route_refresh_s": 0.1, "heartbeat_s": 0.2, **more})


async def until_due(
    broker: EmbeddedBroker, fact: Callable[[], object], step_s: float = 10.0
) -> None:
    """Let time go by for the broker until something is true."""
    async with asyncio.timeout(SOON_S):
        while not fact():
            await broker.advance(step_s)
            await asyncio.sleep(0.02)


async def until_shared(consumers: Sequence[PushConsumer | PullConsumer], count: int) -> None:
    """Wait until the queues of the topic are shared out: each belongs to one member."""

    def is_shared() -> bool:
        owners = Counter(queue for one in consumers for queue in queues_of(one))
        return len(owners) == count and set(owners.values()) == {1}

    await until(is_shared, SOON_S)


def queues_of(consumer: PushConsumer | PullConsumer, topic: str = TOPIC) -> list[MessageQueue]:
    return [queue for queue in consumer.queues if queue.topic == topic]


def numbered(count: int, prefix: str = "") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


def in_order(bodies: Iterable[bytes]) -> list[bytes]:
    return sorted(bodies, key=lambda body: (len(body), body))
