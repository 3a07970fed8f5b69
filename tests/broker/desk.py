"""A broker's tables, store and handlers, asked without a socket."""

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from cometmq.broker.admin import admin_handlers
from cometmq.broker.archive_gate import ArchiveGate
from cometmq.broker.clients import Clients, Member
from cometmq.broker.config import BrokerConfig
from cometmq.broker.context import Context
from cometmq.broker.delays import Delays
from cometmq.broker.groups import Groups
from cometmq.broker.inbox import Inbox
from cometmq.broker.locks import QueueLocks
from cometmq.broker.offsets import ConsumerOffsets
from cometmq.broker.positions import Positions
from cometmq.broker.pulls import Pulls
from cometmq.broker.sessions import Sessions
from cometmq.broker.stats import Stats
from cometmq.broker.topics import Topics
from cometmq.broker.waiting_pulls import WaitingPulls
from cometmq.protocol.codes import Language, ResponseCode
from cometmq.protocol.command import (
    Command,
    FrameParser,
    MalformedFields,
    Request,
    Response,
    encode_request,
)
from cometmq.protocol.heartbeat import ConsumerData
from cometmq.protocol.host import Host
from cometmq.protocol.message import Appended, Message
from cometmq.protocol.properties import encode_properties
from cometmq.protocol.subscription import tag_subscription
from cometmq.protocol.topic_config import TopicConfig
from cometmq.store.config_file import ConfigFile
from cometmq.store.message_store import MessageStore
from cometmq.store.turns import LoopTurns
from cometmq.testing.clock import ManualClock
from cometmq.transport.connection import Connection, Handler, Refusal
from tests.store.stores import small_config

ADDRESS = Host("127.0.0.1", 10911)
BROKER = "broker-a"
JAVA_5_5 = 513
ANSWER_LIMIT_S = 10.0


class Desk:
    def __init__(self, root: Path, clock: ManualClock, **settings: Any) -> None:
        self.clock = clock
        # However late or full it is where tests run: nothing is deleted unasked.
        store_config = small_config(
            root,
            delete_when="",
            disk_expire_percent=100,
            disk_force_percent=100,
            disk_full_percent=100,
        )
        self.store = MessageStore(store_config, host=ADDRESS, clock=clock)
        self.store.open()
        config = BrokerConfig(name=BROKER, **settings)
        levels = len(self.store.config.delays_ms())
        self.context = Context(
            config=config,
            store=self.store,
            turns=LoopTurns(self.store),
            clock=clock,
            topics=Topics(config, levels, _file(root, "topics"), clock),
            groups=Groups(config, _file(root, "subscriptionGroup"), clock),
            offsets=ConsumerOffsets(_file(root, "consumerOffset"), clock),
            clients=Clients(lambda _: True),
            locks=QueueLocks(),
            waiting_pulls=WaitingPulls(config.pulls_held_max),
            stats=Stats(clock.now_ms()),
            archive=ArchiveGate(config, clock),
            address=ADDRESS,
            started_ms=clock.now_ms(),
        )
        self.announced = 0
        """How often NameServers were told of topics, and waited for."""
        self.context.announce = self._announce
        self.inbox = Inbox(self.context)
        self.delays = Delays(self.store, self.inbox, clock, _file(root, "delayOffset"))
        parts = (Sessions(self.context), Pulls(self.context), Positions(self.context))
        self.handlers: dict[int, Handler] = {
            **{code: handler for part in parts for code, handler in part.handlers().items()},
            **admin_handlers(self.context, self.inbox, self.delays),
        }

    def close(self) -> None:
        self.context.waiting_pulls.stop()
        self.store.close()

    async def _announce(self) -> None:
        self.announced += 1

    # -- questions -------------------------------------------------------------------------------

    def ask(self, code: int, body: bytes | object = b"", **fields: object) -> Response:
        """What the handler answers; a refusal is an answer too. For tests without a loop."""
        return asyncio.run(self.ask_later(code, body, **fields))

    async def ask_later(self, code: int, body: bytes | object = b"", **fields: object) -> Response:
        """The same in a coroutine."""
        try:
            answer = self.handlers[code](stranger(), request(code, body, fields))
            if answer is not None and not isinstance(answer, Response):
                answer = await asyncio.wait_for(answer, ANSWER_LIMIT_S)
        except Refusal as refusal:
            return refusal.response
        except MalformedFields as error:
            return Response(ResponseCode.SYSTEM_ERROR, str(error))
        assert answer is not None
        return answer

    # -- what is there ---------------------------------------------------------------------------

    def topic(self, name: str, queues: int = 2, **changes: Any) -> str:
        self.context.topics.update(TopicConfig(name, queues, queues, **changes))
        return name

    def group(self, name: str) -> str:
        assert self.context.groups.find(name) is not None
        return name

    def put(self, topic: str, queue_id: int = 0, tag: str = "A") -> Appended:
        """Store a message, one second after the one before."""
        self.clock.advance(1000)
        message = Message(topic, queue_id, b"hello", encode_properties({"TAGS": tag}))
        return self.store.put(message)

    def online(
        self, group: str, *topics: str, client_id: str = "one", connection: Connection | None = None
    ) -> Connection:
        """Have a consumer connected."""
        found = connection or stranger()
        data = ConsumerData(group, subscription_data_set=[tag_subscription(t, "*") for t in topics])
        member = Member(found, client_id, Language.JAVA, JAVA_5_5, self.clock.now_ms())
        self.context.clients.register_consumer(member, data, keep=False)
        return found

    def stored_topics(self) -> set[str]:
        """Topics that have queues on disk."""
        root = self.store.config.consume_queue_dir
        return {path.name for path in root.iterdir()} if root.exists() else set()


class _Stranger:
    """Somebody of whom handlers only want to know the address."""

    def __init__(self, port: int) -> None:
        self.peer = Host("192.0.2.1", port)
        self.is_open = True

    def tell(self, request: Request) -> None:
        pass


def stranger(port: int = 40_000) -> Connection:
    return cast(Connection, _Stranger(port))


def request(code: int, body: bytes | object, fields: Mapping[str, object]) -> Command:
    """A request as it comes over the wire."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    texts = {name: _text(value) for name, value in fields.items() if value is not None}
    (command,) = FrameParser().feed(b"".join(encode_request(Request(code, texts, content), 1)))
    return command


def body_of(response: Response) -> bytes:
    assert isinstance(response.body, bytes)
    return response.body


def json_of(response: Response) -> Any:
    assert response.code == 0, response.remark
    return json.loads(body_of(response))


def queues_of(response: Response) -> Any:
    """A body that has maps by queue, with `topic:queue` for each key."""
    assert response.code == 0, response.remark
    return json.loads(re.sub(rb"(\{[^{}]*\})(?=\s*:)", _named, body_of(response)))


def _named(match: re.Match[bytes]) -> bytes:
    queue = json.loads(match[1])
    assert queue.keys() == {"topic", "brokerName", "queueId"}
    assert queue["brokerName"] == BROKER
    return json.dumps(f"{queue['topic']}:{queue['queueId']}").encode()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _file(root: Path, name: str) -> ConfigFile:
    return ConfigFile(root / "config" / f"{name}.json")
