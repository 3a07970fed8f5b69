"""Java producers and a push consumer at work while a group of brokers suffers.

They are a `tests.quorum.clients.Clients`: the history learns of each message that was tried, and
what the Java client was told or was given, by the clock that it shares with us.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from tests.quorum.clients import BROKER, QUEUES, SENDERS, TOPIC
from tests.quorum.history import Ack, History

from interop.java_client import NEWEST, Events, JavaClient, Producer, PushConsumer, Queue, body
from interop.rocketmq import JsonObject

# Numbers of senders behind those of the Python clients.
NUMBERS: Final = range(SENDERS, SENDERS + QUEUES)
PACE_MS: Final = 20
SEND_TIMEOUT_MS: Final = 1000
COMMIT_INTERVAL_MS: Final = 1000
NOTE_INTERVAL_S: Final = 0.1
NS_PER_S: Final = 1e9


class JavaClients:
    name = "java"

    def __init__(self, namesrv: str, history: History, home: Path) -> None:
        self._namesrv = namesrv
        self._history = history
        self._client = JavaClient(NEWEST, home)
        self._senders: list[Producer] = []
        self._streams: list[Events] = []
        self._reader: PushConsumer | None = None
        self._noting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await asyncio.to_thread(self._start)
        self._noting = asyncio.create_task(self._note_on())

    def _start(self) -> None:
        self._client.start()
        self._reader = PushConsumer(
            self._client,
            self._namesrv,
            "java-readers",
            TOPIC,
            persistConsumerOffsetInterval=COMMIT_INTERVAL_MS,
        )
        for number in NUMBERS:
            # A client of its own each: another one's outage must not hide in its connections.
            sender = Producer(
                self._client, self._namesrv, "java-senders", sendMsgTimeout=SEND_TIMEOUT_MS
            )
            queue = Queue(TOPIC, BROKER, number % QUEUES)
            self._senders.append(sender)
            self._streams.append(
                sender.start_stream(TOPIC, PACE_MS, prefix=f"{number}:", queue=queue)
            )

    async def stop_sending(self) -> None:
        for sender in self._senders:
            await asyncio.to_thread(sender.stop_stream)
        self._senders.clear()
        self._note()

    async def stop(self) -> None:
        if self._noting is not None:
            self._noting.cancel()
        await asyncio.to_thread(self._client.kill)

    async def _note_on(self) -> None:
        while True:
            self._note()
            await asyncio.sleep(NOTE_INTERVAL_S)

    def _note(self) -> None:
        assert self._reader is not None
        for stream in self._streams:
            for event in stream.take():
                self._note_outcome(event)
        for message in self._reader.events().take():
            self._history.receive(self.name, body(message), message["beganNs"] / NS_PER_S)

    def _note_outcome(self, event: JsonObject) -> None:
        text = event["body"].encode()
        self._history.tried.add(text)
        if event["event"] == "sent" and event["status"] == "SEND_OK":
            place = (event["queue"]["queueId"], event["queueOffset"])
            times = (event["beganNs"] / NS_PER_S, event["endedNs"] / NS_PER_S)
            self._history.acknowledge(Ack(self.name, text, *place, *times))
