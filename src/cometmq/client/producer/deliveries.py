"""Parcels on their way to brokers: a queue, a request, its answer, and another try if need be.

When route and connection are there, a parcel goes out at once, without a task; a task is made
only to find them, or to try again. Parcels with a queue of their own leave in the order in which
they came. Each is settled once, within its time.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Hashable

from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.command import Command, MalformedFields, Request
from cometmq.protocol.errors import ProtocolError
from cometmq.protocol.message_queue import MessageQueue
from cometmq.transport.connection import Connection
from cometmq.transport.errors import TransportError

from ..errors import (
    AnswerTimedOut,
    BrokerError,
    ClientError,
    ConnectionLost,
    IllegalArgument,
    NoRoute,
    NotStarted,
    SendFailed,
    Unreachable,
    error_of,
)
from ..latency import LatencyFaults
from ..link import Link, client_error
from .destinations import Destination, Destinations
from .parcels import Content, Parcel, send_request
from .results import STATUS_OF_CODE, SendAnswer, SendStatus

log = logging.getLogger(__name__)
RETRY_CODES = frozenset({
    ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST,
    204,  # NO_BUYER_ID
    205,  # NOT_IN_CURRENT_UNIT
    1500,  # GO_AWAY
})  # fmt: skip
"""Answers after which another broker may do better."""
_ROUTE_IN_DOUBT = frozenset({ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.TOPIC_NOT_EXIST})


class Deliveries:
    def __init__(
        self,
        link: Link,
        destinations: Destinations,
        settled: Callable[[Parcel], None],
        *,
        group: str,
        default_topic_queues: int,
        retries: int,
        retry_unsafe: bool,
        faults: LatencyFaults | None,
    ) -> None:
        self._link = link
        self._destinations = destinations
        self._settled = settled
        self._group = group
        self._default_topic_queues = default_topic_queues
        self._retries = retries
        self._retry_unsafe = retry_unsafe
        self._faults = faults
        self._loop = asyncio.get_running_loop()
        self._lines: dict[Hashable, asyncio.Task[None]] = {}
        """The last one of those that wait in order, by queue; by topic until its route is known."""

    def send(self, parcel: Parcel) -> None:
        """Send at once if nothing has to be waited for, else beside."""
        destination = self._destinations.known(parcel.topic)
        if destination is None:
            self._send_later(parcel, parcel.topic)
            return
        try:
            queue = self._queue_for(parcel, destination, None)
        except Exception as error:  # noqa: BLE001 - a selector is the user's own function
            self._fail(parcel, error)
            return
        parcel.at = queue
        connection = None if self._has_line(parcel, queue) else self._open_connection(queue)
        if connection is None:
            self._send_later(parcel, queue)
        else:
            self._ask(parcel, queue, connection)

    def request_for(self, topic: str, content: Content, queue: MessageQueue) -> Request:
        request = send_request(topic, content, queue, self._group, self._default_topic_queues)
        return self._link.signed(request)

    # -- queues and connections ------------------------------------------------------------------

    def _queue_for(
        self, parcel: Parcel, destination: Destination, avoid: str | None
    ) -> MessageQueue:
        if parcel.choose is not None:
            return parcel.choose(destination.queues)
        if self._faults is None:
            return destination.turn.next(destination.queues, avoid)
        now_ms = self._loop.time() * 1000
        return self._faults.choose(destination.queues, destination.turn, now_ms, avoid)

    def _open_connection(self, queue: MessageQueue) -> Connection | None:
        address = self._link.routes.address_of(queue.broker_name)
        return None if address is None else self._link.open_connection(address)

    async def connection_to(self, queue: MessageQueue) -> Connection:
        return await self._link.connection(await self.address_of(queue))

    async def address_of(self, queue: MessageQueue) -> str:
        """Of the master that has a queue."""
        address = self._link.routes.address_of(queue.broker_name)
        if address is None:
            await self._link.routes.refresh(queue.topic)
            address = self._link.routes.address_of(queue.broker_name)
        if address is None:
            raise NoRoute(f"no master of broker {queue.broker_name} is known for {queue.topic}")
        return address

    # -- beside ----------------------------------------------------------------------------------

    def _has_line(self, parcel: Parcel, queue: MessageQueue) -> bool:
        return parcel.choose is not None and (queue in self._lines or parcel.topic in self._lines)

    def _send_later(self, parcel: Parcel, line: Hashable, avoid: str | None = None) -> None:
        before = None
        if parcel.choose is not None:
            line = parcel.topic if parcel.topic in self._lines else line
            before = self._lines.get(line)
        task = self._link.spawn(self._get_there(parcel, before, avoid))
        if parcel.choose is not None:
            self._lines[line] = task
        task.add_done_callback(functools.partial(self._got_there, parcel, line))

    async def _get_there(
        self, parcel: Parcel, before: asyncio.Task[None] | None, avoid: str | None
    ) -> None:
        """Find queue and connection, then ask; the answer is not waited for."""
        try:
            async with asyncio.timeout_at(parcel.deadline):
                if before is not None:
                    await asyncio.wait([before])
                if parcel.at is None:
                    destination = await self._destinations.find(parcel.topic)
                    parcel.at = self._queue_for(parcel, destination, avoid)
                queue = parcel.at
                connection = await self.connection_to(queue)
        except TimeoutError:
            self._failed(parcel, AnswerTimedOut(f"no way to {parcel.topic} was found in time"))
        except Exception as error:  # noqa: BLE001 - a selector is the user's own function
            self._failed(parcel, error)
        else:
            self._ask(parcel, queue, connection)

    def _got_there(self, parcel: Parcel, line: Hashable, task: asyncio.Task[None]) -> None:
        if self._lines.get(line) is task:
            del self._lines[line]
        if task.cancelled():
            self._fail(parcel, NotStarted("the producer was stopped before this was sent"))

    # -- requests and answers --------------------------------------------------------------------

    def _ask(self, parcel: Parcel, queue: MessageQueue, connection: Connection) -> None:
        parcel.asked_at = now = self._loop.time()
        try:
            waiting = connection.ask(
                self.request_for(parcel.topic, parcel.content, queue),
                max(parcel.deadline - now, 0.0),
            )
        except TransportError as error:
            self._failed(parcel, Unreachable(str(error)))
        except ProtocolError as error:
            self._fail(parcel, IllegalArgument(str(error)))
        else:
            waiting.add_done_callback(functools.partial(self._answered, parcel, queue))

    def _answered(
        self, parcel: Parcel, queue: MessageQueue, waiting: asyncio.Future[Command]
    ) -> None:
        try:
            answer = waiting.result()
        except TransportError as error:
            self._failed(parcel, client_error(error))
            return
        status = STATUS_OF_CODE.get(answer.code)
        if status is None:
            self._failed(parcel, error_of(answer.code, answer.remark, queue.broker_name))
            return
        try:
            found = answer.fields(SendAnswer)
        except MalformedFields as error:
            self._failed(parcel, ClientError(f"broker {queue.broker_name}: {error}"))
            return
        self._stored(parcel, found, status, queue)

    def _stored(
        self, parcel: Parcel, answer: SendAnswer, status: SendStatus, queue: MessageQueue
    ) -> None:
        if self._faults is not None:
            self._observe(parcel, self._faults, failed=False)
        if status is not SendStatus.OK and self._retry_unsafe and parcel.elsewhere:
            parcel.unsafe = answer, status, queue
            self._failed(parcel, BrokerError(status.value))
            return
        parcel.succeed(answer, status, queue)
        self._settled(parcel)

    # -- failures --------------------------------------------------------------------------------

    def _failed(self, parcel: Parcel, error: Exception) -> None:
        """Try again, or give up."""
        parcel.tries += 1
        if self._faults is not None and parcel.unsafe is None:
            self._observe(parcel, self._faults, failed=True)
        self._doubt(parcel, error)
        at = parcel.at
        if at is not None and self._may_try_again(parcel, error):
            log.info("%s to %s: %s; trying again", parcel.ids[0], at.broker_name, error)
            if parcel.elsewhere:
                parcel.at = None
            self._send_later(parcel, at, avoid=at.broker_name)
        elif parcel.unsafe is not None:
            parcel.succeed(*parcel.unsafe)
            self._settled(parcel)
        else:
            self._fail(parcel, self._summary(parcel, error))

    def _doubt(self, parcel: Parcel, error: Exception) -> None:
        """Let it be found out beside whether route and connection are still good."""
        if isinstance(error, (Unreachable, ConnectionLost, AnswerTimedOut)) or (
            isinstance(error, BrokerError) and error.code in _ROUTE_IN_DOUBT
        ):
            self._destinations.doubt(parcel.topic)
        if isinstance(error, AnswerTimedOut) and parcel.at is not None:
            address = self._link.routes.address_of(parcel.at.broker_name)
            if address is not None:
                self._link.doubt(address)

    def _may_try_again(self, parcel: Parcel, error: Exception) -> bool:
        if parcel.tries > self._retries or self._loop.time() >= parcel.deadline:
            return False
        if not self._link.is_running:
            return False
        if isinstance(error, (Unreachable, ConnectionLost)):
            return True
        if not parcel.elsewhere:
            return False
        return parcel.unsafe is not None or (
            isinstance(error, BrokerError) and error.code in RETRY_CODES
        )

    def _summary(self, parcel: Parcel, error: Exception) -> Exception:
        if parcel.tries == 1:
            return error
        failed = SendFailed(
            f"{parcel.tries} attempts to send {parcel.ids[0]} to {parcel.topic} failed, "
            f"the last one so: {error}"
        )
        failed.__cause__ = error
        return failed

    def _fail(self, parcel: Parcel, error: Exception) -> None:
        parcel.fail(error)
        self._settled(parcel)

    def _observe(self, parcel: Parcel, faults: LatencyFaults, *, failed: bool) -> None:
        if parcel.at is not None:
            now = self._loop.time()
            latency_ms = (now - parcel.asked_at) * 1000
            faults.observe(parcel.at.broker_name, latency_ms, now * 1000, failed=failed)
