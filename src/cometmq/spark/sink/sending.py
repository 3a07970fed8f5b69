"""Parcels on their way: one under way to each queue at a time, many queues at once.

What fails because a broker is away or has too much to do is tried again until the time is up, so a
broker may be started anew meanwhile; what a broker refuses is an error at once. Nothing counts as
sent before its broker has acknowledged it. Works inside of an event loop; after the first error
nothing more is taken.
"""

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

from cometmq.client.errors import (
    AnswerTimedOut,
    BrokerError,
    BrokerFailed,
    ClientError,
    NoRoute,
    ServiceNotAvailable,
    TopicNotFound,
    answers_read,
    error_of,
)
from cometmq.client.link import Link, transport_errors
from cometmq.client.producer.destinations import Destinations
from cometmq.client.producer.options import ProducerOptions
from cometmq.client.producer.parcels import send_request
from cometmq.client.producer.results import STATUS_OF_CODE, SendAnswer, SendStatus
from cometmq.protocol.command import Command
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.routes import MASTER_ID

from ..errors import BadOption, ClusterAway, NotSent, TooManyHalves
from ..topic.offsets import queue_text
from ..topic.patience import AWAY, patiently
from .options import Acknowledge, SinkOptions
from .parcels import Parcel

ANSWER_TIMEOUT_S: Final = 15.0
WINDOW_BYTES: Final = 16 << 20
"""Of parcels that are not acknowledged yet. A larger one is taken when nothing else is there."""
WINDOW_PARCELS: Final = 256
LANES_APART: Final = 128
"""Parcels under way at once that need no order."""
UNSAFE_TRIES: Final = 3
TOO_MANY_HALVES: Final = "transactions are undecided"
"""What our broker says to half messages when it has a million of them."""
TOPIC_QUEUES: Final = ProducerOptions.default_topic_queues
Stored = Callable[[Parcel, SendAnswer], None]
"""Told of every parcel that is acknowledged, and where it is."""


class _NotSafe(ClientError):
    """Stored, but less safely than the broker should."""


_AGAIN: Final = (*AWAY, ServiceNotAvailable, BrokerFailed, _NotSafe)
"""RocketMQ's broker says that it has failed also when its disk or its replicas are slow."""


class Sending:
    def __init__(self, options: SinkOptions, stored: Stored | None = None) -> None:
        self._options = options
        self._stored = stored
        self._link = Link(options.cluster)
        self._destinations = Destinations(self._link, TOPIC_QUEUES)
        self._lanes: dict[Hashable, deque[Parcel]] = {}
        self._apart = itertools.count()
        self._bytes = self._parcels = 0
        self._changed = asyncio.Event()
        self._error: Exception | None = None

    async def start(self) -> None:
        self._link.start()

    async def close(self) -> None:
        await self._destinations.close()
        await self._link.stop()

    def known(self, topic: str) -> Sequence[MessageQueue]:
        """What `queues` would say, if it need not ask anybody. May be called in any thread."""
        known = self._destinations.known(topic)
        return known.queues if known else ()

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Where messages to a topic go, in the order that all producers see. BadOption if it is
        not there, or not to be written to. One that NameServers do not know is waited for: they
        forget it while all its brokers are away."""
        what, patience_s = f"looking for topic {topic}", self._options.send_timeout_s
        try:
            return await patiently(
                lambda: self._find(topic), what, (*AWAY, TopicNotFound), patience_s
            )
        except ClusterAway as error:
            if not isinstance(error.__cause__, TopicNotFound):
                raise
            remedy = "or let brokers make topics (autoCreateTopicEnable)"
            if self._options.has_fixed_ids:
                remedy = f"deliveryGuarantee={self._options.guarantee.value} needs it"
            raise BadOption(
                f"there is no topic {topic}, also not after {patience_s:g} s: create it first, "
                f"{remedy}"
            ) from None

    async def _find(self, topic: str) -> Sequence[MessageQueue]:
        try:
            if self._options.has_fixed_ids:  # Not content with what a broker would make.
                await self._link.routes.refresh(topic)
            return (await self._destinations.find(topic)).queues
        except NoRoute:
            route = self._link.routes.known(topic)
            if route is not None and any(MASTER_ID in ids for ids in route.brokers.values()):
                raise BadOption(
                    f"topic {topic} cannot be written to: change its permission"
                ) from None
            raise

    async def put(self, parcels: Iterable[Parcel]) -> None:
        """Send them; returns when there is room for more."""
        for parcel in parcels:
            while self._is_full(len(parcel.content.body)) and self._error is None:
                await self._change()
            if self._error is not None:
                raise self._error
            self._enqueue(parcel)

    async def flush(self) -> None:
        """Wait until all is acknowledged."""
        while self._parcels and self._error is None:
            await self._change()
        if self._error is not None:
            raise self._error

    async def settle(self, error: Exception) -> None:
        """Send nothing more, and wait until it is known what became of all that is under way."""
        self._error = self._error or error
        while self._lanes:
            await self._change()

    # -- lanes -----------------------------------------------------------------------------------

    def _is_full(self, more: int) -> bool:
        too_much = self._bytes + more > WINDOW_BYTES or self._parcels >= WINDOW_PARCELS
        return too_much and self._parcels > 0

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _enqueue(self, parcel: Parcel) -> None:
        self._bytes += len(parcel.content.body)
        self._parcels += 1
        key: Hashable = parcel.queue
        if not parcel.is_ordered:
            key = next(self._apart) % LANES_APART
        if key in self._lanes:
            self._lanes[key].append(parcel)
        else:
            self._lanes[key] = deque([parcel])
            self._link.spawn(self._drain(key))

    async def _drain(self, key: Hashable) -> None:
        lane = self._lanes[key]
        try:
            while lane and self._error is None:
                parcel = lane.popleft()
                await self._deliver(parcel)
                self._bytes -= len(parcel.content.body)
                self._parcels -= 1
                self._changed.set()
        except Exception as error:  # noqa: BLE001 - whoever waits raises it
            self._error = self._error or error
        finally:
            del self._lanes[key]
            self._changed.set()

    # -- one parcel ------------------------------------------------------------------------------

    async def _deliver(self, parcel: Parcel) -> None:
        try:
            answer = await self._first_try(parcel) or await self._tried_again(parcel)
        except BrokerError as error:
            raise NotSent(f"{_name(parcel)}: {error}") from error
        if self._stored is not None:
            with answers_read():
                self._stored(parcel, answer.fields(SendAnswer))

    async def _first_try(self, parcel: Parcel) -> Command | None:
        try:
            return await self._send(parcel)
        except _AGAIN:
            return None

    async def _tried_again(self, parcel: Parcel) -> Command:
        unsafe = 0

        async def attempt() -> Command:
            nonlocal unsafe
            await self._look_again(parcel)
            try:
                return await self._send(parcel)
            except _NotSafe as error:
                unsafe += 1
                if unsafe >= UNSAFE_TRIES:
                    raise NotSent(f"{_name(parcel)}: {error}") from error
                raise

        return await patiently(
            attempt, f"sending {_name(parcel)}", _AGAIN, self._options.send_timeout_s
        )

    async def _look_again(self, parcel: Parcel) -> None:
        """Ask where the topic is now, and take another broker's queue if that is as good."""
        topic, failed = parcel.queue.topic, parcel.queue.broker_name
        with contextlib.suppress(TopicNotFound):  # Its broker is away, or will make it.
            await self._link.routes.refresh(topic)
        if parcel.is_free:
            known = self._destinations.known(topic)
            others = [q for q in (known.queues if known else ()) if q.broker_name != failed]
            if others:
                parcel.queue = others[parcel.first_row % len(others)]

    async def _send(self, parcel: Parcel) -> Command:
        queue, options = parcel.queue, self._options
        address = self._link.routes.address_of(queue.broker_name)
        if address is None:
            raise NoRoute(f"no master of broker {queue.broker_name} is known now")
        connection = await self._link.connection(address)
        request = send_request(
            queue.topic, parcel.content, queue, options.producer_group, TOPIC_QUEUES
        )
        try:
            with transport_errors():
                answer = await connection.request(self._link.signed(request), ANSWER_TIMEOUT_S)
        except AnswerTimedOut:
            connection.abort()  # TCP alone might need a quarter of an hour to notice.
            raise
        status = STATUS_OF_CODE.get(answer.code)
        if status is None:
            if TOO_MANY_HALVES in (answer.remark or ""):
                raise TooManyHalves(
                    f"{_name(parcel)}: broker {queue.broker_name} says {answer.remark!r}"
                )
            raise error_of(answer.code, answer.remark, queue.broker_name)
        if status is not SendStatus.OK and options.acknowledge is Acknowledge.SAFE:
            raise _NotSafe(
                f"broker {queue.broker_name} has it, but answers {status.value}; mend its disk or "
                "its slaves, or set acknowledge=stored to take that for sent"
            )
        return answer


def _name(parcel: Parcel) -> str:
    first = parcel.first_row
    rows = f"row {first}" if parcel.rows == 1 else f"{parcel.rows} rows from row {first} on"
    return f"{rows} to topic {parcel.queue.topic}, queue {queue_text(parcel.queue)}"
