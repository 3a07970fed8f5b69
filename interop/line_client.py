"""A client of another language, driven over lines of JSON.

`LineClient` runs one driver process (`go/`, `node/`), asks it to send and consume and collects what
its consumers got. Every consumer is a context manager, so that no test leaves one behind in a group
or a queue. All waits are bounded, and the process is ended by its pid.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from interop.rocketmq import JsonObject

QUEUES = 4
"""How many queues a topic gets that a send makes; the tests' other topics have as many."""

CALL_TIMEOUT_S = 60.0
DELIVERY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
LOG_TAIL_LINES = 40


class LineClientError(RuntimeError):
    """The client refused or its driver ended; the message holds the end of its log."""


@dataclass(frozen=True)
class Outgoing:
    """A message to send, in the terms that every client has."""

    topic: str
    body: bytes
    tag: str = "plain"
    keys: Sequence[str] = ()
    sharding_key: str = ""
    delay_level: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        return {
            "topic": self.topic,
            "body": base64.b64encode(self.body).decode(),
            "tag": self.tag,
            "keys": list(self.keys),
            "shardingKey": self.sharding_key,
            "delayLevel": self.delay_level,
            "properties": dict(self.properties),
        }


@dataclass(frozen=True)
class Sent:
    """What a broker answered to a send."""

    ok: bool
    msg_id: str
    offset_msg_id: str
    queue_id: int
    queue_offset: int

    @classmethod
    def from_json(cls, line: JsonObject) -> Self:
        return cls(
            ok=line["ok"],
            msg_id=line["msgId"],
            offset_msg_id=line["offsetMsgId"],
            queue_id=line["queueId"],
            queue_offset=line["queueOffset"],
        )


@dataclass(frozen=True)
class Received:
    """A message as the client handed it to its user."""

    topic: str
    body: bytes
    properties: Mapping[str, str]
    msg_id: str
    offset_msg_id: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    reconsume_times: int
    store_host: str

    @classmethod
    def from_json(cls, line: JsonObject) -> Self:
        return cls(
            topic=line["topic"],
            body=base64.b64decode(line["body"]),
            properties=line["properties"],
            msg_id=line["msgId"],
            offset_msg_id=line["offsetMsgId"],
            queue_id=line["queueId"],
            queue_offset=line["queueOffset"],
            sys_flag=line["sysFlag"],
            reconsume_times=line["reconsumeTimes"],
            store_host=line["storeHost"],
        )

    @property
    def tag(self) -> str:
        return self.properties.get("TAGS", "")

    @property
    def keys(self) -> list[str]:
        return self.properties.get("KEYS", "").split()

    @property
    def place(self) -> tuple[int, int]:
        """Where in its topic the message lies: queue and offset."""
        return self.queue_id, self.queue_offset


def by_key(messages: Iterable[Received]) -> dict[str, list[Received]]:
    """Messages by their only key, in the order in which they came."""
    found: dict[str, list[Received]] = {}
    for message in messages:
        (key,) = message.keys
        found.setdefault(key, []).append(message)
    return found


class LineClient:
    """One driver process with a producer; consumers come and go."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self._log = log
        self._calls = itertools.count(1)
        self._changed = threading.Condition()
        self._answers: dict[int, JsonObject] = {}
        self._deliveries: dict[str, list[Received]] = {}
        self._ended = False
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                list(command),
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._producer = self.new_name("producer")
        try:
            self.call("start_producer", name=self._producer, group=self._producer)
        except BaseException:
            self.close()
            raise

    def new_name(self, kind: str) -> str:
        """A client id that no other client of the machine has."""
        return f"{kind}-{self._process.pid}-{next(self._calls)}"

    def send(self, *messages: Outgoing, mode: str = "sync") -> list[Sent]:
        """Send one after another (`sync`) or as the mode of the driver says."""
        lines = [message.to_json() for message in messages]
        answers = self.call("send", producer=self._producer, mode=mode, messages=lines)
        return [Sent.from_json(answer) for answer in answers or ()]

    def push_consumer(self, topic: str, group: str, **options: str | int | bool) -> PushConsumer:
        """Start a consumer that takes every message as it comes; see `PushConsumer`."""
        return PushConsumer(self, topic, group, options)

    def call(self, action: str, **args: object) -> Any:
        """Have the driver do something and return its answer."""
        number = next(self._calls)
        line = json.dumps({"id": number, "do": action, "args": args})
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise LineClientError(f"the driver is gone\n{self._tail()}") from error
        self.wait(lambda: number in self._answers, CALL_TIMEOUT_S, f"no answer to {action}")
        answer = self._answers.pop(number)
        if "error" in answer:
            raise LineClientError(f"{action}: {answer['error']}\n{self._tail()}")
        return answer.get("ok")

    def deliveries(self, consumer: str) -> list[Received]:
        """What a consumer got so far."""
        with self._changed:
            return list(self._deliveries.get(consumer, ()))

    def wait(self, happened: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
        """Return when it is so; look again whenever the driver said something."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not happened():
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    raise LineClientError(f"{otherwise}\n{self._tail()}")
                self._changed.wait(left)

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
        self._reader.join(STOP_TIMEOUT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            line = json.loads(text)
            with self._changed:
                if "consumer" in line:
                    received = Received.from_json(line["message"])
                    self._deliveries.setdefault(line["consumer"], []).append(received)
                else:
                    self._answers[line["id"]] = line
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])


class PushConsumer:
    """A running push consumer; leaving the `with` block stops it.

    Options, where the client has them: `expression` and `sql` (a filter, by tags unless `sql`),
    `orderly`, `broadcast`, `from_last`, `failures` (how often every message is refused) and
    `reconsumes_max` (after how many refusals the broker gives a message up; -1 is the default).
    """

    def __init__(
        self, client: LineClient, topic: str, group: str, options: Mapping[str, str | int | bool]
    ) -> None:
        self._client = client
        self._name = client.new_name("push")
        self._stopped = False
        settings = {
            "expression": "*", "sql": False, "orderly": False, "broadcast": False,
            "from_last": False, "failures": 0, "reconsumes_max": -1,
        }  # fmt: skip
        unknown = options.keys() - settings.keys()
        assert not unknown, unknown
        settings.update(options)
        args = {_camel(name): value for name, value in settings.items()}
        client.call("start_push", name=self._name, group=group, topic=topic, **args)

    @property
    def received(self) -> list[Received]:
        return self._client.deliveries(self._name)

    def take(self, count: int, timeout_s: float = DELIVERY_TIMEOUT_S) -> list[Received]:
        """Wait until so many messages came, and return all that came."""
        self._client.wait(
            lambda: len(self.received) >= count,
            timeout_s,
            f"{self._name} did not get {count} messages",
        )
        return self.received

    def until_committed(self) -> None:
        """Wait until the client itself counts all that it reported as consumed."""
        deadline = time.monotonic() + DELIVERY_TIMEOUT_S
        while self._client.call("lag", name=self._name):
            assert time.monotonic() < deadline, f"{self._name} does not catch up"

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._client.call("stop", name=self._name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
