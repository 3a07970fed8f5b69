"""Clients that are at work while a group suffers: what they tell the history, and ours."""

import asyncio
import contextlib
import time
from typing import Final, Protocol

from cometmq.client.cluster import Cluster
from cometmq.client.consumer.options import PushOptions
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.consumer.subscriptions import ConsumeFrom
from cometmq.client.errors import ClientError
from cometmq.client.message import Message
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.results import SendStatus
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.message_queue import MessageQueue

from .history import Ack, History, body_of

TOPIC: Final = "work"
BROKER: Final = "broker-a"
QUEUES: Final = 4
SENDERS: Final = QUEUES + 1
PACE_S: Final = 0.01
SEND_TIMEOUT_S: Final = 1.0


class Clients(Protocol):
    """Senders and a group of readers of one kind. A sender sends to one queue, one message after
    the other, each once; the history learns of every one that was tried."""

    name: str

    async def start(self) -> None: ...
    async def stop_sending(self) -> None: ...
    async def stop(self) -> None: ...


class PythonClients:
    name = "python"

    def __init__(self, namesrv: str, history: History) -> None:
        cluster = Cluster(
            namesrv, request_timeout_s=SEND_TIMEOUT_S, route_refresh_s=1.0, heartbeat_s=1.0
        )
        self._producer = Producer(cluster, group="senders", timeout_s=SEND_TIMEOUT_S, retries=0)
        self._consumer = PushConsumer(
            cluster,
            group="readers",
            topics=[TOPIC],
            handler=self._receive,
            consume_from=ConsumeFrom.FIRST,
            options=PushOptions(commit_interval_s=0.2),
        )
        self._history = history
        self._parts = contextlib.AsyncExitStack()
        self._sending: list[asyncio.Task[None]] = []
        self._stopping = False

    async def start(self) -> None:
        await self._parts.enter_async_context(self._producer)
        await self._parts.enter_async_context(self._consumer)
        self._sending = [asyncio.create_task(self._send(n)) for n in range(SENDERS)]

    async def stop_sending(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._sending)

    async def stop(self) -> None:
        await self.stop_sending()
        await self._parts.aclose()

    async def _send(self, sender: int) -> None:
        queue = MessageQueue(TOPIC, BROKER, sender % QUEUES)
        number = 0
        while not self._stopping:
            body = body_of(sender, number)
            self._history.tried.add(body)
            began_s = time.monotonic()
            with contextlib.suppress(ClientError):
                result = await self._producer.send(Message(TOPIC, body), queue=queue)
                if result.status is SendStatus.OK:
                    place = (queue.queue_id, result.queue_offset)
                    ack = Ack(self.name, body, *place, began_s, time.monotonic())
                    self._history.acknowledge(ack)
            number += 1
            await asyncio.sleep(PACE_S)

    def _receive(self, message: ReceivedMessage) -> None:
        self._history.receive(self.name, message.body, time.monotonic())
