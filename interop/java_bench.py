"""One process of a Java client at one cluster, as most tests with these clients need it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from interop.java_client import (
    Admin,
    ClientError,
    JavaClient,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    Queue,
    body,
    wait_until,
)
from interop.rocketmq import JsonObject
from interop.systems import Cluster


class Bench:
    """One client process at one cluster, with the parts that most tests need already started."""

    def __init__(self, client: JavaClient, cluster: Cluster) -> None:
        self.client = client
        self.kind = client.kind
        self.cluster = cluster
        self.namesrv = cluster.namesrv.address
        self.admin = Admin(client, self.namesrv)
        self.producer = Producer(client, self.namesrv, self.name("producer"))
        self.reader = PullConsumer(client, self.namesrv, self.name("reader"))

    def name(self, what: str) -> str:
        """A name for a topic or a group that no other test has."""
        return self.client.new_name(f"{what}-{self.kind}".replace(".", "_"))

    def topic(self, what: str, queues: int = 4) -> str:
        topic = self.name(what)
        self.admin.create_topic(topic, self.cluster.broker.address, queues)
        return topic

    def push(
        self, group: str, topic: str, *, client: JavaClient | None = None, **options: Any
    ) -> PushConsumer:
        return PushConsumer(client or self.client, self.namesrv, group, topic, **options)

    def lite(self, group: str) -> LitePullConsumer:
        return LitePullConsumer(self.client, self.namesrv, group)

    def consumed(self, group: str, topic: str) -> dict[int, int]:
        """The progress of a group per queue id, as its broker knows it."""
        progress = self.admin.progress(group, topic)
        return {queue.id: line["consumed"] for queue, line in progress.items()}

    def wait_until_consumed(
        self, group: str, topic: str, count: int, *running: PushConsumer
    ) -> None:
        """Wait until the broker knows so many messages to be consumed (or filtered out).

        A consumer that ends right after its last message is not enough: a pull of its that carries
        an older offset may overtake the last word on the way through the broker.
        """

        def consumed() -> bool:
            for consumer in running:
                consumer.persist()
            return sum(self.consumed(group, topic).values()) == count

        wait_until(consumed, f"{group} has consumed {count}")


def numbered(topic: str, count: int, prefix: str = "body") -> list[Message]:
    return [Message(topic, f"{prefix}-{number}".encode()) for number in range(count)]


def on_each_queue(queues: Iterable[Queue], count: int, prefix: str) -> list[Message]:
    return [
        Message(queue.topic, f"{prefix}-{queue.id}-{number}".encode(), queue=queue)
        for number in range(count)
        for queue in queues
    ]


def sent_bodies(messages: Iterable[Message]) -> list[bytes]:
    return [message.body for message in messages]


def by_queue(messages: Iterable[JsonObject]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for message in messages:
        found.setdefault(message["queueId"], []).append(body(message))
    return found


def topic_is_known(admin: Admin, topic: str) -> bool:
    try:
        admin.route(topic)
    except ClientError:
        return False
    return True
