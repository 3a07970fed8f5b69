"""A cluster's life in a few seconds: start, send, consume, kill, restart, look up.

    python -m examples.broker_demo [MESSAGES]

Starts `cometmq standalone` as a user would and uses it with the Python client.
"""

import asyncio
import signal
import sys
import tempfile
import time
from pathlib import Path

from cometmq.client import (
    Admin,
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)

TOPIC = "TopicTest"


class Cluster:
    """`cometmq standalone` as a process."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    async def start(self) -> str:
        """The NameServer's address."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cometmq.cli.main", "standalone", "--data-dir",
            str(self._data_dir), "--namesrv-port", "0", "--broker-port", "0",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None
        ready = (await self._process.stdout.readline()).decode().strip()
        print(f"  {ready}")
        return ready.split(" ")[1].removeprefix("namesrv=")

    async def end(self, number: signal.Signals) -> int:
        if self._process.returncode is None:
            self._process.send_signal(number)
        return await self._process.wait()


async def send_all(namesrv: str, count: int) -> None:
    async with Producer(namesrv, group="demo-producer", linger_s=0.002) as producer:
        orders = [
            Message(TOPIC, f"coffee {number}".encode(), tags="paid", keys=f"order-{number}")
            for number in range(count)
        ]
        await producer.send(orders[0])  # It makes the topic.
        start = time.perf_counter()
        *_, last = await asyncio.gather(*map(producer.send, orders[1:]))
        took = time.perf_counter() - start
    print(f"Sent {count} messages, {count / took:,.0f} a second; the last one's answer:")
    print(f"  {last.message_id} in queue {last.queue.queue_id} at {last.queue_offset}")


async def show_arrival(namesrv: str) -> None:
    """How long a message takes from a producer to a consumer that waits."""
    arrived: asyncio.Queue[float] = asyncio.Queue()

    async def handler(_: ReceivedMessage) -> None:
        arrived.put_nowait(time.perf_counter())

    async with Producer(namesrv, group="demo-producer") as producer:
        await producer.send(Message("Arrivals", b"here already"))
        async with PushConsumer(namesrv, group="demo-consumer", topics="Arrivals", handler=handler):
            await arrived.get()
            start = time.perf_counter()
            await producer.send(Message("Arrivals", b"one more"))
            took_ms = (await arrived.get() - start) * 1000
    print(f"A waiting consumer got a message {took_ms:.1f} ms after it was sent")


async def count_all(namesrv: str, expected: int) -> int:
    """Read every queue to its end with a new group."""
    count, complete = 0, asyncio.Event()

    async def handler(messages: list[ReceivedMessage]) -> None:
        nonlocal count
        count += len(messages)
        if count >= expected:
            complete.set()

    async with PushConsumer(
        namesrv,
        group="demo-auditor",
        topics=TOPIC,
        batch_handler=handler,
        consume_from=ConsumeFrom.FIRST,
    ):
        await asyncio.wait_for(complete.wait(), 30)
    return count


async def show(count: int, data_dir: Path) -> None:
    cluster = Cluster(data_dir)
    try:
        await show_life(cluster, count)
    finally:
        await cluster.end(signal.SIGKILL)  # Nothing to do when all went well.


async def show_life(cluster: Cluster, count: int) -> None:
    print("A NameServer and a broker:")
    namesrv = await cluster.start()
    await send_all(namesrv, count)
    await show_arrival(namesrv)

    print("Killed with SIGKILL and started again:")
    await cluster.end(signal.SIGKILL)
    namesrv = await cluster.start()
    found = await count_all(namesrv, count)
    print(f"{found} messages are there, {count - found or 'none'} lost")

    async with Admin(namesrv) as admin:
        (message,) = await admin.messages.by_key(TOPIC, f"order-{count - 1}")
        queue = message.queue.queue_id
        print(f"order-{count - 1} is in queue {queue} at {message.queue_offset}")
    status = await cluster.end(signal.SIGTERM)
    print(f"Stopped in order, exit code {status}")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory(prefix="cometmq-demo-") as data_dir:
        asyncio.run(show(count, Path(data_dir)))


if __name__ == "__main__":
    main()
