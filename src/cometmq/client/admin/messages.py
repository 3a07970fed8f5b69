"""Messages by id, by key, by place; all of a queue or a topic; handing one to one consumer.

Reading is by the tools' own group and commits nothing.
"""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command
from cometmq.protocol.errors import ProtocolError
from cometmq.protocol.message_id import parse_offset_id
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.properties import KEY_SEPARATOR, KEYS
from cometmq.protocol.subscription import ALL

from ..errors import BadAnswer, IllegalArgument, NotFound
from ..link import SUCCESS
from ..received import ReceivedMessage
from .moments import Moment, milliseconds
from .offsets import EARLIEST, Offsets
from .pulling import PULLED_OR_NOT, pull_fields
from .reach import RELAY_TIMEOUT_S, BrokerNode, Reach, decoded, messages_in
from .traces import TRACE_TOPIC, Trace, traces_in

RESULTS_MAX = 64
"""Of a search by key at one broker; brokers find no more at once."""
_PULLED_AT_ONCE = 32
HELD_S = 15.0
"""For so long a broker holds a pull until a message comes."""
_TIME_MAX = 2**63 - 1
_INDEX_STEP_MS = 1000
"""The index of a broker has times in whole seconds, rounded down."""
_FOUND_OR_NOT = SUCCESS | {int(ResponseCode.QUERY_NOT_FOUND)}


class Consumed(msgspec.Struct, frozen=True, rename="camel"):
    """What a consumer made of a message that it was handed."""

    consume_result: str
    """CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION or CR_RETURN_NULL."""
    order: bool = False
    auto_commit: bool = True
    remark: str | None = None
    spent_time_mills: int = 0


class Messages:
    def __init__(self, reach: Reach, offsets: Offsets) -> None:
        self._reach = reach
        self._offsets = offsets

    # -- one -------------------------------------------------------------------------------------

    async def view(self, offset_message_id: str, *, topic: str = "") -> ReceivedMessage:
        """The message at a place, which the id tells together with its broker."""
        node, offset = await self._place(offset_message_id)
        fields = {"topic": topic or None, "offset": offset}
        answer = await self._reach.ask(node, RequestCode.VIEW_MESSAGE_BY_ID, fields)
        return _only(messages_in(answer, node), offset_message_id)

    async def at(self, queue: MessageQueue, offset: int) -> ReceivedMessage:
        """The message at an offset of a queue; NotFound when there is none."""
        node = await self._reach.holder(queue)
        answer = await self._pull(node, queue, offset, 1)
        found = messages_in(answer, node) if answer.code == ResponseCode.SUCCESS else []
        return _only((m for m in found if m.queue_offset == offset), f"offset {offset} of {queue}")

    # -- searches --------------------------------------------------------------------------------

    async def by_id(self, topic: str, message_id: str) -> list[ReceivedMessage]:
        """The messages of a topic with this unique id, oldest first. What was sent again after an
        answer that never came is there twice."""
        nodes = await self._reach.holders(topic)
        return await found_by_id(self._reach, nodes, topic, message_id)

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        begin: Moment = 0,
        end: Moment = _TIME_MAX,
        limit: int = RESULTS_MAX,
    ) -> list[ReceivedMessage]:
        """The messages of a topic with this key that were stored from `begin` on and before `end`,
        oldest first; of each broker the newest, up to the limit."""
        if not 1 <= limit <= RESULTS_MAX:
            raise IllegalArgument(f"limit {limit}: 1 to {RESULTS_MAX} is expected")
        begin_ms, end_ms = milliseconds(begin), milliseconds(end)
        since_ms = max(0, begin_ms - _INDEX_STEP_MS)
        nodes = await self._reach.holders(topic)
        found = await _found(self._reach, nodes, topic, key, since_ms, end_ms, limit, unique=False)
        # A broker finds them by a hash of the key.
        return [
            message
            for message in found
            if begin_ms <= message.store_timestamp < end_ms and key in _keys_of(message)
        ]

    async def trace(self, message_id: str, *, trace_topic: str = TRACE_TOPIC) -> list[Trace]:
        """What producers and consumers that trace have reported about a message, in order."""
        reports = await self.by_key(trace_topic, message_id)
        found = [trace for report in reports for trace in traces_in(report.body)]
        of_it = [trace for trace in found if trace.message_id == message_id]
        return sorted(of_it, key=lambda trace: trace.timestamp)

    # -- many ------------------------------------------------------------------------------------

    async def read(
        self,
        queue: MessageQueue,
        *,
        start: int | None = None,
        stop: int | None = None,
        tags: str = ALL,
    ) -> AsyncGenerator[ReceivedMessage, None]:
        """The messages of a queue from offset `start` up to but not including `stop`; without
        them, all that are there now."""
        node = await self._reach.holder(queue)
        at = await self._offsets.min(queue) if start is None else start
        end = await self._offsets.max(queue)
        end = end if stop is None else min(stop, end)
        while at < end:
            answer = await self._pull(node, queue, at, min(_PULLED_AT_ONCE, end - at), tags)
            if answer.code == ResponseCode.PULL_NOT_FOUND:
                return
            if answer.code == ResponseCode.SUCCESS:
                for message in messages_in(answer, node):
                    if at <= message.queue_offset < end:
                        yield message
            following = _next_offset(answer)
            if following <= at:  # It would be asked for the same again and again.
                raise BadAnswer(f"{queue} goes on at {following} after {at}, says {node.address}")
            at = following

    async def follow(
        self, queue: MessageQueue, *, start: int, tags: str = ALL
    ) -> AsyncGenerator[ReceivedMessage, None]:
        """The messages of a queue from offset `start` on, as they come, without end. Raises when
        the broker is away; who wants to go on follows from the next offset."""
        at = start
        while True:
            # Held for long, it would take the turn of others.
            node = await self._reach.holder(queue)
            answer = await self._reach.link.ask(
                node.address,
                RequestCode.PULL_MESSAGE,
                pull_fields(queue, at, _PULLED_AT_ONCE, tags=tags, held_s=HELD_S),
                timeout_s=HELD_S + self._reach.link.cluster.request_timeout_s,
                accept=PULLED_OR_NOT,
            )
            if answer.code == ResponseCode.SUCCESS:
                for message in messages_in(answer, node):
                    yield message
            at = _next_offset(answer)

    async def read_topic(
        self,
        topic: str,
        *,
        begin: Moment | None = None,
        end: Moment | None = None,
        tags: str = ALL,
    ) -> AsyncGenerator[ReceivedMessage, None]:
        """The messages of a topic, queue by queue: those stored from `begin` on and before `end`;
        without them, all that are there now."""
        first_ms = 0 if begin is None else milliseconds(begin)
        last_ms = _TIME_MAX if end is None else milliseconds(end)
        starts = await self._offsets.search_topic(topic, EARLIEST if begin is None else first_ms)
        for queue, start in starts.items():
            async with aclosing(self.read(queue, start=start, tags=tags)) as messages:
                async for message in messages:
                    if message.store_timestamp >= last_ms:
                        break
                    if message.store_timestamp >= first_ms:
                        yield message

    # -- handing over ----------------------------------------------------------------------------

    async def consume_directly(
        self, group: str, client_id: str, offset_message_id: str, *, topic: str = ""
    ) -> Consumed:
        """Have one member of a group consume a message now, whatever its place in the queue."""
        node, _ = await self._place(offset_message_id)
        fields = {
            "consumerGroup": group, "clientId": client_id, "msgId": offset_message_id,
            "topic": topic or None,
        }  # fmt: skip
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        answer = await self._reach.ask(node, code, fields, timeout_s=RELAY_TIMEOUT_S)
        return decoded(answer, Consumed, "result")

    # -- parts -----------------------------------------------------------------------------------

    async def _place(self, offset_message_id: str) -> tuple[BrokerNode, int]:
        try:
            host, offset = parse_offset_id(offset_message_id)
        except ProtocolError as error:
            raise IllegalArgument(f"{error}; a unique id is looked up by `by_id`") from None
        for node in await self._reach.nodes():
            if node.address == str(host):
                return node, offset
        return BrokerNode("", "", 0, str(host)), offset

    async def _pull(
        self, node: BrokerNode, queue: MessageQueue, offset: int, count: int, tags: str = ALL
    ) -> Command:
        fields = pull_fields(queue, offset, count, tags=tags)
        return await self._reach.ask(node, RequestCode.PULL_MESSAGE, fields, accept=PULLED_OR_NOT)


async def found_by_id(
    reach: Reach, nodes: Iterable[BrokerNode], topic: str, message_id: str
) -> list[ReceivedMessage]:
    """As `Messages.by_id`, at these brokers."""
    found = await _found(reach, nodes, topic, message_id, 0, _TIME_MAX, RESULTS_MAX, unique=True)
    return [message for message in found if message.message_id == message_id]


async def _found(
    reach: Reach,
    nodes: Iterable[BrokerNode],
    topic: str,
    key: str,
    begin_ms: int,
    end_ms: int,
    limit: int,
    *,
    unique: bool,
) -> list[ReceivedMessage]:
    fields = {
        "topic": topic, "key": key, "maxNum": limit, "beginTimestamp": begin_ms,
        "endTimestamp": end_ms, "_UNIQUE_KEY_QUERY": unique,
    }  # fmt: skip
    answers = await reach.ask_each(nodes, RequestCode.QUERY_MESSAGE, fields, accept=_FOUND_OR_NOT)
    found = [
        message
        for node, answer in answers
        if answer.code == ResponseCode.SUCCESS
        for message in messages_in(answer, node)
    ]
    return sorted(found, key=lambda message: message.store_timestamp)


def _keys_of(message: ReceivedMessage) -> list[str]:
    return message.properties.get(KEYS, "").split(KEY_SEPARATOR)


def _only(found: Iterable[ReceivedMessage], wanted: str) -> ReceivedMessage:
    for message in found:
        return message
    raise NotFound(f"there is no message {wanted}")


def _next_offset(answer: Command) -> int:
    try:
        return int(answer.text_fields()["nextBeginOffset"])
    except (KeyError, ValueError) as error:
        raise BadAnswer(f"a pull's answer without its next offset: {error}") from None
