"""The Go client (rocketmq-client-go v2) as a process of a test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from interop import toolchain
from interop.line_client import LineClient, Received
from interop.rocketmq import JsonObject

POLL_TIMEOUT_MS = 20_000


@dataclass(frozen=True)
class Pulled:
    """What one pull found in one queue."""

    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[Received]

    @classmethod
    def from_json(cls, line: JsonObject) -> Self:
        return cls(
            status=line["status"],
            next_offset=line["next"],
            min_offset=line["minOffset"],
            max_offset=line["maxOffset"],
            messages=[Received.from_json(message) for message in line["messages"]],
        )


class GoClient(LineClient):
    """Everything that the Go client can do: send, push, pull and its few admin calls."""

    def __init__(self, namesrv: str, home: Path) -> None:
        env = {
            **os.environ,
            "ROCKETMQ_GO_LOG_LEVEL": "warn",
            # Broadcast consumers keep their offsets in files.
            "HOME": str(home),
        }
        super().__init__([str(toolchain.go_driver()), namesrv], home / "go.log", env)

    @contextmanager
    def pull_consumer(
        self, topic: str, group: str, *, expression: str = "*"
    ) -> Iterator[PullConsumer]:
        """A running pull consumer; leaving the block commits its offsets and stops it."""
        name = self.new_name("pull")
        self.call("start_pull", name=name, topic=topic, group=group, expression=expression)
        try:
            yield PullConsumer(self, name, topic)
        finally:
            self.call("stop", name=name)

    def create_topic(self, topic: str, broker: str, *, read_queues: int, write_queues: int) -> None:
        self.call(
            "create_topic",
            topic=topic,
            broker=broker,
            readQueues=read_queues,
            writeQueues=write_queues,
        )

    def delete_topic(self, topic: str, broker: str) -> None:
        self.call("delete_topic", topic=topic, broker=broker)

    def topics(self) -> set[str]:
        """The names of all topics that the name server knows."""
        return set(self.call("topics"))

    def groups(self, broker: str) -> dict[str, JsonObject]:
        """The subscription groups of a broker by name, in the Go client's own words."""
        found: dict[str, JsonObject] = self.call("groups", broker=broker)
        return found

    def await_topic(self, topic: str) -> None:
        """Return when the name server knows a topic that somebody had made."""
        self.call("queues", topic=topic)

    def write_queues(self, topic: str) -> list[JsonObject]:
        """The queues that a producer would send to."""
        found: list[JsonObject] = self.call("queues", topic=topic)
        return found


def make_group(client: LineClient, go: GoClient, topic: str, group: str) -> None:
    """Let a first consumer make a group's retry topic.

    A Go consumer finds that topic only if it is there when the consumer starts, or half a minute
    later.
    """
    with client.push_consumer(topic, group):
        go.await_topic(f"%RETRY%{group}")


class PullConsumer:
    """The pull consumer's two faces: `pull` asks the broker, `poll` takes what came meanwhile."""

    def __init__(self, client: GoClient, name: str, topic: str) -> None:
        self._client = client
        self._name = name
        self._topic = topic

    def pull(self, count: int) -> Pulled:
        """Read from the next queue in turn, from its committed offset on.

        The queue of the retry topic has its turn, too, and a pull of an empty queue is held.
        """
        return Pulled.from_json(self._client.call("pull", name=self._name, count=count))

    def pull_from(self, queue: JsonObject, offset: int, count: int) -> Pulled:
        """Read from a place of our choice."""
        args = {"name": self._name, "queue": queue, "offset": offset, "count": count}
        return Pulled.from_json(self._client.call("pull_from", **args))

    def poll(self) -> list[Received]:
        """Wait for the next batch and acknowledge it."""
        batch = self._client.call("poll", name=self._name, timeoutMs=POLL_TIMEOUT_MS)
        return [Received.from_json(message) for message in batch]

    def commit(self) -> None:
        """Tell the broker how far the acknowledged batches go."""
        self._client.call("commit", name=self._name, topic=self._topic)
