"""A handler that blocks costs the group nothing: no rebalance, no repeat, no waiting elsewhere.

Times are shorter than RocketMQ's: a broker forgets a client after one and a half seconds of silence
(two minutes) and a lock after three (one minute), and handlers block for longer than both.
`test_faults_long` has the same with the times that users have.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest

from cometmq.broker import locks as broker_locks
from cometmq.broker import parts
from cometmq.broker.clients import Clients
from cometmq.client.admin import Admin
from cometmq.client.cluster import Cluster
from cometmq.client.consumer import locks
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.consumer.reader import Reader
from cometmq.client.consumer.subscriptions import ConsumeFrom
from cometmq.client.message import Message
from cometmq.client.producer.producer import Producer
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.message_queue import MessageQueue
from cometmq.testing import EmbeddedBroker
from tests.transport.conftest import LOOPS as ALL_LOOPS

from .ledger import Ledger
from .member import Member
from .test_faults import quick
from .workload import CONCURRENT, OPTIONS

LOOPS = ALL_LOOPS[-1:]
TOPIC, GROUP = "work", "group"
BLOCK = b"block"
WAIT_S = 10.0
SILENCE_MS = 1500
BLOCK_S = 4.0


@pytest.fixture
def hasty_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks after its clients and locks as often as it needs for times this short."""
    monkeypatch.setattr(parts, "CLIENT_SCAN_INTERVAL_S", 0.1)
    monkeypatch.setattr(broker_locks, "LOCK_MS", 2 * SILENCE_MS)
    monkeypatch.setattr(locks, "LIVES_S", SILENCE_MS / 1000)
    monkeypatch.setattr(locks, "RENEW_S", SILENCE_MS / 2000)


class Inbox:
    """A plain handler, called in threads: what it got, and for how long it blocks."""

    def __init__(self, block_s: float = 0.0) -> None:
        self.bodies: list[bytes] = []
        self.begun = threading.Event()
        self.ended = threading.Event()
        self._block_s = block_s

    def __call__(self, message: ReceivedMessage) -> None:
        self.bodies.append(message.body)
        if message.body == BLOCK:
            self.begun.set()
            time.sleep(self._block_s)
            self.ended.set()


def consumer(cluster: Cluster, inbox: Inbox, *, orderly: bool) -> PushConsumer:
    return PushConsumer(
        cluster, group=GROUP, topics=TOPIC, handler=inbox, orderly=orderly,
        consume_from=ConsumeFrom.FIRST, options=OPTIONS,
    )  # fmt: skip


async def until(fact: Callable[[], bool], what: str, within_s: float = WAIT_S) -> None:
    try:
        async with asyncio.timeout(within_s):
            while not fact():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {within_s:g} s: {what}") from None


@contextlib.asynccontextmanager
async def counted_changes(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[str]]:
    """Every time that the broker calls the group's members together, and that a member's queues
    become others."""
    changes: list[str] = []
    notify, set_queues = Clients._notify, Reader.set_queues

    def counted_notify(clients: Clients, group: object) -> None:
        changes.append(f"members are called: {group}")
        notify(clients, group)  # type: ignore[arg-type]

    async def counted_set_queues(reader: Reader, queues: set[MessageQueue]) -> None:
        changes.append(f"{reader.link.client_id} has {len(queues)} queues")
        await set_queues(reader, queues)

    with monkeypatch.context() as patch:
        patch.setattr(Clients, "_notify", counted_notify)
        patch.setattr(Reader, "set_queues", counted_set_queues)
        yield changes


async def check_that_a_blocking_handler_costs_nothing(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    *,
    orderly: bool,
    block_s: float,
) -> None:
    blocked, other = Inbox(block_s), Inbox()
    async with (
        Producer(cluster, group="senders") as producer,
        Admin(cluster) as admin,
        consumer(cluster, blocked, orderly=orderly) as one,
        consumer(cluster, other, orderly=orderly) as two,
    ):
        await until(
            lambda: shares(one) == shares(two) == 2 and len([*one.queues, *two.queues]) == 5,
            "both members have their queues, and one that of the group's retries",
        )
        async with counted_changes(monkeypatch) as changes:
            queue = queues_of(one)[0]
            free = [each for each in [*queues_of(one), *queues_of(two)] if each != queue]
            await producer.send(Message(TOPIC, BLOCK), queue=queue)
            assert await asyncio.to_thread(blocked.begun.wait, WAIT_S)
            numbers = 0
            while not blocked.ended.is_set():
                await send_round(producer, free, blocked, other, numbers)
                numbers += 1
                await asyncio.sleep(0.05)
            behind = await producer.send(Message(TOPIC, b"behind"), queue=queue)
            await until(lambda: b"behind" in blocked.bodies, "its queue goes on")
        assert changes == []
        assert numbers > 1  # The others were consumed while the handler blocked.
        assert blocked.bodies.count(BLOCK) == 1
        assert BLOCK not in other.bodies
        await until_committed(admin, queue, behind.queue_offset + 1)
        assert blocked.bodies.count(BLOCK) == 1


async def send_round(
    producer: Producer, queues: list[MessageQueue], one: Inbox, two: Inbox, number: int
) -> None:
    """A message to each of these queues is consumed, soon."""
    bodies = {f"{number} {at}".encode() for at in range(len(queues))}
    for queue, body in zip(queues, sorted(bodies), strict=True):
        await producer.send(Message(TOPIC, body), queue=queue)
    await until(lambda: bodies <= {*one.bodies, *two.bodies}, f"{bodies} come")


async def until_committed(admin: Admin, queue: MessageQueue, offset: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while (await admin.offsets.committed(GROUP, TOPIC)).get(queue) != offset:
            await asyncio.sleep(0.01)


def queues_of(member: PushConsumer) -> list[MessageQueue]:
    return [queue for queue in member.queues if queue.topic == TOPIC]


def shares(member: PushConsumer) -> int:
    return len(queues_of(member))


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
@pytest.mark.usefixtures("hasty_broker")
async def test_a_plain_handler_blocks_for_longer_than_a_broker_waits_for_a_heartbeat(
    orderly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"channelExpiredTimeout": SILENCE_MS}
    async with EmbeddedBroker(in_memory=True, settings=settings) as broker:
        await broker.create_topic(TOPIC, 4)
        await check_that_a_blocking_handler_costs_nothing(
            quick(broker.namesrv), monkeypatch, orderly=orderly, block_s=BLOCK_S
        )


@pytest.mark.usefixtures("hasty_broker")
async def test_a_coroutine_that_blocks_the_loop_is_taken_for_gone_and_comes_back() -> None:
    """It should not: nothing of this client goes on meanwhile, heartbeats least of all. Another
    member gets its queues then, and the message a second time; nothing is lost."""
    ledger = Ledger()
    group = ledger.group(CONCURRENT)

    async def handle(message: ReceivedMessage) -> None:
        place = message.queue, message.queue_offset
        delivery = ledger.begin(group, "sleeper", place, message.body)
        if message.body == BLOCK:
            time.sleep(BLOCK_S)  # The mistake that this test is about.
        ledger.end(group, delivery)

    def members_at_work(body: bytes) -> set[str]:
        return {one.member for one in group.deliveries if one.body == body}

    with EmbeddedBroker(settings={"channelExpiredTimeout": SILENCE_MS}, in_memory=True) as broker:
        broker.create_topic(TOPIC, 1)
        cluster = quick(broker.namesrv)
        sleeper = PushConsumer(
            cluster, group=group.name, topics=TOPIC, handler=handle, client_id="#1",
            consume_from=ConsumeFrom.FIRST, options=OPTIONS,
        )  # fmt: skip
        async with (
            Producer(cluster, group="senders") as producer,
            Member.running(cluster, TOPIC, CONCURRENT, ledger, group) as other,
        ):
            await producer.send(Message(TOPIC, b"before"))
            await other.is_at_work()
            async with sleeper:
                await until(lambda: shares(sleeper) == 1, "the one queue goes to the first member")
                await producer.send(Message(TOPIC, BLOCK))
                await until(lambda: len(members_at_work(BLOCK)) == 2, "both get the message")
                assert members_at_work(BLOCK) == {"sleeper", other.name}
                await until(lambda: shares(sleeper) == 1, "the sleeper has its queue again")
                await producer.send(Message(TOPIC, b"after"))
                await until(lambda: "sleeper" in members_at_work(b"after"), "it works again")
