"""The Java clients as one process that a test drives: producers, consumers, admin clients.

`JavaClient` runs `java-client/` with one version of RocketMQ's client and one kind of header on the
wire. It serves many tests: what they start in it has names of its own, and what its consumers
receive arrives as events that a test waits for. Only a test that kills a client needs a process to
itself.
"""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from interop import toolchain
from interop.rocketmq import JVM_COMMON, JsonObject

CALL_TIMEOUT_S = 60.0
EVENT_TIMEOUT_S = 60.0
END_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.05
LOG_TAIL_LINES = 30

# The client looks after its queues every 20 s; a test has less time. All are its own settings.
JVM_CLIENT = (
    "-Xmx256m",
    "-Drocketmq.client.rebalance.waitInterval=1000",
    "-Drocketmq.client.rebalance.minInterval=100",
    # How long an orderly consumer keeps a queue it gives away with messages left: 20 s otherwise.
    "-Drocketmq.client.unlockDelayTimeMills=1000",
)
FAST_ROUTES = {"pollNameServerInterval": 1000, "heartbeatBrokerInterval": 1000}

OptionValue = str | int | bool


class ClientError(RuntimeError):
    """What the Java client threw: its class, RocketMQ's response code if any, its text."""

    def __init__(self, error: JsonObject) -> None:
        super().__init__(f"{error['type']}: {error['text']}")
        self.type: str = error["type"]
        self.text: str = error["text"]
        self.code: int | None = error.get("code")
        self.cause: JsonObject | None = error.get("cause")


@dataclass(frozen=True)
class Kind:
    """A version of the client and how it writes headers: JSON or ROCKETMQ (binary)."""

    version: str
    headers: str

    def __str__(self) -> str:
        return f"{self.version}-{self.headers.lower()}"


NEWEST = Kind(toolchain.JAVA_CLIENT_VERSIONS[-1], "JSON")
KINDS = [
    NEWEST,
    *(
        kind
        for version in reversed(toolchain.JAVA_CLIENT_VERSIONS)
        for headers in ("JSON", "ROCKETMQ")
        if (kind := Kind(version, headers)) != NEWEST
    ),
]


@dataclass(frozen=True)
class Queue:
    """One queue of a topic, as clients name it."""

    topic: str
    broker: str
    id: int

    @classmethod
    def of(cls, line: JsonObject) -> Self:
        return cls(line["topic"], line["brokerName"], line["queueId"])

    def json(self) -> JsonObject:
        return {"topic": self.topic, "brokerName": self.broker, "queueId": self.id}


@dataclass(frozen=True)
class Message:
    """A message to send."""

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | None = None
    flag: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    queue: Queue | None = None
    order_key: str | None = None
    settings: Mapping[str, int] = field(default_factory=dict)
    """What the client has setters for, as in `delayTimeLevel`."""

    def json(self) -> JsonObject:
        line: JsonObject = {
            "topic": self.topic,
            "body": base64.b64encode(self.body).decode(),
            "flag": self.flag,
            "properties": dict(self.properties),
            "settings": dict(self.settings),
        }
        optional = {
            "tags": self.tags,
            "keys": self.keys,
            "queue": self.queue and self.queue.json(),
            "orderKey": self.order_key,
        }
        return line | {name: value for name, value in optional.items() if value is not None}


def body(message: JsonObject) -> bytes:
    return base64.b64decode(message["bodyBase64"])


def bodies(messages: Iterable[JsonObject]) -> list[bytes]:
    return [body(message) for message in messages]


def wait_until(fact: Callable[[], bool], what: str, timeout_s: float = EVENT_TIMEOUT_S) -> None:
    """Return when `fact` holds, for facts that nobody announces."""
    deadline = time.monotonic() + timeout_s
    while not fact():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(POLL_INTERVAL_S)


class Events:
    """What one consumer or stream has told so far, in the order it came."""

    def __init__(self) -> None:
        self._all: list[JsonObject] = []
        self._changed = threading.Condition()

    def add(self, event: JsonObject) -> None:
        with self._changed:
            self._all.append(event)
            self._changed.notify_all()

    def so_far(self) -> list[JsonObject]:
        with self._changed:
            return list(self._all)

    def take(self) -> list[JsonObject]:
        """What came since the last time, which is forgotten here."""
        with self._changed:
            taken, self._all = self._all, []
            return taken

    def wait_until(
        self, enough: Callable[[list[JsonObject]], bool], timeout_s: float = EVENT_TIMEOUT_S
    ) -> list[JsonObject]:
        with self._changed:
            if not self._changed.wait_for(lambda: enough(self._all), timeout_s):
                raise TimeoutError(
                    f"not enough within {timeout_s:.0f} s: {len(self._all)} events, the last "
                    f"{self._all[-1:]}"
                )
            return list(self._all)


class JavaClient:
    """The running process. Leaving the `with` block kills it."""

    def __init__(self, kind: Kind, home: Path) -> None:
        self.kind = kind
        self._home = home
        self._errors = home / "client.err"
        self._ids = itertools.count(1)
        self._pending: dict[int, Future[Any]] = {}
        self._events: dict[str, Events] = {}
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)

    def start(self) -> None:
        self._home.mkdir(parents=True, exist_ok=True)
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                bufsize=1,
                start_new_session=True,  # Ctrl-C is for pytest, which then ends us.
            )
        self._reader.start()

    def _command(self) -> list[str]:
        properties = {
            # Versions before 5 write their logs there, and all of them broadcast offsets.
            "user.home": self._home,
            "interop.log": self._home / "client.log",
            "interop.log.level": "warn",
            "rocketmq.client.logLevel": "WARN",
            "rocketmq.serialize.type": self.kind.headers,
        }
        settings = [f"-D{name}={value}" for name, value in properties.items()]
        classpath = toolchain.java_client_classpath(self.kind.version)
        java = [toolchain.tools().java, *JVM_COMMON, *JVM_CLIENT, *settings, "-cp", classpath]
        return [*java, "cometmq.interop.Client"]

    def kill(self) -> None:
        """End it at once, as a crash would; nothing it holds says goodbye."""
        process = self._process
        if process is None:
            return
        process.kill()
        process.wait(END_TIMEOUT_S)
        self._reader.join(END_TIMEOUT_S)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()
        self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def begin(self, op: str, **arguments: object) -> Future[Any]:
        """Send a command; its result comes later."""
        process = self._process
        if process is None or process.stdin is None:
            raise RuntimeError("the client is not running")
        number = next(self._ids)
        answer: Future[Any] = Future()
        self._pending[number] = answer
        process.stdin.write(json.dumps({"id": number, "op": op, **arguments}) + "\n")
        process.stdin.flush()
        return answer

    def call(self, op: str, **arguments: object) -> Any:
        try:
            return self.begin(op, **arguments).result(CALL_TIMEOUT_S)
        except TimeoutError:
            raise TimeoutError(
                f"{op}: no answer in {CALL_TIMEOUT_S:.0f} s\n{self._tail()}"
            ) from None

    def events(self, name: str) -> Events:
        return self._events.setdefault(name, Events())

    def new_name(self, sort: str) -> str:
        return f"{sort}-{next(self._ids)}"

    def _read(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        for text in process.stdout:
            line = json.loads(text)
            if "event" in line:
                self.events(line["of"]).add(line)
            elif "error" in line:
                self._pending.pop(line["id"]).set_exception(ClientError(line["error"]))
            else:
                self._pending.pop(line["id"]).set_result(line.get("result"))
        for answer in self._pending.values():
            answer.set_exception(RuntimeError(f"the client ended\n{self._tail()}"))

    def _tail(self) -> str:
        return "\n".join(self._errors.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])


class Part:
    """Something started in the process under a name."""

    sort = ""

    def __init__(self, client: JavaClient, namesrv: str, **arguments: object) -> None:
        self.client = client
        self.name = client.new_name(self.sort)
        self._ended = False
        self._call("start", namesrv=namesrv, **arguments)

    def _call(self, op: str, **arguments: object) -> Any:
        return self.client.call(f"{self.sort}.{op}", name=self.name, **arguments)

    def shutdown(self) -> None:
        """Say goodbye and wait until that is done."""
        self._ended = True
        self._call("shutdown")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # In the background: it takes the client a second or more, and no test asks for its result.
        if not self._ended:
            self.client.begin(f"{self.sort}.shutdown", name=self.name)


class Producer(Part):
    sort = "producer"

    def __init__(
        self,
        client: JavaClient,
        namesrv: str,
        group: str,
        *,
        traced: bool = False,
        **options: OptionValue,
    ) -> None:
        super().__init__(client, namesrv, group=group, traced=traced, options=FAST_ROUTES | options)

    def send(self, *messages: Message) -> list[JsonObject]:
        """One after the other; each has been acknowledged when this returns."""
        results: list[JsonObject] = self._send("send", messages)
        return results

    def send_async(self, *messages: Message) -> list[JsonObject]:
        """All at once; returns when every callback was called."""
        results: list[JsonObject] = self._send("sendAsync", messages)
        return results

    def send_oneway(self, *messages: Message) -> None:
        self._send("sendOneway", messages)

    def send_batch(self, *messages: Message) -> JsonObject:
        result: JsonObject = self._send("sendBatch", messages)
        return result

    def _send(self, op: str, messages: Sequence[Message]) -> Any:
        return self._call(op, messages=[message.json() for message in messages])

    def recall(self, topic: str, handle: str) -> str:
        """Take a delayed message back; returns its id."""
        return str(self._call("recall", topic=topic, handle=handle))

    def start_stream(
        self,
        topic: str,
        interval_ms: int,
        *,
        prefix: str | None = None,
        queue: Queue | None = None,
    ) -> Events:
        """Send without end, to one queue or to those that the client chooses; the events say `sent`
        or `failed`, with the body (the prefix and a number) and when the call began and ended."""
        self.client.call(
            "stream.start",
            name=self.name,
            topic=topic,
            intervalMs=interval_ms,
            prefix=prefix or f"{topic}-",
            **({"queue": queue.json()} if queue else {}),
        )
        return self.client.events(self.name)

    def stop_stream(self) -> None:
        self.client.call("stream.stop", name=self.name)


class PushConsumer(Part):
    """Its messages come as events; a message with the property `fail` of n is refused n times."""

    sort = "push"

    def __init__(
        self,
        client: JavaClient,
        namesrv: str,
        group: str,
        topic: str,
        *,
        expression: str = "*",
        sql: bool = False,
        orderly: bool = False,
        held: bool = False,
        timed: bool = False,
        traced: bool = False,
        **options: OptionValue,
    ) -> None:
        self._topic = topic
        defaults = FAST_ROUTES | {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
        super().__init__(
            client,
            namesrv,
            group=group,
            topic=topic,
            expression=expression,
            sql=sql,
            orderly=orderly,
            held=held,
            timed=timed,
            traced=traced,
            options=defaults | options,
        )

    def events(self) -> Events:
        return self.client.events(self.name)

    def received(self) -> list[JsonObject]:
        return self.events().so_far()

    def handled(self) -> Events:
        """Of a timed consumer: each call of its listener when that has returned."""
        return self.client.events(f"{self.name}.handled")

    def wait_for(self, count: int) -> list[JsonObject]:
        """Wait until so many messages were delivered, counting repeated ones."""
        return self.wait_until(lambda messages: len(messages) >= count)

    def wait_for_bodies(self, wanted: Iterable[bytes]) -> list[JsonObject]:
        """Wait until each of these was delivered at least once."""
        missing = set(wanted)
        return self.wait_until(lambda messages: missing <= set(bodies(messages)))

    def wait_until(self, enough: Callable[[list[JsonObject]], bool]) -> list[JsonObject]:
        return self.events().wait_until(enough)

    def queues(self) -> set[Queue]:
        """The queues it holds now."""
        return {Queue.of(line) for line in self._call("queues", topic=self._topic)}

    def wait_for_queues(self, count: int) -> set[Queue]:
        wait_until(lambda: len(self.queues()) == count, f"{self.name} holds {count} queues")
        return self.queues()

    def persist(self) -> None:
        """Send its progress to the broker now instead of at the next interval."""
        self._call("persist")

    def hold(self) -> None:
        """Let no listener return, so that nothing delivered from now on is acknowledged."""
        self._call("hold")

    def release(self) -> None:
        self._call("release")


class PullConsumer(Part):
    """The classic one: it keeps no state, every pull names queue and offset."""

    sort = "pull"

    def __init__(
        self, client: JavaClient, namesrv: str, group: str, **options: OptionValue
    ) -> None:
        super().__init__(client, namesrv, group=group, options=options)

    def queues(self, topic: str) -> list[Queue]:
        return [Queue.of(line) for line in self._call("queues", topic=topic)]

    def pull(
        self,
        queue: Queue,
        offset: int,
        *,
        expression: str = "*",
        sql: bool = False,
        count: int = 32,
    ) -> JsonObject:
        answer = self._pull(queue, offset, expression, count, sql=sql, block=False)
        result: JsonObject = answer.result(CALL_TIMEOUT_S)
        return result

    def begin_blocking_pull(self, queue: Queue, offset: int) -> Future[JsonObject]:
        """The broker answers when there is something."""
        return self._pull(queue, offset, "*", 32, sql=False, block=True)

    def _pull(
        self, queue: Queue, offset: int, expression: str, count: int, *, sql: bool, block: bool
    ) -> Future[JsonObject]:
        return self.client.begin(
            "pull.pull",
            name=self.name,
            queue=queue.json(),
            offset=offset,
            expression=expression,
            sql=sql,
            max=count,
            block=block,
        )

    def read_all(self, topic: str) -> list[JsonObject]:
        """Every message of every queue of a topic."""
        return [message for queue in self.queues(topic) for message in self.read_queue(queue)]

    def read_queue(self, queue: Queue, offset: int = 0) -> list[JsonObject]:
        messages: list[JsonObject] = []
        while (answer := self.pull(queue, offset))["status"] == "FOUND":
            messages += answer["messages"]
            offset = answer["nextBeginOffset"]
        return messages

    def bounds(self, topic: str) -> dict[Queue, JsonObject]:
        """`min`, `max` and `earliestMs` of each queue."""
        return {Queue.of(line["queue"]): line for line in self._call("bounds", topic=topic)}

    def stored(self, topic: str) -> int:
        return sum(line["max"] - line["min"] for line in self.bounds(topic).values())

    def search_offset(self, queue: Queue, timestamp_ms: int) -> int:
        return int(self._call("searchOffset", queue=queue.json(), timestamp=timestamp_ms))

    def commit(self, queue: Queue, offset: int) -> None:
        self._call("commit", queue=queue.json(), offset=offset)

    def committed(self, queue: Queue) -> int:
        return int(self._call("committed", queue=queue.json()))

    def query(
        self, topic: str, key: str, *, count: int = 32, begin_ms: int = 0, end_ms: int = 2**62
    ) -> list[JsonObject]:
        found: list[JsonObject] = self._call(
            "query", topic=topic, key=key, max=count, beginMs=begin_ms, endMs=end_ms
        )
        return found

    def view(self, topic: str, message_id: str) -> JsonObject:
        """By offset id or unique key."""
        found: JsonObject = self._call("view", topic=topic, msgId=message_id)
        return found


class LitePullConsumer(Part):
    sort = "lite"

    def __init__(
        self, client: JavaClient, namesrv: str, group: str, **options: OptionValue
    ) -> None:
        defaults = FAST_ROUTES | {
            "autoCommit": False,
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        }
        super().__init__(client, namesrv, group=group, options=defaults | options)

    def subscribe(self, topic: str, expression: str = "*") -> None:
        self._call("subscribe", topic=topic, expression=expression)

    def queues(self, topic: str) -> list[Queue]:
        return [Queue.of(line) for line in self._call("queues", topic=topic)]

    def assign(self, queues: Iterable[Queue]) -> None:
        self._call("assign", queues=[queue.json() for queue in queues])

    def seek(self, queue: Queue, offset: int) -> None:
        self._call("seek", queue=queue.json(), offset=offset)

    def poll(self, timeout_ms: int = 1000) -> list[JsonObject]:
        messages: list[JsonObject] = self._call("poll", timeoutMs=timeout_ms)
        return messages

    def poll_until(self, count: int) -> list[JsonObject]:
        messages: list[JsonObject] = []
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while len(messages) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(messages)} of {count} messages polled")
            messages += self.poll()
        return messages

    def commit(self) -> None:
        self._call("commit")

    def committed(self, queue: Queue) -> int:
        return int(self._call("committed", queue=queue.json()))


class Admin(Part):
    sort = "admin"

    def __init__(self, client: JavaClient, namesrv: str) -> None:
        super().__init__(client, namesrv, options={})

    def create_topic(self, topic: str, broker: str, queues: int = 4) -> None:
        """On the broker at this address; clients can find it when this returns."""
        self._call("createTopic", topic=topic, broker=broker, queues=queues)

    def create_group(self, group: str, broker: str, **settings: OptionValue) -> None:
        self._call("createGroup", broker=broker, settings={"groupName": group} | settings)

    def route(self, topic: str) -> list[JsonObject]:
        """Per broker: `brokerName`, `readQueueNums`, `writeQueueNums`, `perm`."""
        lines: list[JsonObject] = self._call("route", topic=topic)
        return lines

    def progress(self, group: str, topic: str) -> dict[Queue, JsonObject]:
        """Per queue: how much is `stored` and how much the broker knows to be `consumed`."""
        lines = self._call("progress", group=group, topic=topic)
        return {Queue.of(line["queue"]): line for line in lines}

    def members(self, group: str) -> list[str]:
        ids: list[str] = self._call("members", group=group)
        return ids

    def reset_offset(self, group: str, topic: str, timestamp_ms: int) -> dict[Queue, int]:
        return self._reset("resetOffset", group, topic, timestamp_ms)

    def reset_offset_offline(self, group: str, topic: str, timestamp_ms: int) -> dict[Queue, int]:
        """The way of 4.x tools when no consumer is there: the tool itself sets the offsets."""
        return self._reset("resetOffsetOffline", group, topic, timestamp_ms)

    def _reset(self, op: str, group: str, topic: str, timestamp_ms: int) -> dict[Queue, int]:
        lines = self._call(op, group=group, topic=topic, timestamp=timestamp_ms)
        return {Queue.of(line["queue"]): line["offset"] for line in lines}
