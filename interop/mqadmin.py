"""mqadmin 5.5.0 as one long-lived process: commands in, what they print out.

The commands are RocketMQ's own, unmodified; `java/…/Admin.java` runs them one after another, since
a JVM for each would take most of the time. The same process holds the clients they report on.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from interop import toolchain
from interop.rocketmq import JVM_COMMON, JsonObject, RocketMQError

COMMAND_LIMIT_S = 20.0
ANSWER_LIMIT_S = 60.0
EVENTUALLY_LIMIT_S = 15.0
POLL_INTERVAL_S = 0.2
# mqadmin prints a stack trace and ends as if all were well.
TRACE = re.compile(r"[\w.$]+\.\w*(?:Exception|Error)\b.*|^\s+at .*", re.MULTILINE)
FIELD = re.compile(r"^([^\s:=][^:=\n]*?)[ \t]*[:=][ \t]*(.*?)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class Message:
    """What to send and to which queue."""

    queue: int
    body: str
    keys: str
    tags: str


@dataclass(frozen=True)
class Place:
    """Where a message that was sent is."""

    msg_id: str
    offset_msg_id: str
    queue_id: int
    queue_offset: int

    @classmethod
    def from_json(cls, line: JsonObject) -> Self:
        return cls(line["msgId"], line["offsetMsgId"], line["queueId"], line["queueOffset"])

    @property
    def log_offset(self) -> int:
        """An offset id is the broker's address and port, then the offset in the log: 16 digits."""
        return int(self.offset_msg_id[-16:], 16)


@dataclass(frozen=True)
class Printed:
    """What one command printed."""

    text: str
    hung: str | None

    @property
    def trace(self) -> str:
        """The lines that tell of an exception."""
        return "\n".join(match.group() for match in TRACE.finditer(self.text))

    @property
    def rows(self) -> list[list[str]]:
        """The cells of every line."""
        return [line.split() for line in self.text.splitlines() if line.strip()]

    def rows_of(self, *first: str) -> list[list[str]]:
        """The rows that begin with these cells, without them."""
        return [row[len(first) :] for row in self.rows if row[: len(first)] == list(first)]

    @property
    def fields(self) -> dict[str, str]:
        """Lines of the form `name = value` or `name: value`."""
        return dict(FIELD.findall(self.text))


def eventually(
    holds: Callable[[], object], otherwise: Callable[[], str], limit_s: float = EVENTUALLY_LIMIT_S
) -> None:
    """Wait for what a server does in its own time, or say what there is instead."""
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(POLL_INTERVAL_S)


class MqAdmin:
    """mqadmin and its clients, against one name server; leaving it ends the process."""

    def __init__(self, namesrv: str, home: Path) -> None:
        home.mkdir(parents=True)
        self.home = home
        self.namesrv = namesrv
        self.log = home / "rocketmq.log"
        properties = [f"-Dinterop.log={self.log}", f"-Djava.io.tmpdir={home}"]
        jvm = [toolchain.tools().java, *JVM_COMMON, "-Xmx256m", *properties]
        self._process = subprocess.Popen(
            [*jvm, "-cp", toolchain.classpath(), "cometmq.interop.Admin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=home,  # consumerStatus writes its files where it stands.
        )

    def commands(self) -> list[str]:
        """The names of all commands there are."""
        return [command["name"] for command in self._ask("commands")["commands"]]

    def run(self, *args: str, until: str | None = None) -> Printed:
        """Run a command to its end, or until its output has this pattern, whatever it prints."""
        command = [args[0], "-n", self.namesrv, *args[1:]]
        limit_ms = int(COMMAND_LIMIT_S * 1000)
        answer = self._ask("run", args=command, limitMs=limit_ms, until=until)
        return Printed(answer["output"], answer["hung"])

    def show(self, *args: str, until: str | None = None) -> Printed:
        """Run a command that must end by itself and without an exception."""
        printed = self.run(*args, until=until)
        assert not printed.hung, f"{args} does not end:\n{printed.text}\n{printed.hung}"
        assert not printed.trace, f"{args}:\n{printed.text}"
        return printed

    def show_when(self, fact: Callable[[Printed], object], *args: str) -> Printed:
        """Show a command's output once the fact holds; what servers do later gets its time."""
        shown: list[Printed] = []

        def holds() -> bool:
            shown.append(self.run(*args))
            return not shown[-1].trace and bool(fact(shown[-1]))

        eventually(holds, lambda: f"{args} still shows:\n{shown[-1].text}")
        return shown[-1]

    def produce(
        self, group: str, topic: str, messages: Sequence[Message], trace_topic: str | None = None
    ) -> list[Place]:
        """Send by a producer of this group, which stays online."""
        wanted = [vars(message) for message in messages]
        answer = self._ask(
            "produce", group=group, topic=topic, messages=wanted, traceTopic=trace_topic
        )
        return [Place.from_json(sent) for sent in answer["sent"]]

    def consume(self, group: str, topic: str, count: int) -> JsonObject:
        """Have so many messages consumed by a push consumer of this group, which stays online."""
        return self._ask("consume", group=group, topic=topic, count=count)

    def leave(self, group: str) -> None:
        """Take the consumer of this group offline."""
        self._ask("leave", group=group)

    def _ask(self, what: str, **request: Any) -> JsonObject:
        line = json.dumps({"do": what, "namesrv": self.namesrv, **request})
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        alarm = threading.Timer(ANSWER_LIMIT_S, self._process.kill)
        alarm.start()
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        finally:
            alarm.cancel()
        if not answer:
            raise RocketMQError(f"mqadmin's process ended, or took too long, in: {line}")
        answered: JsonObject = json.loads(answer)
        if "failed" in answered:
            raise RocketMQError(f"{line}\n{answered['failed']}")
        return answered

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
