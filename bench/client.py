"""Benchmark of the Python client: `python -m bench.client`.

Ours runs on uvloop; peers are the same client on asyncio's own loop, the Java client and the other
Python clients, against the same broker: CometMQ's, or the real RocketMQ's (`--system rocketmq`).
Each run is a process of its own, and the clients take turns. After each run that sends, the broker
must have exactly what was sent.
"""

import argparse
import asyncio
import contextlib
import itertools
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec
from interop.rocketmq import ConfigValue, RocketMQError
from interop.systems import SYSTEMS, running
from interop.toolchain import ToolchainError

from cometmq.client import Admin, TopicNotFound

from . import ending
from .child import ChildFailed, Task
from .peers import COMETMQ, PEERS, Peer, Place, Run, ours
from .report import Figures, Line, line, markdown, median, print_lines, progress, table, told

QUEUES = 8
QUICK_SHARE = 0.02
QUICK_PEERS = ("asyncio",)
WAIT_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.1
# As RocketMQ ships them: nothing about small test stores should show in the figures.
BROKER_CONFIG: Mapping[str, ConfigValue] = {
    "mappedFileSizeCommitLog": 1 << 30,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}


class Case(msgspec.Struct, frozen=True):
    """`warm` messages before the `count` that are measured."""

    warm: int
    count: int
    aim_per_cpu_s: int = 0
    """Messages a second and core of the client."""
    drains: bool = False
    """Consumes a backlog, the same in all runs."""
    units: tuple[str, ...] = ("cpu_us_per_msg", "msgs_per_s")


# Warm-ups are long because of the Java client: before some ten thousand calls, it is its compiler
# that is measured.
CASES = {
    "sync": Case(8_000, 4_000),
    "in_flight": Case(60_000, 30_000, 20_000),
    "in_tasks": Case(20_000, 30_000, 20_000),
    "auto_batch": Case(150_000, 100_000, 150_000),
    "batch_32": Case(100_000, 60_000),
    "one_way": Case(60_000, 30_000),
    "push": Case(120_000, 80_000, 100_000, drains=True),
    "push_batch": Case(120_000, 80_000, 100_000, drains=True),
    "push_plain": Case(120_000, 80_000, drains=True),
    "pull_poll": Case(120_000, 80_000, 100_000, drains=True),
    "pull_for": Case(120_000, 80_000, 100_000, drains=True),
    "latency": Case(8_000, 4_000, units=("p50_us", "p99_us")),
}
OURS = "cometmq"


class Bench:
    """Runs measurements of ours and of the peers at one cluster."""

    def __init__(self, namesrv: str, *, share: float, repeat: int) -> None:
        """`share` of each case's messages."""
        self._namesrv = namesrv
        self._share = share
        self._repeat = repeat
        self._topics = itertools.count(1)
        self._clients: dict[str, tuple[Peer, Run]] = {OURS: (COMETMQ, ours)}

    def add(self, key: str, place: Place) -> None:
        peer = PEERS[key]
        try:
            if peer.system and peer.system != place.cluster.system.name:
                raise RocketMQError(f"it needs --system {peer.system}")
            self._clients[key] = peer, peer.make(place)
        except (ToolchainError, RocketMQError) as error:
            _tell_missing(peer.name, error)

    def measure(self, name: str) -> Iterator[Line]:
        """Rounds in which each client has its turn. A peer that fails is left out."""
        keys = [key for key, (peer, _) in self._clients.items() if name in peer.cases]
        figures: dict[str, list[Figures]] = {key: [] for key in keys}
        backlog = self._backlog(CASES[name]) if CASES[name].drains else ""
        for _ in range(self._repeat):
            for key in list(figures):
                try:
                    figures[key].append(self._run(key, name, backlog))
                except ChildFailed as error:
                    if key == OURS:
                        raise
                    _tell_missing(PEERS[key].name, error)
                    del figures[key]
        return _lines(name, figures)

    def _run(self, key: str, name: str, backlog: str) -> Figures:
        peer, run = self._clients[key]
        warm, count = self._sizes(CASES[name], 1.0 if backlog else peer.share)
        topic = backlog or self._new_topic()
        figures = run(peer.cases[name], self._task(topic, warm, count))
        if not backlog:
            asyncio.run(_wait_until_stored(self._namesrv, topic, warm + count))
        progress(f"{name} {key}: {told(figures)}")
        return figures

    def _sizes(self, case: Case, share: float) -> tuple[int, int]:
        return round(case.warm * self._share * share), round(case.count * self._share * share)

    def _task(self, topic: str, warm: int, count: int) -> Task:
        return {"namesrv": self._namesrv, "topic": topic, "warm": warm, "count": count}

    def _backlog(self, case: Case) -> str:
        """A topic with messages to drain."""
        topic = self._new_topic()
        ours("batch_32", self._task(topic, *self._sizes(case, 1.0)))
        return topic

    def _new_topic(self) -> str:
        topic = f"bench-{next(self._topics)}"
        asyncio.run(_create(self._namesrv, topic))
        return topic


def _tell_missing(name: str, error: Exception) -> None:
    progress(f"peer not run: {name}: {str(error).splitlines()[0]}")


async def _create(namesrv: str, topic: str) -> None:
    """Create a topic and wait until every client will find it."""
    async with Admin(namesrv) as admin:
        await admin.topics.create(topic, queues=QUEUES)

        async def missing() -> str:
            with contextlib.suppress(TopicNotFound):
                if (await admin.topics.route(topic)).queue_datas:
                    return ""
            return f"no NameServer knows {topic}"

        await _wait_until_nothing(missing)


async def _wait_until_stored(namesrv: str, topic: str, messages: int) -> None:
    async with Admin(namesrv) as admin:

        async def missing() -> str:
            stored = (await admin.topics.stats(topic)).messages
            return "" if stored == messages else f"{messages} messages sent, {stored} are stored"

        await _wait_until_nothing(missing)


async def _wait_until_nothing(missing: Callable[[], Awaitable[str]]) -> None:
    """Wait until nothing is missing; what is, at the end, is said."""
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    while what := await missing():
        if time.monotonic() > deadline:
            raise ChildFailed(what)
        await asyncio.sleep(POLL_INTERVAL_S)


def _lines(name: str, figures: dict[str, list[Figures]]) -> Iterator[Line]:
    case, mine = CASES[name], figures.pop(OURS)
    if case.aim_per_cpu_s:
        unit = "msgs_per_cpu_s"
        yield line(name, median(mine, unit), case.aim_per_cpu_s, unit, "aim")
    for key, runs in figures.items():
        for unit in case.units:
            yield line(name, median(mine, unit), median(runs, unit), unit, PEERS[key].name)


def main() -> int:
    options = _arguments()
    lines: list[Line] = []
    try:
        for each in _measured(options):
            lines.append(each)
            if not options.markdown:
                print_lines([each])
    except (ChildFailed, RocketMQError, ToolchainError) as error:
        progress(f"stopped: {error}")
        return 1
    if options.markdown:
        print(markdown(lines))
    progress("\n" + table(lines))
    return 0


def _measured(options: argparse.Namespace) -> Iterator[Line]:
    with tempfile.TemporaryDirectory(prefix="bench-client-") as root, ExitStack() as stack:
        cluster = stack.enter_context(running(SYSTEMS[options.system], Path(root), BROKER_CONFIG))
        bench = Bench(
            cluster.namesrv.address,
            share=QUICK_SHARE if options.quick else 1.0,
            repeat=options.repeat or (1 if options.quick else 3),
        )
        home = Path(root) / "peers"
        home.mkdir()
        for key in options.peers or (QUICK_PEERS if options.quick else PEERS):
            bench.add(key, Place(cluster, home, stack))
        for name in options.cases or CASES:
            yield from bench.measure(name)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.client", description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, help="only these")
    parser.add_argument("--peers", nargs="+", choices=PEERS, help="only these (quick: asyncio)")
    parser.add_argument("--system", choices=SYSTEMS, default="cometmq", help="whose broker")
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the messages")
    parser.add_argument("--repeat", type=int, help="runs a figure (3, quick 1)")
    parser.add_argument("--markdown", action="store_true", help="print rows for the docs instead")
    return parser.parse_args()


if __name__ == "__main__":
    ending.run(main)
