"""Pulls that bring records as they are, without a message made of each.

The puller is no member of its group: it says with every pull what it wants, and commits nothing.
Requests go out without waiting for the answers to those before. A slave may begin later than its
master and end earlier, so only what it has counts: what it lacks is the master's to tell.
"""

import asyncio
import contextlib
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from cometmq.client.errors import (
    AnswerTimedOut,
    BrokerError,
    ClientError,
    NoRoute,
    TopicNotFound,
    answers_read,
    error_of,
)
from cometmq.client.link import Link, transport_errors
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Request
from cometmq.protocol.fastjson import decode_body
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.names import TOOLS_GROUP
from cometmq.protocol.routes import MASTER_ID, ClusterInfo
from cometmq.protocol.subscription import ALL, SQL92, TAG
from cometmq.settings import parse_properties
from cometmq.transport.connection import Connection

ANSWER_TIMEOUT_S: Final = 15.0
_SUBSCRIPTION_INSIDE: Final = "4"
_BAD_QUEUE: Final = (ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR)
_ANSWERS: Final = frozenset({
    ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
})  # fmt: skip


class Pulled(NamedTuple):
    code: int
    records: bytes
    next_offset: int
    min_offset: int
    """Where the queue begins; 0 if a slave says it, which may have less."""
    max_offset: int


class QueueGone(ClientError):
    """The broker is there, and has no such topic or queue any more."""


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
        self._address = ""
        self._is_master: bool | None = None
        """Whether that is the master's; None: its route does not tell."""
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

    async def connect(self) -> bool:
        """Have a connection to the queue's broker: the master, or a slave where there is none.
        True if it is a new one: what was asked before, another one may have answered."""
        if self._connection is not None and self._connection.is_open:
            return False
        self._address, self._is_master = await self._holder()
        self._connection = await self._link.connection(self._address)
        return True

    def look_again(self) -> None:
        """Have the next `connect` ask who has the queue by then."""
        self._connection = None

    async def broker_settings(self) -> dict[str, str]:
        """What the queue's broker says of itself."""
        assert self._connection is not None
        request = self._link.signed(Request(RequestCode.GET_BROKER_CONFIG))
        with self._hanging_up():
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
        with self._hanging_up():
            command = await asked
        if command.code not in _ANSWERS:
            raise await self._refusal(command)
        with answers_read():
            told = command.fields(_Answer)
        # Also where it says to go on elsewhere: slaves that are not to be read pass messages over.
        if not command.body and not await self._is_at_master():
            raise self._lacking()
        begin = 0 if self._is_master is False else told.min_offset
        return Pulled(command.code, command.body, told.next_begin_offset, begin, told.max_offset)

    @contextlib.contextmanager
    def _hanging_up(self) -> Iterator[None]:
        """On a broker that is silent: a new connection may still reach it, and TCP alone might need
        a quarter of an hour to notice."""
        try:
            with transport_errors():
                yield
        except AnswerTimedOut:
            if self._connection is not None:
                self._connection.abort()
            raise

    # -- who answers -----------------------------------------------------------------------------

    async def _holder(self) -> tuple[str, bool | None]:
        """The address of who has the queue, and whether that is the master."""
        name = self._queue.broker_name
        try:
            route = await self._link.routes.refresh(self._queue.topic)
        except TopicNotFound:
            return await self._former_holder(), True
        addresses = route.brokers.get(name, {})
        if not addresses:
            return await self._former_holder(), True
        is_master: bool | None = MASTER_ID in addresses
        if is_master and not any(queue.broker_name == name for queue in route.write_queues):
            # A slave that stands in for its master is shown as one, without leave to write.
            is_master = None
        return addresses[min(addresses)], is_master

    async def _former_holder(self) -> str:
        """The master of a topic that was there when the read was planned. If it is there itself, it
        knows whether the topic is."""
        address = await self._registered_master()
        if address is None:
            raise NoRoute(f"no broker {self._queue.broker_name} is known now")
        return address

    async def _is_at_master(self) -> bool:
        if self._is_master is None:
            self._is_master = await self._registered_master() == self._address
        return self._is_master

    async def _registered_master(self) -> str | None:
        """By the list of brokers, which shows no stand-in as a master."""
        answer = await self._link.ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO)
        with answers_read():
            info = decode_body(answer.body, ClusterInfo, "cluster info")
        data = info.broker_addr_table.get(self._queue.broker_name)
        return None if data is None else data.broker_addrs.get(MASTER_ID)

    async def _refusal(self, command: Command) -> ClientError:
        error = error_of(command.code, command.remark, self._queue.broker_name)
        if not _is_gone(error):
            return error
        return QueueGone(str(error)) if await self._is_at_master() else self._lacking()

    def _lacking(self) -> NoRoute:
        name = self._queue.broker_name
        return NoRoute(f"the master of broker {name} is away, and its slave has nothing there")


def _is_gone(error: BrokerError) -> bool:
    """Whether a broker says that it has no such topic or queue. Those before 5.0 have one code for
    all that is wrong."""
    if isinstance(error, TopicNotFound):
        return True
    return error.code in _BAD_QUEUE and bool(re.search(r"queueId\[.*is illegal", error.remark))
