"""Servers under what no client of good will sends: damaged frames, silence, connections by the
thousand. They stay the same processes, keep their memory within bounds and go on serving.

`COMETMQ_FUZZ_SEED` repeats a run; `COMETMQ_INTEROP_SET=short` sends 50,000 frames, not a million.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import resource
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.transport.mutants import whole
from tests.transport.seeds import SEEDS, Seed
from tests.transport.storm import storm

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Request
from cometmq.protocol.host import Host
from cometmq.protocol.record import iter_records
from cometmq.transport.connection import Connection
from cometmq.transport.dial import connect
from interop import systems
from interop.comet import Broker, NameServer
from interop.rocketmq import ConfigValue

SHORT = systems.IS_SHORT
FRAMES = 50_000 if SHORT else 1_000_000
WARM_UP_FRAMES = 10_000
SEED = int(os.environ.get("COMETMQ_FUZZ_SEED") or random.SystemRandom().randrange(10**9))
GROWTH_BYTES_MAX = 64 * 1024**2

CONNECTIONS = 5_000
CONNECTIONS_RESIDENT_BYTES_MAX = 150 * 1024**2
FILES_NEEDED = 2 * CONNECTIONS
IDLE_S = 2
CLOSING_TIMEOUT_S = 20.0
REQUEST_TIMEOUT_S = 30.0
TOPIC = "Survivor"
SMALL_STORE: dict[str, ConfigValue] = {
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 20 * 1000,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
}


class Site:
    """A name server and a broker with their homes, for tests that look at the processes."""

    def __init__(self, home: Path, config: dict[str, ConfigValue]) -> None:
        self._home = home
        self.namesrv = NameServer(home / "namesrv")
        self.broker = Broker(
            home / "broker",
            home / "store",
            self.namesrv.address,
            config={**SMALL_STORE, **config},
        )

    def start(self) -> None:
        self.namesrv.start()
        self.broker.start()

    def kill(self) -> None:
        self.broker.kill()
        self.namesrv.kill()

    def log(self, role: str) -> str:
        return (self._home / role / "server.out").read_text(errors="replace")


@pytest.fixture
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    started = Site(tmp_path, getattr(request, "param", {}))
    try:
        started.start()
        yield started
    finally:
        started.kill()


def anonymous_bytes(pid: int) -> int:
    """Memory of a process's own, without the pages of mapped files."""
    return _kib(Path(f"/proc/{pid}/smaps_rollup").read_text(), "Anonymous:")


def resident_bytes(pid: int) -> int:
    return _kib(Path(f"/proc/{pid}/status").read_text(), "VmRSS:")


def _kib(text: str, name: str) -> int:
    (line,) = (line for line in text.splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 200:
        pytest.skip(f"{count} open files are needed, {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 200), hard))


async def ask(
    connection: Connection, code: RequestCode, body: bytes = b"", **fields: str
) -> Command:
    answer = await connection.request(Request(code, fields, body), REQUEST_TIMEOUT_S)
    assert answer.code == ResponseCode.SUCCESS, (code.name, answer.code, answer.remark)
    return answer


async def send_and_pull(address: str) -> None:
    """A message goes in and comes out again."""
    body = b"after the storm %d" % time.monotonic_ns()
    connection = await connect(address)
    try:
        # The storm may have turned this one down, as an operator may.
        await ask(connection, RequestCode.UPDATE_BROKER_CONFIG, b"maxMessageSize=4194304\n")
        await ask(
            connection, RequestCode.UPDATE_AND_CREATE_TOPIC, topic=TOPIC, defaultTopic="TBW102",
            readQueueNums="1", writeQueueNums="1", perm="6", topicFilterType="SINGLE_TAG",
        )  # fmt: skip
        sent = await ask(
            connection, RequestCode.SEND_MESSAGE_V2, body, a="survivors", b=TOPIC, c="TBW102",
            d="4", e="0", f="0", g="1794781641519", h="0", i="TAGS\x01TagA\x02",
        )  # fmt: skip
        offset = sent.text_fields()["queueOffset"]
        found = await ask(
            connection, RequestCode.PULL_MESSAGE, consumerGroup="survivors", topic=TOPIC,
            queueId="0", queueOffset=offset, maxMsgNums="1", sysFlag="4", commitOffset="0",
            suspendTimeoutMillis="0", subscription="*", subVersion="0",
        )  # fmt: skip
    finally:
        connection.close()
    assert [record.body for record in iter_records(memoryview(found.body))] == [body]


async def register_and_route(address: str) -> None:
    """A broker registers with a topic, and its route is found."""
    # Two topics: a broker's first registration with just one is refused, as in RocketMQ.
    topics = {
        name: {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        for name in (TOPIC, "Other")
    }
    version = {"counter": 9, "stateVersion": 0, "timestamp": 9}
    wrapper = {"dataVersion": version, "topicConfigTable": topics}
    body = json.dumps({"topicConfigSerializeWrapper": wrapper, "filterServerList": []}).encode()
    connection = await connect(address)
    try:
        await ask(
            connection, RequestCode.REGISTER_BROKER, body, brokerName="survivor", brokerId="0",
            brokerAddr="127.0.0.1:1", clusterName="survivors", haServerAddr="127.0.0.1:2",
        )  # fmt: skip
        route = await ask(connection, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=TOPIC)
    finally:
        connection.close()
    assert b'"0":"127.0.0.1:1"' in route.body


async def send_seeds(address: str) -> None:
    """Every plausible request once, undamaged; each is answered."""
    connection = await connect(address)
    for seed in SEEDS:
        request = Request(seed.code, dict(seed.fields), seed.body)
        await connection.request(request, REQUEST_TIMEOUT_S)
    connection.close()


def host_of(address: str) -> Host:
    host, _, port = address.rpartition(":")
    return Host(host, int(port))


# -- damaged frames ------------------------------------------------------------------------------


@pytest.mark.timeout(3600)
def test_a_broker_outlives_a_million_damaged_frames(site: Site) -> None:
    print(f"COMETMQ_FUZZ_SEED={SEED}")
    broker = site.broker
    pid = broker.pid
    asyncio.run(send_seeds(broker.address))
    asyncio.run(storm(host_of(broker.address), SEED + 1, WARM_UP_FRAMES))
    before = anonymous_bytes(pid)

    asyncio.run(storm(host_of(broker.address), SEED, FRAMES))

    asyncio.run(send_and_pull(broker.address))
    grown = anonymous_bytes(pid) - before
    print(f"{FRAMES} frames, memory grew by {grown / 1024**2:.1f} MiB")
    assert broker.pid == pid
    assert "Traceback" not in site.log("broker")
    assert grown < GROWTH_BYTES_MAX
    broker.stop()


@pytest.mark.timeout(3600)
def test_a_name_server_outlives_damaged_frames(site: Site) -> None:
    print(f"COMETMQ_FUZZ_SEED={SEED}")
    namesrv = site.namesrv
    pid = namesrv.pid
    asyncio.run(send_seeds(namesrv.address))
    asyncio.run(storm(host_of(namesrv.address), SEED + 1, WARM_UP_FRAMES))
    before = anonymous_bytes(pid)

    asyncio.run(storm(host_of(namesrv.address), SEED, FRAMES // 5))

    asyncio.run(register_and_route(namesrv.address))
    grown = anonymous_bytes(pid) - before
    print(f"{FRAMES // 5} frames, memory grew by {grown / 1024**2:.1f} MiB")
    assert namesrv.pid == pid
    assert "Traceback" not in site.log("namesrv")
    assert grown < GROWTH_BYTES_MAX
    namesrv.stop()


# -- many and slow connections -------------------------------------------------------------------


def test_thousands_of_idle_connections_cost_little_and_are_all_served(site: Site) -> None:
    allow_files(FILES_NEEDED)
    address = host_of(site.broker.address)
    ping = whole(SEEDS[0], 1)
    held: list[socket.socket] = []
    try:
        while len(held) < CONNECTIONS:
            held.append(socket.create_connection(address, timeout=REQUEST_TIMEOUT_S))
        for connection in held:
            connection.sendall(ping)
        for connection in held:
            assert connection.recv(65536)
        resident = resident_bytes(site.broker.pid)
        print(f"{CONNECTIONS} connections, {resident / 1024**2:.1f} MiB resident")

        assert resident < CONNECTIONS_RESIDENT_BYTES_MAX
        asyncio.run(send_and_pull(site.broker.address))
    finally:
        for connection in held:
            connection.close()
    asyncio.run(send_and_pull(site.broker.address))


@pytest.mark.parametrize("site", [{"serverChannelMaxIdleTimeSeconds": IDLE_S}], indirect=True)
def test_connections_that_are_silent_slow_or_deaf_are_closed(site: Site) -> None:
    address = host_of(site.broker.address)
    with (
        socket.create_connection(address) as silent,
        socket.create_connection(address) as slow,
        socket.create_connection(address) as deaf,
    ):
        ask_without_reading(deaf, whole(Seed(RequestCode.GET_BROKER_CONFIG, {}), 1))
        dribble_until_closed(slow, whole(Seed(RequestCode.SEND_MESSAGE, {}, bytes(10_000)), 2))
        wait_until_closed(silent)
        wait_until_closed(deaf)
    asyncio.run(send_and_pull(site.broker.address))


def ask_without_reading(connection: socket.socket, request: bytes) -> None:
    """Until the other side takes no more."""
    connection.settimeout(IDLE_S / 4)
    with contextlib.suppress(TimeoutError, ConnectionError):
        while True:
            connection.sendall(request * 100)


def dribble_until_closed(connection: socket.socket, frame: bytes) -> None:
    """A byte at a time, so that something always comes and nothing is ever complete."""
    deadline = time.monotonic() + CLOSING_TIMEOUT_S
    connection.settimeout(IDLE_S / 20)
    for byte in frame:
        try:
            connection.sendall(bytes([byte]))
            if not connection.recv(1):
                return
        except TimeoutError:
            assert time.monotonic() < deadline
        except ConnectionError:
            return


def wait_until_closed(connection: socket.socket) -> None:
    """Without reading: who reads is not deaf."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    assert poll.poll(CLOSING_TIMEOUT_S * 1000), "the connection was not closed"
