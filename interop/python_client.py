"""The Python client at one cluster, as tests with it need it.

`on_loop` makes a coroutine with a bench among its arguments a test. An `Inbox` is the handler of a
push consumer: it keeps what came and does as the messages say, by the same properties that the Java
consumers of `interop.java_client` go by.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple, Self, TypeVar

from cometmq.client import (
    Admin,
    Check,
    ConsumeFrom,
    Later,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PullConsumerOptions,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
    SendResult,
    TopicNotFound,
    TransactionProducer,
)
from cometmq.client import cluster as clusters
from cometmq.client.consumer.subscriptions import Wanted
from interop.message_kinds import Call
from interop.rocketmq import ConfigValue
from interop.systems import Cluster

CONFIG: Mapping[str, ConfigValue] = {
    "timerWheelEnable": True,
    # A second otherwise: RocketMQ's timers go by ticks.
    "timerPrecisionMs": 100,
    "recallMessageEnable": True,
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
    # RocketMQ writes decisions down after three seconds, and asks about those not written down.
    "transactionOpBatchInterval": 50,
}
"""What brokers must be told for the tests with this client."""

TEST_TIMEOUT_S = 120.0
WAIT_TIMEOUT_S = 40.0
POLL_INTERVAL_S = 0.02
QUICK = PushOptions(commit_interval_s=0.2, suspend_s=0.05)

Queue = tuple[str, int]
"""A queue by its broker and number."""
Places = set[tuple[int, int]]
"""Messages by queue number and offset."""
T = TypeVar("T")
_numbers = itertools.count(1)


class Delivery(NamedTuple):
    """One call of a handler: the message, and what it told at that moment."""

    message: ReceivedMessage
    times: int
    """It was refused so often before. An orderly consumer counts on in the message itself."""
    at_ms: int

    @property
    def body(self) -> bytes:
        return self.message.body


class Inbox:
    """A handler. A message with the property `fail` of n is refused n times, for the delay level
    in `later` if it has one; with `work` of n it takes so many milliseconds."""

    def __init__(self, name: str = "inbox") -> None:
        self.name = name
        self.deliveries: list[Delivery] = []
        self.calls: list[Call] = []
        self._changed = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()
        self._consumer: PushConsumer | None = None

    async def __call__(self, message: ReceivedMessage) -> Later | None:
        began_ns = time.monotonic_ns()
        wishes = message.properties
        taken = message.reconsume_times >= int(wishes.get("fail", 0))
        self.deliveries.append(Delivery(message, message.reconsume_times, now_ms()))
        self._changed.set()
        await self._open.wait()
        await asyncio.sleep(int(wishes.get("work", 0)) / 1000)
        place = message.queue.queue_id, message.queue_offset
        self.calls.append(Call(self.name, *place, began_ns, time.monotonic_ns(), taken))
        self._changed.set()
        return None if taken else Later(int(wishes.get("later", 0)))

    def hold(self) -> None:
        """Let no call return."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def serves(self, consumer: PushConsumer) -> None:
        self._consumer = consumer

    @property
    def consumer(self) -> PushConsumer:
        assert self._consumer is not None
        return self._consumer

    @property
    def bodies(self) -> list[bytes]:
        return [delivery.body for delivery in self.deliveries]

    def of_body(self, body: bytes) -> list[Delivery]:
        return [delivery for delivery in self.deliveries if delivery.body == body]

    def queues(self, topic: str) -> set[Queue]:
        """Those of a topic that its consumer has now."""
        return {queue_of(queue) for queue in self.consumer.queues if queue.topic == topic}

    async def wait_for(self, count: int) -> list[Delivery]:
        """Wait until so many were delivered, counting repeated ones."""
        return await self.wait_until(lambda: len(self.deliveries) >= count)

    async def wait_for_bodies(self, wanted: Iterable[bytes]) -> list[Delivery]:
        missing = set(wanted)
        return await self.wait_until(lambda: missing <= set(self.bodies))

    async def wait_until(self, enough: Callable[[], bool]) -> list[Delivery]:
        try:
            async with asyncio.timeout(WAIT_TIMEOUT_S):
                while not enough():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"{self.name}: not enough among {self.bodies[-50:]}") from None
        return list(self.deliveries)

    async def wait_for_queues(self, topic: str, count: int) -> set[Queue]:
        await until(
            lambda: len(self.queues(topic)) == count, f"{self.name} has {count} queues of {topic}"
        )
        return self.queues(topic)


class PythonBench:
    """A cluster, and on the loop of one test a producer and an admin there."""

    def __init__(self, cluster: Cluster, where: clusters.Cluster | None = None) -> None:
        self.cluster = cluster
        self.where = where or clusters.Cluster(
            cluster.namesrv.address, heartbeat_s=1.0, route_refresh_s=1.0
        )
        self._unseen: list[dict[str, Any]] = []
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        loop = self._runner.get_loop()
        loop.set_exception_handler(lambda _, context: self._unseen.append(context))
        self.producer = Producer(self.where, group=self.name("producer"), timeout_s=10.0)
        self.admin = Admin(self.where)
        self.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._stop())
        self._runner.close()
        assert self._unseen == []

    async def _start(self) -> None:
        await self.producer.start()
        await self.admin.start()

    async def _stop(self) -> None:
        await self.producer.stop()
        await self.admin.stop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(asyncio.wait_for(work, TEST_TIMEOUT_S))

    # -- topics and groups -----------------------------------------------------------------------

    def name(self, what: str) -> str:
        """A name for a topic or a group that no other test has."""
        return f"Py-{what}-{next(_numbers)}"

    async def topic(self, what: str, queues: int = 4) -> str:
        topic = self.name(what)
        await self.admin.topics.create(topic, queues=queues)
        await until(lambda: self.is_known(topic), f"{topic} has a route")
        return topic

    async def is_known(self, topic: str) -> bool:
        try:
            await self.admin.topics.route(topic)
        except TopicNotFound:
            return False
        return True

    async def queues(self, topic: str) -> list[MessageQueue]:
        """In their order."""
        return list(await self.admin.offsets.search_topic(topic, "earliest"))

    async def stored(self, topic: str) -> int:
        return sum((await self.admin.offsets.search_topic(topic, "latest")).values())

    async def read_all(self, topic: str) -> list[ReceivedMessage]:
        """Every message of every queue of a topic, queue by queue."""
        return [message async for message in self.admin.messages.read_topic(topic)]

    async def dead_letters(self, group: str, count: int) -> list[ReceivedMessage]:
        topic = f"%DLQ%{group}"

        async def there() -> bool:
            return await self.is_known(topic) and await self.stored(topic) >= count

        await until(there, f"{group} has {count} dead letters")
        return await self.read_all(topic)

    async def committed(self, group: str, topic: str) -> dict[int, int]:
        """Where a group is, by queue number, as its broker knows it."""
        offsets = await self.admin.offsets.committed(group, topic)
        return {queue.queue_id: offset for queue, offset in offsets.items()}

    async def wait_until_consumed(self, group: str, topic: str, count: int) -> None:
        async def consumed() -> bool:
            return sum((await self.committed(group, topic)).values()) == count

        await until(consumed, f"{group} has consumed {count}")

    # -- producers and consumers -----------------------------------------------------------------

    async def send(self, *messages: Message) -> list[SendResult]:
        """One after the other."""
        return [await self.producer.send(message) for message in messages]

    async def send_to(self, queue: MessageQueue, *messages: Message) -> list[SendResult]:
        return [await self.producer.send(message, queue=queue) for message in messages]

    @contextlib.asynccontextmanager
    async def stream(self, topic: str, keys: Iterable[str]) -> AsyncIterator[Places]:
        """Send to each key in turn until the block is left, as fast as orderly handlers can take
        it; every twentieth message is refused once. Yields where the messages are."""
        places: Places = set()
        is_over = asyncio.Event()

        async def send_on() -> None:
            for step in itertools.takewhile(lambda _: not is_over.is_set(), itertools.count()):
                wishes = {"work": "15"} | ({"fail": "1"} if step % 20 == 10 else {})
                for key in keys:
                    sent = await self.producer.send(
                        Message(topic, b"%d" % step, sharding_key=key, properties=wishes)
                    )
                    places.add((sent.queue.queue_id, sent.queue_offset))
                await asyncio.sleep(0.02)

        sending = asyncio.create_task(send_on())
        try:
            yield places
        finally:
            is_over.set()
            await sending

    def transactions(self, check: Check, group: str = "") -> TransactionProducer:
        return TransactionProducer(
            self.where, group=group or self.name("transactions"), check=check, timeout_s=10.0
        )

    @contextlib.asynccontextmanager
    async def push(
        self,
        group: str,
        topics: Wanted,
        *,
        inbox: Inbox | None = None,
        consume_from: Any = ConsumeFrom.FIRST,
        options: PushOptions = QUICK,
        **more: Any,
    ) -> AsyncIterator[Inbox]:
        """A running consumer; what it gets is in the inbox, also afterwards."""
        inbox = inbox or Inbox(self.name("inbox"))
        consumer = PushConsumer(
            self.where, group=group, topics=topics, handler=inbox, consume_from=consume_from,
            options=options, **more,
        )  # fmt: skip
        inbox.serves(consumer)
        async with consumer:
            yield inbox

    def pull(self, group: str, topics: Wanted = (), **options: Any) -> PullConsumer:
        return PullConsumer(
            self.where, group=group, topics=topics, consume_from=ConsumeFrom.FIRST,
            options=PullConsumerOptions(**options),
        )  # fmt: skip


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A coroutine as a test: it runs on the loop of the bench among its arguments."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        (bench,) = (value for value in arguments.values() if isinstance(value, PythonBench))
        bench.run(test(**arguments))

    return run


async def until(fact: Callable[[], bool | Awaitable[bool]], what: str) -> None:
    """Return when `fact` holds, for facts that nobody announces."""
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    while True:
        holds = fact()
        if holds if isinstance(holds, bool) else await holds:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {WAIT_TIMEOUT_S:.0f} s: {what}")
        await asyncio.sleep(POLL_INTERVAL_S)


async def poll_until(consumer: PullConsumer, count: int) -> list[ReceivedMessage]:
    """Poll so many messages; that no further ones come is for the test to find out."""
    messages: list[ReceivedMessage] = []
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages polled"
        messages += await consumer.poll(timeout_s=1.0)
    return messages


def numbered(topic: str, count: int, prefix: str = "body") -> list[Message]:
    return [Message(topic, f"{prefix}-{number}".encode()) for number in range(count)]


def bodies(messages: Iterable[Message | ReceivedMessage | Delivery]) -> list[bytes]:
    return [message.body for message in messages]


def by_queue(messages: Iterable[ReceivedMessage]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for message in messages:
        found.setdefault(message.queue.queue_id, []).append(message.body)
    return found


def queue_of(queue: MessageQueue) -> Queue:
    return queue.broker_name, queue.queue_id


def now_ms() -> int:
    return time.time_ns() // 1_000_000
