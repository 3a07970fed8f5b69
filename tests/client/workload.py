"""Senders of every kind and groups of every kind, at work on one topic while things go wrong.

Whatever a fault costs, senders and members go on by themselves; `recover` says whether messages
flow through every queue again, `verdict` whether something acknowledged was lost. Sends are paced,
so that a test machine has time for all of it.
"""

import asyncio
import contextlib
import functools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from cometmq.client.admin import Admin
from cometmq.client.cluster import Cluster
from cometmq.client.consumer.options import PullConsumerOptions, PushOptions
from cometmq.client.consumer.pull import PullConsumer
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.consumer.subscriptions import ConsumeFrom
from cometmq.client.errors import ClientError, TooManyInFlight
from cometmq.client.message import Message
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.results import SendResult
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.message_queue import MessageQueue

from .ledger import Group, Ledger, faults_of

log = logging.getLogger(__name__)
TOPIC: Final = "work"
CONCURRENT: Final = "concurrent"
ORDERLY: Final = "orderly"
PULL: Final = "pull"
PACE_S: Final = 0.02
BURST: Final = 5
HANDLER_S: Final = 0.003
SEND_TIMEOUT_S: Final = 1.5
SETTLE_S: Final = 20.0
PROBE_PAUSE_S: Final = 0.05
NOTICED_S: Final = 0.05
AUDIT_S: Final = 0.1
OPTIONS: Final = PushOptions(commit_interval_s=0.2, suspend_s=0.05, stop_timeout_s=5.0)


class Workload:
    """Use as `async with Workload(cluster, topic) as work`; it begins with all members in place.

    `members` are so many in each group; groups are called by their kind, with `prefix` in front.
    Without `is_flooded` one sender alone is at work, slowly: for handlers that take their time.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        members: int = 2,
        kinds: tuple[str, ...] = (CONCURRENT, ORDERLY, PULL),
        prefix: str = "",
        handler_s: float = HANDLER_S,
        is_flooded: bool = True,
    ) -> None:
        self.ledger = Ledger()
        self.topic = topic
        self.queues: list[MessageQueue] = []
        self._cluster = cluster
        self._members = members
        self._kinds = kinds
        self._prefix = prefix
        self._handler_s = handler_s
        self._is_flooded = is_flooded
        self._producer = Producer(cluster, group=f"{prefix}senders", timeout_s=SEND_TIMEOUT_S)
        self._lingering = Producer(
            cluster, group=f"{prefix}lingering", timeout_s=SEND_TIMEOUT_S, linger_s=0.005
        )
        self._sending: list[asyncio.Task[None]] = []
        self._unanswered: set[asyncio.Future[SendResult]] = set()
        self._stopping = False
        self.consumers: list[PushConsumer | PullConsumer] = []
        self._exit = contextlib.AsyncExitStack()

    async def __aenter__(self) -> "Workload":
        async with contextlib.AsyncExitStack() as stack:
            async with Admin(self._cluster) as admin:
                self.queues = list(await admin.offsets.search_topic(self.topic, "earliest"))
            for producer in (self._producer, self._lingering):
                await stack.enter_async_context(producer)
            for kind in self._kinds:
                for number in range(self._members):
                    await self._enter_member(stack, kind, f"{kind}-{number}")
            stack.push_async_callback(self._stop_sending)
            self._exit = stack.pop_all()
        self._start_sending()
        await self.recover(SETTLE_S)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._exit.aclose()

    def group(self, kind: str) -> Group:
        return self.ledger.group(f"{self._prefix}{kind}", is_orderly=kind == ORDERLY)

    @property
    def groups(self) -> list[Group]:
        return [self.group(kind) for kind in self._kinds]

    # -- what a test asks ------------------------------------------------------------------------

    async def recover(self, within_s: float) -> None:
        """Return when a new message got through every queue to every group."""
        async with asyncio.timeout(within_s) as limit:
            try:
                probes = await asyncio.gather(*map(self._probe, self.queues))
            except TimeoutError:
                raise AssertionError(f"no sends: {self.ledger.summary()}") from None
        left_s = max((limit.when() or 0.0) - asyncio.get_running_loop().time(), 0.0)
        groups = self.groups
        await self.ledger.until(
            lambda: all(group.bodies_done.issuperset(probes) for group in groups),
            f"all groups get {probes}",
            left_s,
        )

    async def settled(self, within_s: float) -> None:
        """Return when the members have shared out the queues and handed over what they gave up."""
        consumers = self.consumers
        wanted = Counter({queue: len(consumers) // self._members for queue in self.queues})

        def is_settled() -> bool:
            had = Counter(queue for one in consumers for queue in one.queues if queue in wanted)
            return had == wanted and not any(one._reader._leaving for one in consumers)

        await self.ledger.until(is_settled, "the members share the queues", within_s)

    async def verdict(self) -> None:
        """Send no more, let everything acknowledged be consumed, and judge."""
        await self._stop_sending()
        groups = self.groups
        await self.ledger.until(
            lambda: not any(map(self.ledger.missing, groups)),
            "all groups get what was acknowledged",
            SETTLE_S,
        )
        wrong = await self.faults()
        assert not wrong, f"{len(wrong)} faults: {wrong[:10]}; {self.ledger.summary()}"

    async def faults(self) -> list[str]:
        async with Admin(self._cluster) as admin:
            await self._look_at_commits(admin)
            stored = {
                (message.queue, message.queue_offset): message.body
                async for message in admin.messages.read_topic(self.topic)
            }
        return faults_of(self.ledger, stored)

    async def _look_at_commits(self, admin: Admin) -> None:
        for group in self.groups:
            group.saw_committed(await admin.offsets.committed(group.name, self.topic))

    async def _audit(self) -> None:
        """Look now and then, since in the end everything is finished anyway."""
        async with Admin(self._cluster) as admin:
            while not self._stopping:
                with contextlib.suppress(ClientError):
                    await self._look_at_commits(admin)
                await asyncio.sleep(AUDIT_S)

    async def lose_locks(self) -> None:
        """Said when a broker has gone: handlers at work when all have noticed are at work without
        locks, which is no fault. Those begun later need new ones."""
        await asyncio.sleep(NOTICED_S)
        for group in self.groups:
            self.ledger.excuse_open(group)

    # -- senders ---------------------------------------------------------------------------------

    def _start_sending(self) -> None:
        ways: dict[str, Callable[[str], Awaitable[None]]] = {
            "one": self._send_one,
            "key-a": self._send_keyed,
            "key-b": self._send_keyed,
            "burst": self._send_burst,
            "batch": self._send_batch,
            "linger": self._send_lingering,
        }
        if not self._is_flooded:
            ways = {"slow": self._send_slowly}
        self._sending = [
            asyncio.create_task(self._go_on(sender, way)) for sender, way in ways.items()
        ]
        self._sending.append(asyncio.create_task(self._audit()))

    async def _stop_sending(self) -> None:
        """Returns when all answers are there, or the errors that stand for them."""
        self._stopping = True
        await asyncio.gather(*self._sending)
        if self._unanswered:
            await asyncio.wait(self._unanswered)

    async def _go_on(self, sender: str, send: Callable[[str], Awaitable[None]]) -> None:
        while not self._stopping:
            try:
                await send(sender)
            except ClientError as error:
                self.ledger.failures.append(f"{sender}: {error}")
            await asyncio.sleep(PACE_S)

    async def _send_one(self, sender: str) -> None:
        body = self.ledger.next_body(sender)
        self.ledger.acknowledge(body, await self._producer.send(Message(self.topic, body)))

    async def _send_slowly(self, sender: str) -> None:
        await self._send_one(sender)
        await asyncio.sleep(self._handler_s / len(self.queues))

    async def _send_keyed(self, key: str) -> None:
        body = self.ledger.next_body(key)
        message = Message(self.topic, body, sharding_key=key)
        self.ledger.acknowledge(body, await self._producer.send(message))

    async def _send_burst(self, sender: str) -> None:
        self._send_nowait(self._producer, sender)
        await asyncio.sleep(BURST * PACE_S)

    async def _send_lingering(self, sender: str) -> None:
        self._send_nowait(self._lingering, sender)
        await asyncio.sleep(BURST * PACE_S)

    def _send_nowait(self, producer: Producer, sender: str) -> None:
        for _ in range(BURST):
            body = self.ledger.next_body(sender)
            with contextlib.suppress(TooManyInFlight):
                future = producer.send_nowait(Message(self.topic, body))
                self._unanswered.add(future)
                future.add_done_callback(functools.partial(self._answered, body))

    def _answered(self, body: bytes, future: "asyncio.Future[SendResult]") -> None:
        self._unanswered.discard(future)
        error = future.exception()
        if error is None:
            self.ledger.acknowledge(body, future.result())
        else:
            self.ledger.failures.append(f"{body!r}: {error}")

    async def _send_batch(self, sender: str) -> None:
        bodies = [self.ledger.next_body(sender) for _ in range(BURST)]
        results = await self._producer.send_batch([Message(self.topic, body) for body in bodies])
        for body, result in zip(bodies, results, strict=True):
            self.ledger.acknowledge(body, result)
        await asyncio.sleep(BURST * PACE_S)

    async def _probe(self, queue: MessageQueue) -> bytes:
        """A message that is stored in this queue, tried until it is."""
        while True:
            body = self.ledger.next_body("probe")
            try:
                result = await self._producer.send(Message(self.topic, body), queue=queue)
            except ClientError as error:
                self.ledger.failures.append(f"probe: {error}")
                await asyncio.sleep(PROBE_PAUSE_S)
            else:
                self.ledger.acknowledge(body, result)
                return body

    # -- members ---------------------------------------------------------------------------------

    async def _enter_member(self, stack: contextlib.AsyncExitStack, kind: str, member: str) -> None:
        if kind == PULL:
            await stack.enter_async_context(self._pulling(member))
        else:
            consumer = self.push_consumer(kind, member)
            self.consumers.append(await stack.enter_async_context(consumer))

    def push_consumer(self, kind: str, member: str) -> PushConsumer:
        group = self.group(kind)
        return consumer_of(
            self._cluster, self.ledger, group, member, topic=self.topic, handler_s=self._handler_s
        )

    @contextlib.asynccontextmanager
    async def _pulling(self, member: str) -> AsyncIterator[None]:
        group = self.group(PULL)
        consumer = PullConsumer(
            self._cluster,
            group=group.name,
            topics=self.topic,
            consume_from=ConsumeFrom.FIRST,
            options=PullConsumerOptions(commit_interval_s=0.2),
        )
        async with consumer:
            self.consumers.append(consumer)
            polling = asyncio.create_task(self._poll(consumer, group, member))
            try:
                yield
            finally:
                polling.cancel()
                await asyncio.wait([polling])

    async def _poll(self, consumer: PullConsumer, group: Group, member: str) -> None:
        while True:
            messages = await consumer.poll(timeout_s=1.0)
            deliveries = [
                self.ledger.begin(group, member, (m.queue, m.queue_offset), m.body)
                for m in messages
            ]
            for delivery in deliveries:
                self.ledger.end(group, delivery)


def consumer_of(
    cluster: Cluster,
    ledger: Ledger,
    group: Group,
    member: str,
    *,
    topic: str = TOPIC,
    handler_s: float = HANDLER_S,
    client_id: str = "",
) -> PushConsumer:
    """One that enters in the ledger what it gets."""

    async def handle(message: ReceivedMessage) -> None:
        place = message.queue, message.queue_offset
        delivery = ledger.begin(group, member, place, message.body)
        await asyncio.sleep(handler_s)
        ledger.end(group, delivery)

    return PushConsumer(
        cluster,
        group=group.name,
        topics=topic,
        handler=handle,
        orderly=group.is_orderly,
        consume_from=ConsumeFrom.FIRST,
        client_id=client_id,
        options=OPTIONS,
    )
