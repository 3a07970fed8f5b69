"""A broker on a free port inside the test's own loop, and a client that speaks bare requests.

Settings go by RocketMQ's keys. Files are small, so that a few messages cross every boundary.
"""

import asyncio
import contextlib
import errno
import functools
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, ParamSpec

import msgspec

from cometmq.broker.broker import Broker
from cometmq.broker.config import load
from cometmq.broker.context import Context
from cometmq.clock import Clock
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Command, HeaderKind, Request, Response, encode_response
from cometmq.protocol.message import StoredMessage
from cometmq.protocol.properties import encode_properties
from cometmq.protocol.record import iter_records
from cometmq.protocol.subscription import tag_subscription
from cometmq.store.disk import Disk
from cometmq.transport.connection import Connection, Handler
from cometmq.transport.dial import connect
from cometmq.transport.loop import run
from tests.left_open import nothing_left_open

TEST_TIMEOUT_S: Final = 60.0
ASK_TIMEOUT_S: Final = 20.0
POLL_S: Final = 0.005
TOPIC, GROUP = "orders", "billing"
BORN_MS: Final = 1_700_000_000_000

# Flags of a pull.
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4

Parameters = ParamSpec("Parameters")


def bounded(test: Callable[Parameters, Coroutine[Any, Any, None]]) -> Callable[Parameters, None]:
    """Runs a coroutine test on the loop that servers use, within a time limit. What a callback
    raises and nobody sees fails the test too, and so does what it leaves open."""

    @functools.wraps(test)
    def bounded_test(*arguments: Parameters.args, **fixtures: Parameters.kwargs) -> None:
        unseen: list[dict[str, Any]] = []

        async def watched() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: unseen.append(context))
            try:
                await asyncio.wait_for(test(*arguments, **fixtures), TEST_TIMEOUT_S)
            finally:
                await _hang_up()

        with nothing_left_open():
            run(watched())
        assert unseen == []

    return bounded_test


async def _hang_up() -> None:
    """End all connections that a test left open."""
    connections = [client.connection for client in Client.connected]
    Client.connected.clear()
    for connection in connections:
        connection.abort()
    await until(lambda: not any(connection.is_open for connection in connections))
    await asyncio.sleep(0)  # And the loop lets go of their sockets.


async def until(fact: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(timeout_s):
        while not fact():
            await asyncio.sleep(POLL_S)


def settings_of(root: Path, **settings: Any) -> dict[str, Any]:
    return {
        "storePathRootDir": root,
        "listenPort": 0,
        "mappedFileSizeCommitLog": 1024**2,
        "mappedFileSizeConsumeQueue": 20 * 1000,
        "maxHashSlotNum": 1000,
        "maxIndexNum": 5000,
        **settings,
    }


def broker_of(
    root: Path,
    *,
    clock: Clock | None = None,
    disk: Disk | None = None,
    more: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Broker:
    """A broker that has not started. `more` has the settings whose keys are no Python names."""
    config, store_config, _ = load(settings_of(root, **settings) | dict(more or {}))
    return Broker(config, store_config, clock=clock, disk=disk)


@contextlib.asynccontextmanager
async def serving(root: Path, **how: Any) -> AsyncIterator[Broker]:
    broker = broker_of(root, **how)
    await broker.start()
    try:
        yield broker
    finally:
        if isinstance(how.get("disk"), HeldDisk):
            how["disk"].let_go()
        await broker.stop()


class HeldDisk(Disk):
    """A disk whose syncs end only when they are let go."""

    def __init__(self) -> None:
        self._free = threading.Event()
        self._free.set()

    def hold(self) -> None:
        self._free.clear()

    def let_go(self) -> None:
        self._free.set()

    def sync(self, path: Path, fd: int) -> None:
        assert self._free.wait(TEST_TIMEOUT_S)
        super().sync(path, fd)


class FullDisk(Disk):
    """A disk without space for another file, or over a mark, as long as it is told so."""

    def __init__(self) -> None:
        self.full = False
        self.percent = 10.0

    def create(self, path: Path, size: int, reserved: int) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return super().create(path, size, reserved)

    def used_percent(self, path: Path) -> float:
        return self.percent


def context_of(broker: Broker) -> Context:
    return broker.parts.context


class Client:
    """One connection of a producer or consumer. `notices` has what the broker told by itself."""

    connected: ClassVar[list["Client"]] = []

    def __init__(self) -> None:
        self.notices: asyncio.Queue[Command] = asyncio.Queue()
        self._connection: Connection | None = None

    @classmethod
    async def to(cls, where: Broker | str, **how: Any) -> "Client":
        client = cls()
        address = where if isinstance(where, str) else str(where.address)
        handlers: dict[int, Handler] = {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: client._noticed}
        client._connection = await connect(address, handlers, **how)
        cls.connected.append(client)
        return client

    @property
    def connection(self) -> Connection:
        assert self._connection is not None
        return self._connection

    def _noticed(self, _: Connection, command: Command) -> None:
        self.notices.put_nowait(command)

    def close(self) -> None:
        self.connection.close()

    async def ask(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes | object = b""
    ) -> Command:
        """The answer to a request; a body that is no bytes goes as JSON."""
        return await self.connection.request(request_of(code, fields, body), ASK_TIMEOUT_S)

    def tell(self, code: int, fields: Mapping[str, object], body: bytes | object = b"") -> None:
        self.connection.tell(request_of(code, fields, body))

    # -- what clients do all day -------------------------------------------------------------------

    async def send(
        self,
        topic: str = TOPIC,
        body: bytes = b"hello",
        *,
        queue_id: int = 0,
        properties: Mapping[str, str] | None = None,
        **changes: Any,
    ) -> Command:
        return await self.ask(310, send_fields(topic, queue_id, properties, **changes), body)

    async def pull(
        self,
        topic: str = TOPIC,
        queue_id: int = 0,
        offset: int = 0,
        *,
        group: str = GROUP,
        flag: int = SUBSCRIPTION,
        **changes: Any,
    ) -> Command:
        return await self.ask(11, pull_fields(topic, queue_id, offset, group, flag, **changes))

    async def pulled(self, topic: str, queue_id: int = 0, offset: int = 0) -> list[StoredMessage]:
        """All messages of a queue from an offset on."""
        found: list[StoredMessage] = []
        while True:
            answer = await self.pull(topic, queue_id, offset + len(found))
            if answer.code != 0:
                return found
            found += messages_in(answer)

    async def arrival(
        self, topic: str, queue_id: int = 0, offset: int = 0, **changes: Any
    ) -> list[StoredMessage]:
        """The next messages of a queue, however long they take to come."""
        while True:
            answer = await self.pull(
                topic, queue_id, offset,
                flag=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=5000, **changes,
            )  # fmt: skip
            if answer.code == 0:
                return messages_in(answer)

    async def heartbeat(
        self,
        client_id: str,
        *groups: str,
        topics: Mapping[str, str] | None = None,
        producers: Iterable[str] = (),
        version: int = 1,
        **changes: Any,
    ) -> Command:
        body = heartbeat_of(client_id, groups, topics or {TOPIC: "*"}, producers, version)
        return await self.ask(34, {}, {**body, **changes})

    async def consumer_ids(self, group: str = GROUP) -> list[str]:
        answer = await self.ask(38, {"consumerGroup": group})
        if answer.code != 0:
            return []
        ids: list[str] = msgspec.json.decode(answer.body)["consumerIdList"]
        return ids

    async def offset_of(self, topic: str = TOPIC, queue_id: int = 0, group: str = GROUP) -> int:
        """Where a group is; -1 when the broker does not know."""
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
        answer = await self.ask(14, {**fields, "setZeroIfNotFound": False})
        return int(answer.text_fields()["offset"]) if answer.code == 0 else -1

    async def commit(
        self, offset: int, topic: str = TOPIC, queue_id: int = 0, group: str = GROUP
    ) -> Command:
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
        return await self.ask(15, {**fields, "commitOffset": offset})

    async def notice(self) -> str:
        """The group of the next notice that its members changed."""
        async with asyncio.timeout(10):
            return (await self.notices.get()).text_fields()["consumerGroup"]


# -- requests ------------------------------------------------------------------------------------


def request_of(
    code: int, fields: Mapping[str, object] | None = None, body: bytes | object = b""
) -> Request:
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Request(code, as_text(fields or {}), content)


def as_text(fields: Mapping[str, object]) -> dict[str, str]:
    """Values as they travel. A name that is a Python keyword may end in `_`."""
    return {
        name.rstrip("_"): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in fields.items()
    }


def send_fields(
    topic: str = TOPIC,
    queue_id: int = 0,
    properties: Mapping[str, str] | None = None,
    **changes: Any,
) -> dict[str, object]:
    """The header of SEND_MESSAGE_V2, one letter a field."""
    return {
        "a": "producers", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0, "g": BORN_MS,
        "h": 0, "i": encode_properties(properties or {}).decode(), "j": 0, "m": False, **changes,
    }  # fmt: skip


def long_send_fields(topic: str = TOPIC, queue_id: int = 0, **changes: Any) -> dict[str, object]:
    """The header of SEND_MESSAGE, with names in full."""
    return {
        "producerGroup": "producers", "topic": topic, "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4, "queueId": queue_id, "sysFlag": 0, "bornTimestamp": BORN_MS,
        "flag": 0, "properties": "", "reconsumeTimes": 0, "batch": False, **changes,
    }  # fmt: skip


def pull_fields(
    topic: str = TOPIC,
    queue_id: int = 0,
    offset: int = 0,
    group: str = GROUP,
    flag: int = SUBSCRIPTION,
    **changes: Any,
) -> dict[str, object]:
    return {
        "consumerGroup": group, "topic": topic, "queueId": queue_id, "queueOffset": offset,
        "maxMsgNums": 32, "sysFlag": flag, "commitOffset": 0, "suspendTimeoutMillis": 0,
        "subscription": "*", "subVersion": 1, "expressionType": "TAG", **changes,
    }  # fmt: skip


def heartbeat_of(
    client_id: str,
    groups: Iterable[str] = (GROUP,),
    topics: Mapping[str, str] | None = None,
    producers: Iterable[str] = (),
    version: int = 1,
    **consumer: Any,
) -> dict[str, Any]:
    subscriptions = [
        tag_subscription(topic, expression, version)
        for topic, expression in (topics if topics is not None else {TOPIC: "*"}).items()
    ]
    return {
        "clientID": client_id,
        "producerDataSet": [{"groupName": name} for name in producers],
        "consumerDataSet": [
            {
                "groupName": name,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": subscriptions,
                **consumer,
            }
            for name in groups
        ],
    }


def binary_frame(request: Request, opaque: int) -> bytes:
    """A request with a binary header: a response's frame without its response bit."""
    response = Response(request.code, None, request.fields, request.body)
    frame = bytearray(b"".join(encode_response(response, opaque, HeaderKind.BINARY)))
    frame[17:21] = bytes(4)
    return bytes(frame)


# -- answers -------------------------------------------------------------------------------------


def messages_in(answer: Command) -> list[StoredMessage]:
    return list(iter_records(memoryview(answer.body)))


def bodies_in(answer: Command) -> list[bytes]:
    return [message.body for message in messages_in(answer)]


def number(answer: Command, name: str) -> int:
    return int(answer.text_fields()[name])
