"""What a topic holds, seen past the client under test; and brokers that answer as they are told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import msgspec

from cometmq.client.received import ReceivedMessage, decode_messages
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Command, Request, Response
from cometmq.protocol.routes import BrokerData, QueueData, TopicRoute
from cometmq.testing import EmbeddedBroker
from cometmq.transport.connection import Connection
from cometmq.transport.dial import connect
from cometmq.transport.server import Server

WAIT_S: Final = 10.0
POLL_S: Final = 0.005
_SUBSCRIPTION: Final = 4
_SEND_CODES: Final = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)

Answer = Response | None | Awaitable[Response | None]


async def until(fact: Callable[[], object], timeout_s: float = WAIT_S) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(timeout_s):
        while not fact():
            await asyncio.sleep(POLL_S)


async def stored(address: str, topic: str, queue_id: int = 0) -> list[ReceivedMessage]:
    """All messages of a queue, as the broker at an address has them."""
    connection = await connect(address)
    found: list[ReceivedMessage] = []
    try:
        while True:
            answer = await connection.request(_pull(topic, queue_id, len(found)), WAIT_S)
            if answer.code != 0:
                return found
            found += decode_messages(answer.body, "")
    finally:
        connection.close()
        await until(lambda: not connection.is_open)


async def stored_anywhere(
    broker: EmbeddedBroker, topic: str, queues: int = 4
) -> list[ReceivedMessage]:
    """All messages of a topic, broker by broker and queue by queue."""
    return [
        message
        for address in broker.addresses
        for queue_id in range(queues)
        for message in await stored(address, topic, queue_id)
    ]


async def arrived(address: str, topic: str, count: int, queue_id: int = 0) -> list[ReceivedMessage]:
    """The messages of a queue as soon as there are so many."""
    async with asyncio.timeout(WAIT_S):
        while len(found := await stored(address, topic, queue_id)) < count:
            await asyncio.sleep(POLL_S)
    return found


def _pull(topic: str, queue_id: int, offset: int) -> Request:
    fields = {
        "consumerGroup": "onlookers", "topic": topic, "queueId": str(queue_id),
        "queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": str(_SUBSCRIPTION),
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "1",
        "expressionType": "TAG",
    }  # fmt: skip
    return Request(RequestCode.PULL_MESSAGE, fields)


class ScriptedCluster:
    """Brokers whose answers to sends a test decides; one of them is the NameServer, too.

    `answer` is called with the broker's name and the request. `sends` has what came.
    """

    def __init__(self, brokers: int, queues: int) -> None:
        self.names = [f"broker-{letter}" for letter in "abcdefgh"[:brokers]]
        self.queues = queues
        self.answer: Callable[[str, Command], Answer] = self.ok
        self.sends: list[tuple[str, Command]] = []
        self.heartbeats: list[str] = []
        self.welcome = Response()
        """The answer to heartbeats."""
        self.routes_asked = 0
        self.unknown_topics: set[str] = set()
        self.in_route = list(self.names)
        self._addresses: dict[str, str] = {}
        self._server = Server({
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: lambda *_: Response(),
            **dict.fromkeys(_SEND_CODES, self._send),
        })  # fmt: skip

    @property
    def namesrv(self) -> str:
        return self._addresses[self.names[0]]

    async def start(self) -> None:
        for name in self.names:
            self._addresses[name] = str(await self._server.listen("127.0.0.1", 0))

    async def stop(self) -> None:
        await self._server.stop(grace_s=0)

    def hang_up(self) -> None:
        """End all connections, as a broker does that dies."""
        for connection in list(self._server.connections):
            connection.abort()

    def ok(self, name: str, command: Command, **fields: str) -> Response:
        queue_id = command.text_fields()["e"]
        return Response(
            fields={"msgId": "0" * 32, "queueId": queue_id, "queueOffset": "0", **fields}
        )

    def sent_to(self) -> list[str]:
        return [name for name, _ in self.sends]

    def _route(self, _: Connection, command: Command) -> Response:
        self.routes_asked += 1
        if command.text_fields()["topic"] in self.unknown_topics:
            return Response(17, "no route")
        route = TopicRoute(
            [BrokerData({0: self._addresses[name]}, name, "C") for name in self.in_route],
            queue_datas=[QueueData(name, 6, self.queues, 0, self.queues) for name in self.in_route],
        )
        return Response(body=msgspec.json.encode(route))

    def _heartbeat(self, connection: Connection, _: Command) -> Response:
        self.heartbeats.append(self._name(connection))
        return self.welcome

    def _send(self, connection: Connection, command: Command) -> Any:
        name = self._name(connection)
        self.sends.append((name, command))
        return self.answer(name, command)

    def _name(self, connection: Connection) -> str:
        local = str(connection.local)
        return next(name for name, address in self._addresses.items() if address == local)


@contextlib.asynccontextmanager
async def scripted(brokers: int = 1, queues: int = 1) -> AsyncIterator[ScriptedCluster]:
    cluster = ScriptedCluster(brokers, queues)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()
