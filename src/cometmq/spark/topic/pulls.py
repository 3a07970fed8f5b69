"""Pulls that bring records as they are, without a message made of each.

The puller is no member of its group: it says with every pull what it wants, and commits nothing.
Requests go out without waiting for the answers to those before.
"""

import asyncio
from typing import Final, NamedTuple

import msgspec

from cometmq.client.errors import NoRoute, TopicNotFound, answers_read, error_of
from cometmq.client.link import Link, transport_errors
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Request
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.names import TOOLS_GROUP
from cometmq.protocol.subscription import ALL, SQL92, TAG
from cometmq.settings import parse_properties
from cometmq.transport.connection import Connection

ANSWER_TIMEOUT_S: Final = 15.0
_SUBSCRIPTION_INSIDE: Final = "4"
_ANSWERS: Final = frozenset({
    ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
})  # fmt: skip


class Pulled(NamedTuple):
    code: int
    records: bytes
    next_offset: int
    min_offset: int
    max_offset: int


class _Answer(msgspec.Struct, rename="camel"):
    next_begin_offset: int
    min_offset: int = 0
    max_offset: int = 0


class Pulls:
    """Pulls from one queue."""

    def __init__(
        self, link: Link, queue: MessageQueue, *, group: str = "", tags: str = "", sql92: str = ""
    ) -> None:
        self._link = link
        self._queue = queue
        self._connection: Connection | None = None
        self._fields = {
            "consumerGroup": group or TOOLS_GROUP,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "sysFlag": _SUBSCRIPTION_INSIDE,
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": sql92 or tags or ALL,
            "subVersion": "0",
            "expressionType": SQL92 if sql92 else TAG,
        }

    async def connect(self) -> None:
        """Have a connection to the queue's broker: the master, or a slave where there is none."""
        if self._connection is not None and self._connection.is_open:
            return
        queue, routes = self._queue, self._link.routes
        try:
            await routes.refresh(queue.topic)
        except TopicNotFound as error:
            # It was there when the read was planned: its broker has signed off.
            raise NoRoute(f"no broker has topic {queue.topic} now") from error
        address = routes.any_address_of(queue.broker_name)
        if address is None:
            raise NoRoute(f"no broker {queue.broker_name} is known now")
        self._connection = await self._link.connection(address)

    async def broker_settings(self) -> dict[str, str]:
        """What the queue's broker says of itself."""
        assert self._connection is not None
        request = self._link.signed(Request(RequestCode.GET_BROKER_CONFIG))
        with transport_errors():
            answer = await self._connection.request(request, ANSWER_TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise error_of(answer.code, answer.remark, self._queue.broker_name)
        return parse_properties(answer.body.decode(errors="replace"))

    def ask(self, offset: int, messages_max: int) -> asyncio.Future[Command]:
        """Ask for messages from an offset on; `answer` reads what comes."""
        assert self._connection is not None
        fields = {**self._fields, "queueOffset": str(offset), "maxMsgNums": str(messages_max)}
        request = self._link.signed(Request(RequestCode.PULL_MESSAGE, fields))
        with transport_errors():
            return self._connection.ask(request, ANSWER_TIMEOUT_S)

    async def answer(self, asked: asyncio.Future[Command]) -> Pulled:
        with transport_errors():
            command = await asked
        if command.code not in _ANSWERS:
            raise error_of(command.code, command.remark, self._queue.broker_name)
        with answers_read():
            told = command.fields(_Answer)
        return Pulled(
            command.code, command.body, told.next_begin_offset, told.min_offset, told.max_offset
        )
