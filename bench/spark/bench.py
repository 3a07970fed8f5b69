"""Runs cases on the same messages in both systems, each side in its turn."""

import asyncio
import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from cometmq.client import Admin

from ..child import Task, run_child
from ..report import Figures, Line, line, median, progress, told
from ..used_memory import Fill
from .cases import CASES, DECODED, KAFKA_SINK, Place, Side
from .fill import QUEUES
from .processes import CpuMeter
from .spark_process import SparkProcess
from .table import PURE, Row

TOPIC: Final = "bench"
PURE_TOPIC: Final = "bench-few"
"""For plain Python, which is slow enough to be measured with less."""
PURE_SHARE: Final = 0.05
WARM_UP: Final = 2
"""Rounds that are not counted: Java's compiler goes on for longer than one."""
DECODER_AIM: Final = 8_000_000
DECODER: Final = "bench.spark.decoder"


class Pids(NamedTuple):
    """Of the brokers."""

    ours: int
    kafka: int


class Bench:
    def __init__(
        self, place: Place, pids: Pids, *, messages: int, repeat: int, fill_memory: Fill
    ) -> None:
        self._place = place
        self._pids = pids
        self._messages = messages
        self._repeat = repeat
        self._fill_memory = fill_memory
        self._sinks = 0

    def fill_kafka(self, spark: SparkProcess) -> None:
        figures = spark.run(KAFKA_SINK.run(self._place, TOPIC, self._messages))
        progress(f"Kafka's topic is filled: {told(figures)}")

    def create_topics(self) -> None:
        for topic in (TOPIC, PURE_TOPIC):
            asyncio.run(_create(self._place.namesrv, topic))

    def check(self, spark: SparkProcess, names: Sequence[str]) -> None:
        """Whether all messages are there, by every way in which they will be read."""
        sides = [side for name in names for side in (CASES[name].ours, CASES[name].kafka)]
        for format_name in {side.format for side in sides if side.kind != "sink"}:
            spark.run(Side("sink", format_name).check(self._place, TOPIC, self._messages))

    def compare(self, spark: SparkProcess, name: str) -> Row:
        """Both in turns, and whoever was second in a round is first in the next."""
        case, row = CASES[name], Row(name, CASES[name].aim)
        sides = [(case.ours, row.ours), (case.kafka, row.kafka)]
        for number in range(-WARM_UP, self._repeat):
            for side, runs in sides:
                figures = self._run(spark, side, self._place, TOPIC, self._messages)
                counts = " (not counted)" if number < 0 else ""
                progress(f"{name} {side.format}{counts}: {told(figures)}")
                if number >= 0:
                    runs.append(figures)
            sides.reverse()
            row.loads.append(os.getloadavg()[0])
        return row

    def add_pure(self, spark: SparkProcess, row: Row) -> None:
        case, place = CASES[row.name], self._place._replace(store=self._place.few)
        rows = round(self._messages * PURE_SHARE)
        for number in range(2):
            figures = self._run(spark, case.ours, place, PURE_TOPIC, rows)
            progress(f"{row.name} {PURE}: {told(figures)}")
            if number:
                row.pure.append(figures)

    def decoder(self) -> list[Line]:
        lines = []
        for name, task in DECODED.items():
            compiled, plain = self._decoded(name, task, False), self._decoded(name, task, True)
            unit = "records_per_cpu_s"
            lines.append(line(name, median(compiled, unit), DECODER_AIM, unit, "aim"))
            lines.append(line(name, median(compiled, unit), median(plain, unit), unit, PURE))
        return lines

    def _decoded(self, name: str, task: Task, pure: bool) -> list[Figures]:
        asked = {"store": self._place.store, "share": PURE_SHARE if pure else 1.0, **task}
        runs: list[Figures] = [
            run_child(DECODER, "decode", asked, pure=pure) for _ in range(self._repeat)
        ]
        progress(f"{name} {PURE if pure else 'compiled'}: {told(runs[-1])}")
        return runs

    def _run(self, spark: SparkProcess, side: Side, place: Place, topic: str, rows: int) -> Figures:
        pid = self._pids.kafka if side.format == "kafka" else self._pids.ours
        is_sink = side.kind == "sink"
        topic = self._sink_topic() if is_sink else topic
        self._fill_memory()
        with CpuMeter(spark.pid) as used, CpuMeter(pid) as broker:
            figures = spark.run(side.run(place, topic, rows))
        if is_sink:
            spark.run(side.check(place, topic, rows))
        return {
            **figures,
            "cpu_us_per_row": used.seconds / rows * 1e6,
            "broker_cpu_us_per_row": broker.seconds / rows * 1e6,
        }

    def _sink_topic(self) -> str:
        """A new one, in both systems: Kafka makes its own."""
        self._sinks += 1
        topic = f"sink-{self._sinks}"
        asyncio.run(_create(self._place.namesrv, topic))
        return topic


async def _create(namesrv: str, topic: str) -> None:
    async with Admin(namesrv) as admin:
        await admin.topics.create(topic, queues=QUEUES)
