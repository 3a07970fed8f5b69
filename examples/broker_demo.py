"""A cluster's life in a few seconds: start, send, wait for a message, kill, restart, look up.

    python -m examples.broker_demo [MESSAGES]

Starts `cometmq standalone` as a user would and speaks RocketMQ's protocol to it, as any of
RocketMQ's clients does.
"""

import asyncio
import signal
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Command, Request
from cometmq.protocol.record import iter_records
from cometmq.transport.connection import Connection
from cometmq.transport.dial import connect

TOPIC = "TopicTest"
QUEUES = 4
ANSWER_S = 10.0


class Cluster:
    """`cometmq standalone` as a process, and a connection to its broker."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    async def start(self) -> Connection:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cometmq.cli.main", "standalone", "--data-dir",
            str(self._data_dir), "--namesrv-port", "0", "--broker-port", "0",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None
        ready = (await self._process.stdout.readline()).decode().strip()
        print(f"  {ready}")
        _, namesrv, _ = ready.split(" ")
        return await connect(await broker_address(namesrv.removeprefix("namesrv=")))

    async def end(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        return await self._process.wait()


async def broker_address(namesrv: str) -> str:
    """As clients do: ask a NameServer for the route of the topic after which others are made."""
    connection = await connect(namesrv)
    route = await ask(connection, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
    connection.close()
    address: str = msgspec.json.decode(route.body)["brokerDatas"][0]["brokerAddrs"]["0"]
    return address


async def ask(
    connection: Connection, code: RequestCode, fields: dict[str, str], body: bytes = b""
) -> Command:
    answer = await connection.request(Request(code, fields, body), ANSWER_S)
    if answer.code != 0:
        raise SystemExit(f"{code.name}: {answer.remark} ({answer.code})")
    return answer


async def send(connection: Connection, number: int) -> Command:
    fields = {
        "a": "demo-producer", "b": TOPIC, "c": "TBW102", "d": str(QUEUES),
        "e": str(number % QUEUES), "f": "0", "g": str(int(time.time() * 1000)), "h": "0",
        "i": f"KEYS\x01order-{number}\x02TAGS\x01paid\x02",
    }  # fmt: skip
    return await ask(connection, RequestCode.SEND_MESSAGE_V2, fields, f"coffee {number}".encode())


async def pull(connection: Connection, queue_id: int, offset: int, wait_ms: int = 0) -> Command:
    suspend, carries_subscription = (2 if wait_ms else 0), 4
    fields = {
        "consumerGroup": "demo-consumer", "topic": TOPIC, "queueId": str(queue_id),
        "queueOffset": str(offset), "maxMsgNums": "32", "commitOffset": "0", "subVersion": "0",
        "sysFlag": str(suspend | carries_subscription), "subscription": "*",
        "suspendTimeoutMillis": str(wait_ms),
    }  # fmt: skip
    return await connection.request(Request(RequestCode.PULL_MESSAGE, fields), ANSWER_S)


async def count_all(connection: Connection) -> int:
    """Read every queue to its end."""
    count = 0
    for queue_id in range(QUEUES):
        offset = 0
        while (answer := await pull(connection, queue_id, offset)).code == 0:
            count += sum(1 for _ in iter_records(memoryview(answer.body)))
            offset = int(answer.text_fields()["nextBeginOffset"])
    return count


async def show(count: int, data_dir: Path) -> None:
    cluster = Cluster(data_dir)
    print("A NameServer and a broker:")
    connection = await cluster.start()

    await send(connection, 0)  # the first message makes the topic
    start = time.perf_counter()
    answers = await asyncio.gather(*(send(connection, number) for number in range(1, count)))
    took = time.perf_counter() - start
    print(f"Sent {count} messages, {len(answers) / took:,.0f} a second; the last one's answer:")
    print(f"  {answers[-1].text_fields()}")

    queue_end = int(answers[-1].text_fields()["queueOffset"]) + 1
    queue_id = int(answers[-1].text_fields()["queueId"])
    waiting = asyncio.create_task(pull(connection, queue_id, queue_end, wait_ms=5000))
    await asyncio.sleep(0.2)
    start = time.perf_counter()
    await send(connection, queue_id)
    answer = await waiting
    (message,) = iter_records(memoryview(answer.body))
    elapsed_ms = (time.perf_counter() - start) * 1000
    print(f"A waiting pull got {message.body!r} {elapsed_ms:.1f} ms after it was sent")

    print("Killed with SIGKILL and started again:")
    await cluster.end(signal.SIGKILL)
    connection = await cluster.start()
    found = await count_all(connection)
    print(f"{found} messages are there, {count + 1 - found or 'none'} lost")

    fields = {
        "topic": TOPIC, "key": f"order-{count - 1}", "maxNum": "1", "beginTimestamp": "0",
        "endTimestamp": str(1 << 62),
    }  # fmt: skip
    answer = await ask(connection, RequestCode.QUERY_MESSAGE, fields)
    (message,) = iter_records(memoryview(answer.body))
    print(f"order-{count - 1} is in queue {message.queue_id} at {message.queue_offset}")
    status = await cluster.end(signal.SIGTERM)
    print(f"Stopped in order, exit code {status}")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000
    with tempfile.TemporaryDirectory(prefix="cometmq-demo-") as data_dir:
        asyncio.run(show(count, Path(data_dir)))


if __name__ == "__main__":
    main()
