"""Request and reply: a message with the name of the one who asks, and the reply that finds it.

A broker hands a reply to the asking client over its own connection. At most so many requests wait
for replies at once as messages may be in flight. A reply that nobody waits for any more is dropped.
"""

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Iterator

import msgspec

from cometmq.protocol.command import Command, Response
from cometmq.protocol.host import pack_host
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.numbers import Int32, Int64
from cometmq.protocol.properties import with_property
from cometmq.transport.connection import Connection
from cometmq.transport.dial import split_address

from ..errors import AnswerTimedOut, IllegalArgument, NotStarted, TooManyInFlight
from ..message import Message
from ..received import ReceivedMessage

log = logging.getLogger(__name__)
CORRELATION_ID = "CORRELATION_ID"
ASKER = "REPLY_TO_CLIENT"
TTL = "TTL"
KIND = "MSG_TYPE"
REPLY = "reply"
CLUSTER = "CLUSTER"
_ARRIVED = b"ARRIVE_TIME"


class ReplyFields(msgspec.Struct, gc=False, rename="camel"):
    """The header of PUSH_REPLY_MESSAGE_TO_CLIENT."""

    topic: str
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str = ""
    reconsume_times: Int32 = 0


class Requests:
    def __init__(self, requests_max: int) -> None:
        self._requests_max = requests_max
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}

    @contextlib.contextmanager
    def open(self, timeout_s: float, client_id: str) -> Iterator["Request"]:
        """A request, as long as its reply is waited for."""
        if len(self._waiting) >= self._requests_max:
            raise TooManyInFlight(f"{len(self._waiting)} requests wait for their replies")
        request = Request(uuid.uuid4().hex, client_id, timeout_s)
        self._waiting[request.correlation_id] = request.replied
        try:
            yield request
        finally:
            del self._waiting[request.correlation_id]
            request.replied.cancel()

    def replied(self, _: Connection, command: Command) -> Response:
        """A broker hands over a reply."""
        message = _message_of(command)
        correlation_id = message.properties.get(CORRELATION_ID, "")
        waiting = self._waiting.get(correlation_id)
        if waiting is None or waiting.done():
            log.warning("nobody waits for the reply to %s any more", correlation_id)
        else:
            waiting.set_result(message)
        return Response()

    def close(self) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(NotStarted("the producer was stopped"))


class Request:
    """One that was or will be sent, and the future of its reply."""

    def __init__(self, correlation_id: str, client_id: str, timeout_s: float) -> None:
        self.correlation_id = correlation_id
        self.properties = {
            CORRELATION_ID: correlation_id,
            ASKER: client_id,
            TTL: str(round(timeout_s * 1000)),
        }
        self._timeout_s = timeout_s
        self._until = asyncio.get_running_loop().time() + timeout_s
        self.replied: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()

    async def reply(self) -> ReceivedMessage:
        try:
            async with asyncio.timeout_at(self._until):
                return await self.replied
        except TimeoutError:
            raise AnswerTimedOut(
                f"no reply within {self._timeout_s:g} s: does a consumer of that topic reply?"
            ) from None


def reply_to(request: ReceivedMessage, body: bytes) -> tuple[Message, dict[str, str]]:
    """The reply as a message, and the properties that lead it to the one who asked."""
    asked = request.properties
    missing = [name for name in (CLUSTER, CORRELATION_ID, ASKER) if not asked.get(name)]
    if missing:
        raise IllegalArgument(f"not a request: the message has no {', '.join(missing)}")
    more = {name: asked[name] for name in (CORRELATION_ID, ASKER, TTL) if asked.get(name)}
    return Message(f"{asked[CLUSTER]}_REPLY_TOPIC", body), {KIND: REPLY, **more}


def _message_of(command: Command) -> ReceivedMessage:
    fields = command.fields(ReplyFields)
    now_ms = time.time_ns() // 1_000_000
    return ReceivedMessage(
        topic=fields.topic,
        queue=MessageQueue(fields.topic, "", fields.queue_id),
        queue_offset=0,
        physical_offset=0,
        reconsume_times=fields.reconsume_times,
        born_timestamp=fields.born_timestamp,
        store_timestamp=fields.store_timestamp,
        flag=fields.flag,
        sys_flag=fields.sys_flag,
        stored_body=command.body,
        encoded_properties=with_property(fields.properties.encode(), _ARRIVED, b"%d" % now_ms),
        packed_born_host=_packed(fields.born_host),
        packed_store_host=_packed(fields.store_host),
    )


def _packed(host: str) -> bytes:
    ip, port = split_address(host.lstrip("/"))
    return pack_host(ip, port)
