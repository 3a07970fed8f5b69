"""Benchmark of Spark's way to and from topics: `python -m bench.spark`.

Ours and Spark's Kafka source and sink take turns in one Spark session (`local[2]`) after two runs
of each that are not counted. Brokers run beside, on loopback. All rows must come, else there are no
figures. What plain Python gives (COMETMQ_PURE=1) is measured with a twentieth of the messages.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from interop.rocketmq import ConfigValue, RocketMQError
from interop.systems import SYSTEMS, running
from interop.toolchain import ToolchainError

from .. import ending
from ..child import ChildFailed
from ..report import Line, print_lines, progress
from ..used_memory import FRESH_MEMORY, used_memory
from . import kafka
from .bench import PURE_SHARE, PURE_TOPIC, TOPIC, Bench, Pids
from .cases import CASES, Place
from .fill import QUEUES, fill_store
from .spark_process import SparkProcess, spark_process
from .table import Row, lines, markdown

MESSAGES: Final = 4_000_000
QUICK_MESSAGES: Final = 100_000
SPARK: Final = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
    # A worker that a busy machine starts late is late, not lost.
    "spark.python.authenticate.socketTimeout": "120s",
}
BROKER: Final[dict[str, ConfigValue]] = {
    # As CometMQ ships them: nothing about small test stores should show in the figures.
    "mappedFileSizeCommitLog": 1 << 30,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "maxTransferBytesOnMessageInMemory": 1 << 20,
    "maxTransferBytesOnMessageInDisk": 1 << 20,
}


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        with ExitStack() as stack:
            rows, decoded = _measured(options, stack)
    except (ChildFailed, kafka.KafkaError, RocketMQError, ToolchainError) as error:
        progress(f"stopped: {error}")
        return 1
    if not options.markdown:
        print_lines([*(line for row in rows for line in lines(row)), *decoded])
    print(markdown(rows, decoded), file=sys.stdout if options.markdown else sys.stderr)
    return 0 if len(rows) == len(set(options.cases or CASES)) else 1


def _measured(options: argparse.Namespace, stack: ExitStack) -> tuple[list[Row], list[Line]]:
    scratch = tempfile.TemporaryDirectory(prefix="bench-spark-", dir=options.data_dir)
    root = Path(stack.enter_context(scratch))
    bench = _prepared(options, root, stack)
    names = list(dict.fromkeys(options.cases or CASES))
    jars = ",".join(str(jar) for jar in kafka.connector_jars())
    with spark_process({**SPARK, "spark.jars": jars}, root) as spark:
        bench.fill_kafka(spark)
        bench.check(spark, names)
        rows = list(_compared(bench, spark, names))
    if not options.no_pure:
        with spark_process(SPARK, root, pure=True) as spark:
            for row in rows:
                bench.add_pure(spark, row)
    return rows, bench.decoder()


def _compared(bench: Bench, spark: SparkProcess, names: list[str]) -> Iterator[Row]:
    """A case that fails is told, and does not take the others' figures along."""
    for name in names:
        try:
            yield bench.compare(spark, name)
        except ChildFailed as error:
            progress(f"{name} has no figures: {error}")


def _prepared(options: argparse.Namespace, root: Path, stack: ExitStack) -> Bench:
    """Both systems, running, and ours with its messages."""
    messages = options.messages or (QUICK_MESSAGES if options.quick else MESSAGES)
    progress(f"filling a store with {messages:,} messages")
    fill_store(root / "store", TOPIC, messages)
    for store in ("store", "few"):
        fill_store(root / store, PURE_TOPIC, round(messages * PURE_SHARE))
    cluster = stack.enter_context(running(SYSTEMS["cometmq"], root, BROKER))
    peer = stack.enter_context(kafka.running(root / "kafka", partitions=QUEUES))
    place = Place(cluster.namesrv.address, str(root / "store"), peer.address, str(root / "few"))
    repeat = options.repeat or (1 if options.quick else 3)
    pids = Pids(cluster.broker.pid, peer.pid)
    fill = stack.enter_context(used_memory(options.data_dir, wanted=not options.fresh_memory))
    bench = Bench(place, pids, messages=messages, repeat=repeat, fill_memory=fill)
    bench.create_topics()
    return bench


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, help="only these")
    parser.add_argument("--messages", type=int, help=f"in the topics ({MESSAGES}, 128 bytes each)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_MESSAGES} messages, one run")
    parser.add_argument("--repeat", type=int, help="runs a figure (3, quick 1)")
    parser.add_argument("--no-pure", action="store_true", help="without plain Python's figures")
    parser.add_argument("--fresh-memory", action="store_true", help=FRESH_MEMORY)
    parser.add_argument("--data-dir", type=Path, help="where logs go for the time being")
    parser.add_argument("--markdown", action="store_true", help="print rows for the docs instead")
    return parser


if __name__ == "__main__":
    ending.run(main)
