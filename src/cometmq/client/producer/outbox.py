"""From a message to a parcel: checks, unique id, properties, packing, room, and the way out.

Whoever takes a message in here has taken room for it; the room is released when its parcel is
settled. Messages that may linger leave together with others; the rest leave at once.
"""

import asyncio
from collections.abc import Mapping, Sequence

from cometmq.clock import Clock
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.flags import TRANSACTION_PREPARED
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.names import RETRY_PREFIX

from ..errors import IllegalArgument
from ..latency import LatencyFaults
from ..link import Link
from ..message import Message, check_message, encode_sent, with_unique_id
from .batching import Gathering, Lingering, bytes_in_batch, check_batch
from .deliveries import Deliveries
from .destinations import Destinations
from .in_flight import InFlight
from .message_ids import unique_ids
from .options import ProducerOptions
from .packing import Packing
from .parcels import Choose, Content, Parcel, always
from .results import SendResult

_NOTHING: Mapping[str, str] = {}


class Outbox:
    """Made inside the loop that it works in."""

    def __init__(self, link: Link, group: str, options: ProducerOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._max_message_bytes = options.max_message_bytes
        self._ids = unique_ids()
        self._loop = asyncio.get_running_loop()
        self._packing = Packing(options.compression, options.compress_over, options.compress_level)
        self.in_flight = InFlight(options.max_in_flight, options.max_in_flight_bytes)
        self.destinations = Destinations(link, options.default_topic_queues)
        self.deliveries = Deliveries(
            link,
            self.destinations,
            self._settled,
            group=group,
            default_topic_queues=options.default_topic_queues,
            retries=options.retries,
            retry_unsafe=options.retry_another_broker_when_not_stored,
            faults=LatencyFaults() if options.send_latency_fault else None,
        )
        self._open: set[Parcel] = set()
        """On their way; no more than there are messages in flight."""
        self._lingering = self._make_lingering() if options.linger_s > 0 else None

    def _make_lingering(self) -> Lingering:
        options = self._options
        return Lingering(
            self._leave,
            linger_s=options.linger_s,
            bytes_max=options.batch_bytes_max,
            messages_max=options.batch_messages_max,
        )

    async def flush(self) -> None:
        """Send what lingers, and wait until everything sent so far has its answer or its error."""
        self._flush_lingering()
        futures = [future for parcel in self._open for future in parcel.futures]
        if futures:
            await asyncio.wait(futures)

    async def close(self) -> None:
        """Let nothing linger any more, and wait until all that came in is settled."""
        self._flush_lingering()
        self._lingering = None
        await self.in_flight.drained()

    def _flush_lingering(self) -> None:
        if self._lingering is not None:
            self._lingering.flush()

    async def take_room(self, messages: int, size: int) -> None:
        """Wait for room. As long as there is none, nobody can join what lingers: let it go."""
        if not self.in_flight.take(messages, size):
            self._flush_lingering()
            await self.in_flight.take_when_free(messages, size)

    def checked(self, message: Message, more: Mapping[str, str] = _NOTHING) -> str:
        """The properties of a message that may be sent, with `more` that the client adds.

        IllegalArgument if it may not.
        """
        check_message(message, self._max_message_bytes)
        return encode_sent(message, self._clock, more)

    # -- together with others --------------------------------------------------------------------

    def send(
        self,
        message: Message,
        properties: str,
        choose: Choose | None,
        timeout_s: float | None,
        *,
        elsewhere: bool,
    ) -> "asyncio.Future[SendResult]":
        """Send a message, together with others if it may linger."""
        lingering = self._lingering
        if lingering is None:
            return self.send_alone(message, properties, choose, timeout_s, elsewhere=elsewhere)
        queue = None
        if choose is not None:
            destination = self.destinations.known(message.topic)
            if destination is None:
                return self.send_alone(message, properties, choose, timeout_s, elsewhere=False)
            try:
                queue = choose(destination.queues)
            except Exception as error:  # noqa: BLE001 - a selector is the user's own function
                return self._refused(message, error)
            choose = always(queue)
        if timeout_s is None and self._may_linger(message):
            future: asyncio.Future[SendResult] = self._loop.create_future()
            if lingering.add(message, queue, properties, future):
                return future
        if queue is not None:
            lingering.flush_queue(queue)  # They came first.
        return self.send_alone(message, properties, choose, timeout_s, elsewhere=elsewhere)

    def _refused(self, message: Message, error: Exception) -> "asyncio.Future[SendResult]":
        self.in_flight.release(1, len(message.body))
        future: asyncio.Future[SendResult] = self._loop.create_future()
        future.set_exception(error)
        return future

    def _may_linger(self, message: Message) -> bool:
        return not (
            len(message.body) >= self._packing.over_bytes
            or message.is_delayed
            or message.topic.startswith(RETRY_PREFIX)
        )

    def _leave(self, gathering: Gathering) -> None:
        self._dispatch(self._parcel_of(gathering, None))

    def _parcel_of(self, gathering: Gathering, timeout_s: float | None) -> Parcel:
        now_ms = self._clock.now_ms()
        ids = self._ids.make_several(now_ms, len(gathering.bodies))
        return gathering.parcel(ids, now_ms, self._deadline(timeout_s))

    def gathered(self, messages: Sequence[Message], queue: MessageQueue | None) -> Gathering:
        """A batch that its sender made. IllegalArgument if it is none."""
        check_batch(messages)
        first = messages[0]
        gathering = Gathering(first.topic, queue, first.wait_store)
        for message in messages:
            properties = self.checked(message)
            takes = bytes_in_batch(message.body, properties)
            gathering.add(message, properties, takes, self._loop.create_future())
        if gathering.encoded_bytes > self._max_message_bytes:
            raise IllegalArgument(
                f"a batch of {gathering.encoded_bytes} bytes; {self._max_message_bytes} "
                "are possible: `split_batches` makes several out of it"
            )
        return gathering

    async def send_gathered(
        self, gathering: Gathering, timeout_s: float | None
    ) -> list[SendResult]:
        await self.take_room(len(gathering.bodies), gathering.size)
        self._dispatch(self._parcel_of(gathering, timeout_s))
        return list(await asyncio.gather(*gathering.futures))

    # -- alone -----------------------------------------------------------------------------------

    def send_alone(
        self,
        message: Message,
        properties: str,
        choose: Choose | None,
        timeout_s: float | None = None,
        *,
        elsewhere: bool,
        code: int = RequestCode.SEND_MESSAGE_V2,
        is_half: bool = False,
    ) -> "asyncio.Future[SendResult]":
        future: asyncio.Future[SendResult] = self._loop.create_future()
        unique_id, content = self._content(message, properties, code=code, is_half=is_half)
        parcel = Parcel(
            message.topic, content, [unique_id], [future], len(message.body),
            self._deadline(timeout_s), choose=choose, elsewhere=elsewhere,
        )  # fmt: skip
        self._dispatch(parcel)
        return future

    async def send_oneway(self, message: Message, properties: str, choose: Choose | None) -> None:
        """Without an answer: it takes no room, but waits until the connection takes more."""
        destination = await self.destinations.find(message.topic)
        queues = destination.queues
        queue = destination.turn.next(queues) if choose is None else choose(queues)
        connection = await self.deliveries.connection_to(queue)
        await connection.writable()
        _, content = self._content(message, properties)
        connection.tell(self.deliveries.request_for(message.topic, content, queue))

    def _content(
        self,
        message: Message,
        properties: str,
        *,
        code: int = RequestCode.SEND_MESSAGE_V2,
        is_half: bool = False,
    ) -> tuple[str, Content]:
        """What a request says of it, and the unique id that it gets: once for all attempts."""
        now_ms = self._clock.now_ms()
        unique_id = self._ids.make(now_ms)
        properties = with_unique_id(unique_id, properties)
        body, sys_flag = self._packing.packed(message.body)
        if is_half:
            sys_flag |= TRANSACTION_PREPARED
        return unique_id, Content(code, properties, body, sys_flag, message.flag, now_ms)

    def _deadline(self, timeout_s: float | None) -> float:
        return self._loop.time() + (self._options.timeout_s if timeout_s is None else timeout_s)

    def _dispatch(self, parcel: Parcel) -> None:
        self._open.add(parcel)
        self.deliveries.send(parcel)

    def _settled(self, parcel: Parcel) -> None:
        self._open.discard(parcel)
        self.in_flight.release(len(parcel.ids), parcel.size)
