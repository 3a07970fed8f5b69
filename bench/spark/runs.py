"""What is measured inside a Spark session, the same code for every format: the child's side.

A process with one session reads a run a line from stdin and answers with its figures. So a session
stays warm, and those that are compared take turns in it.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..report import Figures
from .fill import DIGITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM_TIMEOUT_S: Final = 600


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run: `kind` is a key of `KINDS`."""

    kind: str
    format: str
    rows: int
    options: Mapping[str, str] = {}
    select: tuple[str, ...] = ()
    to: str = "noop"
    """Where rows that were read go: noop or parquet."""
    settings: Mapping[str, str] = {}
    """Of the session, as long as the run takes."""


def batch(spark: "SparkSession", run: Run, scratch: Path) -> int:
    source = spark.read.format(run.format).options(**run.options).load()
    chosen = source.select(*run.select) if run.select else source
    chosen.write.format(run.to).mode("overwrite").save(str(scratch / "rows"))
    return run.rows  # Nobody has counted them; see `count`.


def stream(spark: "SparkSession", run: Run, scratch: Path) -> int:
    """All that is there, as many micro-batches as the options make of it."""
    source = spark.readStream.format(run.format).options(**run.options).load()
    chosen = source.select(*run.select) if run.select else source
    query = (
        chosen.writeStream.format(run.to)
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .option("path", str(scratch / "rows"))
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(STREAM_TIMEOUT_S):
        query.stop()
        raise TimeoutError(f"the stream did not end within {STREAM_TIMEOUT_S} s")
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def sink(spark: "SparkSession", run: Run, _: Path) -> int:
    rows: DataFrame = spark.range(0, run.rows, 1, numPartitions=4)
    rows.selectExpr(*run.select).write.format(run.format).options(**run.options).mode(
        "append"
    ).save()
    return run.rows


def archive(spark: "SparkSession", run: Run, scratch: Path) -> int:
    """The whole pipeline: a Delta table with files written by the tasks."""
    from cometmq.spark.pipelines.archive import ALL_COLUMNS, archive

    options = dict(run.options)
    namesrv, topic = options.pop("namesrvAddr"), options.pop("topic")
    archived = archive(
        namesrv, str(scratch / "lake"), topics=[topic], once=True,
        columns=run.select or ALL_COLUMNS, options=options, spark=spark, group=scratch.name,
    )  # fmt: skip
    return archived.rows


def count(spark: "SparkSession", run: Run, _: Path) -> int:
    """How many rows with different bodies there are. Run once where a measurement does not tell."""
    source = spark.read.format(run.format).options(**run.options).load()
    numbers = source.selectExpr(f"substring({run.select[0]}, 1, {DIGITS})")
    return int(numbers.distinct().count())


KINDS: Final[Mapping[str, Callable[["SparkSession", Run, Path], int]]] = {
    "batch": batch,
    "stream": stream,
    "sink": sink,
    "archive": archive,
    "count": count,
}


def measured(spark: "SparkSession", run: Run) -> Figures:
    """Figures of one run; wrong ones are not given: all rows must have come."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-spark-run-") as scratch,
        _having(spark, run.settings),
    ):
        began = time.monotonic()
        rows = KINDS[run.kind](spark, run, Path(scratch))
        seconds = time.monotonic() - began
    if rows != run.rows:
        raise ValueError(f"{run.rows} rows were expected, {rows} came")
    return {"rows_per_s": rows / seconds, "seconds": seconds}


@contextmanager
def _having(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)


def _answer(spark: "SparkSession", run: Run) -> Figures | str:
    """Figures, or why there are none: the session goes on with the next run."""
    try:
        return measured(spark, run)
    except Exception as error:  # noqa: BLE001 - whatever a run fails with is its answer
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def serve(conf: Mapping[str, Any]) -> None:
    from cometmq.spark import session

    # What Java and the workers print must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = session("cometmq-bench", "local[2]", **conf)
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        answer = _answer(spark, msgspec.json.decode(line, type=Run))
        print(msgspec.json.encode(answer).decode(), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    serve(msgspec.json.decode(sys.argv[1], type=dict[str, Any]))
