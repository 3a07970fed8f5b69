"""A group's member in a process of its own, to be killed or to stand still.

As a program it consumes and writes down every delivery as a line; as a class it is the parent's
side of that process and enters those lines in the ledger, until there are none any more.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from typing import Final, Self

import msgspec

from cometmq.client.cluster import Cluster
from cometmq.client.consumer import locks
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.consumer.subscriptions import ConsumeFrom
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.message_queue import MessageQueue
from cometmq.transport.loop import run

from .ledger import Delivery, Group, Ledger
from .workload import OPTIONS, ORDERLY

START_S: Final = 20.0
_STDOUT: Final = 1


class Line(msgspec.Struct):
    """What the process tells of one delivery, at its beginning and at its end."""

    number: int
    at_ns: int
    is_end: bool
    queue: MessageQueue | None = None
    offset: int = 0
    body: str = ""


class Member:
    """The parent's side. `name` is the member's in the ledger."""

    def __init__(self, process: asyncio.subprocess.Process, ledger: Ledger, group: Group) -> None:
        self.name = f"process {process.pid}"
        self._process = process
        self._ledger = ledger
        self._group = group
        self._open: dict[int, Delivery] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls,
        cluster: Cluster,
        topic: str,
        kind: str,
        ledger: Ledger,
        group: Group,
        *,
        handler_s: float = 0.001,
        lock_lives_s: float = locks.LIVES_S,
    ) -> AsyncIterator[Self]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, cluster.addresses[0], topic, group.name, kind,
            f"--handler-s={handler_s}", f"--lock-lives-s={lock_lives_s}",
            f"--heartbeat-s={cluster.heartbeat_s}", f"--timeout-s={cluster.request_timeout_s}",
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        member = cls(process, ledger, group)
        try:
            yield member
        finally:
            await member.kill()

    async def kill(self) -> None:
        """Nothing that was at work comes to its end."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading
        for delivery in self._open.values():
            delivery.ended_ns = time.monotonic_ns()
        self._open.clear()

    def freeze(self) -> None:
        self._ledger.excuse_open(self._group, self.name)
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    async def is_at_work(self) -> None:
        """Return when it has had a message."""
        await self._ledger.until(
            lambda: any(one.member == self.name for one in self._group.deliveries),
            f"{self.name} gets a message",
            START_S,
        )

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for text in self._process.stdout:
            self._enter(msgspec.json.decode(text, type=Line))

    def _enter(self, line: Line) -> None:
        if line.is_end:
            self._ledger.end(self._group, self._open.pop(line.number), line.at_ns)
        else:
            assert line.queue is not None
            place, body = (line.queue, line.offset), line.body.encode()
            self._open[line.number] = self._ledger.begin(
                self._group, self.name, place, body, line.at_ns
            )


# -- the process itself --------------------------------------------------------------------------


async def consume(options: argparse.Namespace) -> None:
    locks.LIVES_S, locks.RENEW_S = options.lock_lives_s, options.lock_lives_s * 2 / 3
    numbers = iter(range(sys.maxsize))

    async def handle(message: ReceivedMessage) -> None:
        number = next(numbers)
        told = message.queue, message.queue_offset, message.body.decode()
        tell(Line(number, time.monotonic_ns(), False, *told))
        await asyncio.sleep(options.handler_s)
        tell(Line(number, time.monotonic_ns(), True))

    cluster = Cluster(
        options.namesrv,
        heartbeat_s=options.heartbeat_s,
        request_timeout_s=options.timeout_s,
        connect_timeout_s=options.timeout_s,
    )
    consumer = PushConsumer(
        cluster,
        group=options.group,
        topics=options.topic,
        handler=handle,
        orderly=options.kind == ORDERLY,
        consume_from=ConsumeFrom.FIRST,
        options=OPTIONS,
    )
    async with consumer:
        await asyncio.get_running_loop().create_future()


def tell(line: Line) -> None:
    """Told is told, whenever the process is killed."""
    os.write(_STDOUT, msgspec.json.encode(line) + b"\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("namesrv", "topic", "group", "kind"):
        parser.add_argument(name)
    for name in ("--handler-s", "--lock-lives-s", "--heartbeat-s", "--timeout-s"):
        parser.add_argument(name, type=float, required=True)
    run(consume(parser.parse_args()))


if __name__ == "__main__":
    main()
