"""Producer: sends messages, alone, in batches, one-way, or as requests that get a reply.

What is reported as stored is stored. What fails may be stored nevertheless, when only the answer
was lost; every attempt carries the same unique id, by which a consumer can tell. Messages with the
same `sharding_key` go to the same queue, and stand there in the order of the calls if each send is
awaited before the next: of several under way at once, one may be tried again behind the others, and
RocketMQ's broker works on one connection's requests in several threads.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, Unpack

from cometmq.clock import Clock, SystemClock
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.heartbeat import Heartbeat, ProducerData
from cometmq.protocol.message_queue import MessageQueue
from cometmq.transport.connection import Handler

from ..cluster import Cluster, cluster_at
from ..consumer.subscriptions import check_group
from ..errors import AnswerTimedOut, IllegalArgument, NotStarted
from ..link import Link
from ..message import Message
from ..received import ReceivedMessage
from ..selectors import Selector
from .choices import choice, fixed
from .options import ProducerKeywords, ProducerOptions
from .outbox import Outbox
from .parcels import Choose
from .recalls import broker_of_handle
from .requests import Requests, reply_to
from .results import SendResult

log = logging.getLogger(__name__)
Callback = Callable[["asyncio.Future[SendResult]"], object]


class Producer:
    """Sends messages to a cluster.

    async with Producer("127.0.0.1:9876", group="orders") as producer:
        await producer.send(Message("topic", b"body"))

    `ProducerOptions` has the other options: by their names, or several together as `options`.
    Ids and times of birth go by `clock`.
    """

    def __init__(
        self,
        cluster: str | Cluster,
        *,
        group: str,
        client_id: str = "",
        clock: Clock | None = None,
        options: ProducerOptions | None = None,
        **more: Unpack[ProducerKeywords],
    ) -> None:
        self.group = check_group(group)
        self.options = dataclasses.replace(options or ProducerOptions(), **more)
        self._clock = clock or SystemClock()
        self._requests = Requests(self.options.max_in_flight)
        self._link = Link(
            cluster_at(cluster),
            client_id=client_id,
            handlers=self._handlers(),
            heartbeat=lambda client_id: Heartbeat(client_id, [ProducerData(self.group)]),
        )
        self._made: Outbox | None = None
        self._stopping = False

    def _handlers(self) -> dict[int, Handler]:
        """For what brokers ask by themselves."""
        return {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._requests.replied}

    # -- life ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Connections are made when they are needed."""
        if self._made is not None:
            raise IllegalArgument("a producer is started once; make a new one")
        self._made = Outbox(self._link, self.group, self.options, self._clock)
        self._link.start()

    async def stop(self) -> None:
        """Send what lingers, wait for answers as long as a send may take, and leave the cluster."""
        if self._made is None or self._stopping:
            return
        self._stopping = True
        try:
            async with asyncio.timeout(self.options.timeout_s):
                await self._made.close()
        except TimeoutError:
            log.warning("%d messages were under way when the producer stopped", self.in_flight)
        await self._link.unregister(producer_group=self.group)
        self._requests.close()
        await self._made.destinations.close()
        await self._link.stop()
        await self._made.in_flight.drained()

    @property
    def client_id(self) -> str:
        return self._link.client_id

    @property
    def in_flight(self) -> int:
        """Messages that linger or wait for their answers."""
        return 0 if self._made is None else self._made.in_flight.messages

    async def flush(self) -> None:
        """Send what lingers, and wait until everything sent so far has its answer or its error."""
        await self._outbox.flush()

    async def ready(self) -> None:
        """Wait until `send_nowait` has room for another message."""
        outbox = self._outbox
        await outbox.take_room(1, 0)
        outbox.in_flight.release(1, 0)

    @property
    def _outbox(self) -> Outbox:
        if self._made is None or self._stopping:
            raise NotStarted("start the producer first: `async with` does, or `await start()`")
        return self._made

    # -- sending ---------------------------------------------------------------------------------

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: object = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send and wait until it is stored; in `queue`, or the one that `selector` picks by `key`.

        Waits for room first if too much is in flight. Raises what the broker answered, SendFailed
        when several attempts failed, or another ClientError.
        """
        outbox = self._outbox
        choose = choice(message, queue, selector, key)
        properties = outbox.checked(message)
        await outbox.take_room(1, len(message.body))
        return await outbox.send(message, properties, choose, timeout_s, elsewhere=choose is None)

    def send_nowait(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: object = None,
        timeout_s: float | None = None,
        callback: Callback | None = None,
    ) -> "asyncio.Future[SendResult]":
        """Send without waiting. TooManyInFlight when there is no room: then `await ready()`.

        The future gets the result or the error; `callback` is called with it when it is done.
        """
        outbox = self._outbox
        choose = choice(message, queue, selector, key)
        properties = outbox.checked(message)
        outbox.in_flight.take_or_raise(1, len(message.body))
        future = outbox.send(message, properties, choose, timeout_s, elsewhere=False)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: object = None,
    ) -> None:
        """Send without an answer: nobody hears of it when it is lost. Waits for the network."""
        outbox = self._outbox
        choose = choice(message, queue, selector, key)
        properties = outbox.checked(message)
        try:
            async with asyncio.timeout(self.options.timeout_s):
                await outbox.send_oneway(message, properties, choose)
        except TimeoutError:
            raise AnswerTimedOut(f"no way to {message.topic} was found in time") from None

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic in one request, to be stored one behind the other.

        `split_batches` makes batches that are small enough out of any number of messages.
        """
        outbox = self._outbox
        gathering = outbox.gathered(messages, queue)
        if queue is not None:
            fixed(queue, gathering.topic)
        return await outbox.send_gathered(gathering, timeout_s)

    # -- requests, replies, recalls --------------------------------------------------------------

    async def request(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: object = None,
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of whoever consumes it (see `reply`)."""
        outbox = self._outbox
        timeout_s = self.options.timeout_s if timeout_s is None else timeout_s
        choose = choice(message, queue, selector, key)
        await self._be_known(message.topic)
        with self._requests.open(timeout_s, self.client_id) as request:
            properties = outbox.checked(message, request.properties)
            await outbox.take_room(1, len(message.body))
            await outbox.send_alone(
                message, properties, choose, timeout_s, elsewhere=choose is None
            )
            return await request.reply()

    async def _be_known(self, topic: str) -> None:
        """A reply may come from any broker of the topic: be connected with each."""
        destinations = self._outbox.destinations
        if destinations.known(topic) is None:
            await destinations.find(topic)
            await self._link.beat()

    async def reply(self, request: ReceivedMessage, body: bytes) -> SendResult:
        """Answer a request that a consumer got; the broker hands it to the one who asked."""
        outbox = self._outbox
        message, more = reply_to(request, body)
        properties = outbox.checked(message, more)
        await outbox.destinations.find(message.topic)
        await outbox.take_room(1, len(body))
        return await outbox.send_alone(
            message, properties, _at_broker(request.queue.broker_name),
            elsewhere=False, code=RequestCode.SEND_REPLY_MESSAGE_V2,
        )  # fmt: skip

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Take a message back that waits for its time; its unique id.

        The handle is in its SendResult. IllegalOperation or NoPermission if it cannot be done.
        """
        outbox, broker = self._outbox, broker_of_handle(recall_handle)
        await outbox.destinations.find(topic)
        fields = {
            "producerGroup": self.group,
            "topic": topic,
            "recallHandle": recall_handle,
            "bname": broker,
        }
        address = await outbox.deliveries.address_of(MessageQueue(topic, broker, 0))
        answer = await self._link.ask(
            address, RequestCode.RECALL_MESSAGE, fields, timeout_s=self.options.timeout_s
        )
        return answer.text_fields().get("msgId", "")


def _at_broker(name: str) -> Choose:
    """The one who asked is connected with the broker that took its request."""

    def choose(queues: Sequence[MessageQueue]) -> MessageQueue:
        return next((queue for queue in queues if queue.broker_name == name), queues[0])

    return choose
