"""A small shop for operators to look at: two brokers, a topic, a group online and one offline.

`orders` has two queues at each broker with three messages in each. The group `billing` is online
and has consumed two of three in every queue; `archive` went offline after the first.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec

from cometmq.client.admin import Admin
from cometmq.client.cluster import Cluster
from cometmq.client.errors import TopicNotFound
from cometmq.client.link import Link
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.heartbeat import ConsumerData, Heartbeat, ProducerData
from cometmq.protocol.message_queue import MessageQueue, encode_body
from cometmq.protocol.record import iter_records
from cometmq.protocol.subscription import tag_subscription
from cometmq.testing import EmbeddedBroker
from cometmq.transport.connection import Connection, Handlers
from tests.broker.brokers import send_fields
from tests.client.clusters import POLL_S, WAIT_S

TOPIC = "orders"
ONLINE, OFFLINE, SELLERS = "billing", "archive", "sellers"
BROKERS = ("broker-a", "broker-b")
CLUSTER = "DefaultCluster"
QUEUES = [MessageQueue(TOPIC, broker, number) for broker in BROKERS for number in (0, 1)]
IN_EACH = 3
CLIENT_ID = "127.0.0.1@4711"


class Member:
    """What the member of `billing` answers when a broker asks it."""

    def __init__(self) -> None:
        self.handed_over: list[bytes] = []
        """Bodies of the messages that operators had it consume."""

    def handlers(self) -> Handlers:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: lambda *_: None,
        }

    def running_info(self, _: Connection, command: Command) -> Response:
        stacks = command.text_fields().get("jstackEnable") == "true"
        state = {"commitOffset": 2, "cachedMsgCount": 1, "cachedMsgSizeInMiB": 0, "locked": True}
        return Response(
            body=encode_body(
                {
                    "properties": {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
                    "subscriptionSet": [tag_subscription(TOPIC, "even || odd")],
                    "mqTable": dict.fromkeys(QUEUES, state),
                    "statusTable": {TOPIC: {"pullRT": 1.5, "consumeFailedMsgs": 3}},
                    "jstack": "main thread: {waits}:" if stacks else None,
                }
            )
        )

    def consume_directly(self, _: Connection, command: Command) -> Response:
        self.handed_over += [bytes(m.body) for m in iter_records(memoryview(command.body))]
        result = {"consumeResult": "CR_SUCCESS", "spentTimeMills": 7, "remark": "done"}
        return Response(body=msgspec.json.encode(result))


class Shop:
    def __init__(self, embedded: EmbeddedBroker, admin: Admin, clerk: Link, member: Member) -> None:
        self.embedded = embedded
        self.admin = admin
        self.member = member
        self._clerk = clerk

    def address_of(self, broker: str) -> str:
        return self.embedded.addresses[BROKERS.index(broker)]

    async def send(
        self, queue: MessageQueue, body: bytes, **properties: str
    ) -> tuple[str, dict[str, str]]:
        """The message's id, and what the broker answered."""
        fields = send_fields(queue.topic, queue.queue_id, properties)
        address = self.address_of(queue.broker_name)
        answer = await self._clerk.ask(address, RequestCode.SEND_MESSAGE_V2, fields, body)
        told = answer.text_fields()
        return told["transactionId"], told

    async def fill(self) -> None:
        for queue in QUEUES:
            for number in range(IN_EACH):
                tag = "odd" if number % 2 else "even"
                keys = f"{queue.broker_name}-{queue.queue_id}-{number} all"
                await self.send(queue, body_of(queue, number), KEYS=keys, TAGS=tag)


def body_of(queue: MessageQueue, number: int) -> bytes:
    return f"{queue.broker_name} {queue.queue_id} {number} äöü".encode()


def _heartbeat(client_id: str) -> Heartbeat:
    wanted = [tag_subscription(TOPIC, "even || odd", 1)]
    return Heartbeat(
        client_id,
        [ProducerData(SELLERS)],
        [ConsumerData(ONLINE, subscription_data_set=wanted)],
    )


async def _until_announced(admin: Admin, topic: str) -> None:
    """Brokers make a group's retry topic when a member arrives, and tell it a moment later."""
    known: list[str] = []
    async with asyncio.timeout(WAIT_S):
        while set(known) != set(BROKERS):
            with contextlib.suppress(TopicNotFound):
                known = [at.broker_name for at in (await admin.topics.route(topic)).broker_datas]
            await asyncio.sleep(POLL_S)


@contextlib.asynccontextmanager
async def open_shop(
    *, online: bool = True, through_proxy: bool = False, request_timeout_s: float = 10.0
) -> AsyncIterator[Shop]:
    """`online`: with the member of `billing` and the producer of `sellers` in one client."""
    async with (
        EmbeddedBroker(in_memory=True, brokers=2, through_proxy=through_proxy) as embedded,
        Admin(Cluster(embedded.namesrv, request_timeout_s=request_timeout_s)) as admin,
    ):
        await embedded.create_topic(TOPIC, 2)
        member = Member()
        clerk = Link(
            Cluster(embedded.namesrv),
            client_id=CLIENT_ID,
            handlers=member.handlers(),
            heartbeat=_heartbeat if online else None,
        )
        shop = Shop(embedded, admin, clerk, member)
        clerk.start()
        try:
            await shop.fill()
            await admin.groups.create(OFFLINE)
            await admin.groups.create(ONLINE)
            await admin.offsets.commit(OFFLINE, dict.fromkeys(QUEUES, 1))
            await admin.offsets.commit(ONLINE, dict.fromkeys(QUEUES, 2))
            if online:
                await _until_announced(admin, f"%RETRY%{ONLINE}")
            yield shop
        finally:
            await clerk.stop()
