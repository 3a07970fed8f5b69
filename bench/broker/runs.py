"""How a case is measured at a running cluster. Each run ends with figures by unit, or raises."""

import asyncio
import itertools
import os
import selectors
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from interop import toolchain
from interop.rocketmq import Broker
from interop.systems import Cluster

from cometmq.client import Admin, BrokerFailed, TopicNotFound

from ..child import ChildFailed
from ..report import Figures
from .cases import CPU, Case
from .load import Load
from .sides import cpu_s, own_memory_mib
from .wire import pull_frame, split, wait_until_acknowledged

JAVA_VERSION: Final = toolchain.JAVA_CLIENT_VERSIONS[-1]
JAVA_RUNS: Final = Path(__file__).parents[1] / "java" / "BrokerRuns.java"
RUN_TIMEOUT_S: Final = 240.0
READY_TIMEOUT_S: Final = 300.0
ROUTE_TIMEOUT_S: Final = 20.0
POLL_S: Final = 0.05
IDLE_S: Final = 5.0
"""For a broker to come to rest before its memory is looked at."""
WAITING_PULLS: Final = 1000
WAITING_CONNECTIONS: Final = 50
WAITING_MS: Final = 60_000
FILL_BODY_BYTES: Final = 16 * 1024
GIB: Final = 1 << 30
_numbers = itertools.count(1)


class Place(NamedTuple):
    """Where a case runs, and how large it is there."""

    cluster: Cluster
    home: Path
    share: float
    """Of each case's messages."""
    growth_gib: float = 0.0
    recovery_gib: float = 0.0
    replicas: tuple[Broker, ...] = ()
    """Brokers that have copies of what the cluster's takes."""

    @property
    def pid(self) -> int:
        return self.cluster.broker.pid

    def cpu_s(self) -> float:
        """Of the broker and all who have copies."""
        return sum(cpu_s(each.pid) for each in (self.cluster.broker, *self.replicas))

    def sized(self, messages: int) -> int:
        return max(round(messages * self.share), 100)


Run = Callable[[Place, Case], Figures]


# -- a load, and the broker's CPU time meanwhile --------------------------------------------------


def java(place: Place, case: Case) -> Figures:
    return _java(place, case, new_topic(place, case.queues))


def _java(place: Place, case: Case, topic: str) -> Figures:
    warm, count = place.sized(case.warm), place.sized(case.count)
    return _measured(place, _java_command(place, case.kind, case, topic, warm, count), count)


def _java_command(
    place: Place, kind: str, case: Case, topic: str, warm: int, count: int
) -> list[str]:
    # The machine's own choice of collector and compilers, as a user has it.
    options = ["-Xmx512m", f"-Duser.home={place.home}", f"-Dinterop.log={os.devnull}"]
    classes = ["-cp", toolchain.java_client_classpath(JAVA_VERSION), str(JAVA_RUNS)]
    numbers = [str(number) for number in (warm, count, case.together, case.body)]
    namesrv = place.cluster.namesrv.address
    return [toolchain.tools().java, *options, *classes, kind, namesrv, topic, *numbers]


def raw(place: Place, case: Case) -> Figures:
    return _raw(place, case, new_topic(place, case.queues))


def ping(place: Place, case: Case) -> Figures:
    return _raw(place, case, new_topic(place, case.queues), "bench.broker.ping")


def _raw(place: Place, case: Case, topic: str, program: str = "bench.broker.load") -> Figures:
    load = Load(
        place.cluster.broker.address, topic, place.sized(case.warm), place.sized(case.count),
        case.body, case.queues, case.connections, case.together,
    )  # fmt: skip
    return _measured(place, _load_command(load, program), load.count)


def _load_command(load: Load, program: str = "bench.broker.load") -> list[str]:
    return [sys.executable, "-m", program, msgspec.json.encode(load).decode()]


def _measured(place: Place, command: list[str], count: int) -> Figures:
    """Run a program that says when its messages begin and what it saw."""
    began_cpu_s = 0.0
    for line in _lines(command):
        if line == "begin":
            began_cpu_s = place.cpu_s()
        elif line.startswith("{"):
            used_s = place.cpu_s() - began_cpu_s
            seen = msgspec.json.decode(line, type=dict[str, float])
            return {CPU: used_s / count * 1e6, **seen}
    raise ChildFailed(f"no figures from {command[0]}")


def _lines(command: list[str]) -> Iterator[str]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        timer = threading.Timer(RUN_TIMEOUT_S, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                yield line.strip()
            if process.wait():
                raise ChildFailed(f"{Path(command[0]).name} ended with {process.returncode}")
        finally:
            timer.cancel()
            process.kill()


def new_topic(place: Place, queues: int) -> str:
    topic = f"bench-{next(_numbers)}"
    asyncio.run(_create(place.cluster.namesrv.address, topic, queues))
    return topic


async def _create(namesrv: str, topic: str, queues: int) -> None:
    """Create a topic and wait until every client will find it."""
    deadline = time.monotonic() + ROUTE_TIMEOUT_S
    failure: Exception | None = None
    async with Admin(namesrv) as admin:
        while time.monotonic() < deadline:
            try:
                await admin.topics.create(topic, queues=queues)
                if (await admin.topics.route(topic)).queue_datas:
                    return
            except (TopicNotFound, BrokerFailed) as error:
                # NameServers hear a moment later who leads a group; whoever does not, refuses.
                failure = error
            await asyncio.sleep(POLL_S)
    raise ChildFailed(f"no NameServer knows {topic}") from failure


# -- backlogs -------------------------------------------------------------------------------------


def drain(place: Place, case: Case) -> Figures:
    topic = _backlog(place, case)
    return _java(place, case, topic)


def old(place: Place, case: Case) -> Figures:
    """The same, but nothing of it is in the page cache."""
    topic = _backlog(place, case)
    place.cluster.broker.stop()
    for path in place.cluster.broker.store.rglob("*"):
        if path.is_file():
            _forget_pages(path)
    place.cluster.broker.start()
    return _java(place, case, topic)


def _backlog(place: Place, case: Case) -> str:
    topic = new_topic(place, case.queues)
    count = place.sized(case.warm) + place.sized(case.count)
    for _ in _lines(_java_command(place, "batch", case, topic, 0, count)):
        pass
    return topic


def _forget_pages(path: Path) -> None:
    """Possible while nobody has the file mapped."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


# -- pulls that wait ------------------------------------------------------------------------------


def waiting(place: Place, case: Case) -> Figures:
    """A busy topic while a thousand pulls wait on the queues of another one."""
    topic = new_topic(place, WAITING_PULLS)
    waits = _WaitingPulls(place.cluster.broker.address, topic)
    waits.start()
    try:
        return java(place, case)
    finally:
        waits.stop()


class _WaitingPulls(threading.Thread):
    """Pulls that wait for longer than a run takes; what comes back all the same is read."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(name="waiting-pulls")
        self._topic = topic
        self._ended = threading.Event()
        self._selector = selectors.DefaultSelector()
        each = WAITING_PULLS // WAITING_CONNECTIONS
        for number in range(WAITING_CONNECTIONS):
            connection = socket.create_connection(split(address))
            self._selector.register(connection, selectors.EVENT_READ, number * each)
            for queue in range(number * each, (number + 1) * each):
                connection.sendall(pull_frame(topic, queue, 0, queue, WAITING_MS))

    def run(self) -> None:
        while not self._ended.is_set():
            for key, _ in self._selector.select(POLL_S):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                if not connection.recv(1 << 16):
                    self._selector.unregister(connection)

    def stop(self) -> None:
        self._ended.set()
        self.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()


# -- memory, time to start ------------------------------------------------------------------------


def memory_idle(place: Place, _: Case) -> Figures:
    time.sleep(IDLE_S)
    return {"mib": own_memory_mib(place.pid)}


def memory_load(place: Place, case: Case) -> Figures:
    java(place, case)
    return {"mib": own_memory_mib(place.pid)}


def start_up(place: Place, _: Case) -> Figures:
    """From the start of the process to the first message that it acknowledges."""
    place.cluster.broker.stop()
    shutil.rmtree(place.cluster.broker.store)
    return {"s": _time_to_serve(place)}


def recovery(place: Place, case: Case) -> Figures:
    """The same after a kill, with a large log."""
    topic = new_topic(place, case.queues)
    _fill(place, topic, place.recovery_gib)
    place.cluster.broker.kill()
    return {"s": _time_to_serve(place)}


def _time_to_serve(place: Place) -> float:
    broker = place.cluster.broker
    began = time.monotonic()
    starting = threading.Thread(target=broker.start)
    starting.start()
    try:
        wait_until_acknowledged(broker.address, "bench-first", READY_TIMEOUT_S)
        return time.monotonic() - began
    finally:
        starting.join()


# -- growth ---------------------------------------------------------------------------------------


def growth(place: Place, case: Case) -> Figures:
    """What a message costs at the first GiB of a log, and at the last."""
    topic = new_topic(place, case.queues)
    first_gib, last_gib = min(1.0, place.growth_gib / 4), place.growth_gib
    _fill(place, topic, first_gib)
    first = _raw(place, case, topic)[CPU]
    _fill(place, topic, last_gib - first_gib)
    return {"first_gib": first, "last_gib": _raw(place, case, topic)[CPU]}


def _fill(place: Place, topic: str, gib: float) -> None:
    count = max(int(gib * GIB / FILL_BODY_BYTES), 64)
    load = Load(place.cluster.broker.address, topic, 0, count, FILL_BODY_BYTES, together=64)
    for _ in _lines(_load_command(load)):
        pass


RUNS: Final[dict[str, Run]] = {
    "java": java, "raw": raw, "ping": ping, "drain": drain, "old": old, "waiting": waiting,
    "memory_idle": memory_idle, "memory_load": memory_load, "start_up": start_up,
    "recovery": recovery, "growth": growth,
}  # fmt: skip
