"""Streaming queries of the tests: run to an end or until something is true, rows collected."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cometmq.testing import BlockingEmbeddedBroker

from .sending import Sent, bodies, options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WAIT_S: Final = 120.0
POLL_S: Final = 0.05


class Collected:
    """A sink in the driver: the rows of each batch. What is run again replaces what was there."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}
        self.fails_at: int | None = None

    def __call__(self, frame: "DataFrame", number: int) -> None:
        rows = frame.collect()
        if number == self.fails_at:
            raise RuntimeError(f"batch {number} is to fail")
        self.batches[number] = rows

    @property
    def rows(self) -> list[Any]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    @property
    def sent(self) -> Sent:
        """What came, as the sending end tells it; nothing came twice."""
        return bodies(self.rows)

    @property
    def sizes(self) -> list[int]:
        return [len(self.batches[number]) for number in sorted(self.batches)]


class Streams:
    """Starts queries that differ in little."""

    def __init__(self, spark: "SparkSession", broker: BlockingEmbeddedBroker, checkpoint: str):
        self._spark = spark
        self._broker = broker
        self.checkpoint = Path(checkpoint)

    def start(self, sink: Collected, *, now: bool = False, **more: Any) -> "StreamingQuery":
        reader = self._spark.readStream.format("rocketmq")
        frame = reader.options(**options(self._broker, **more)).load()
        writer = frame.writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(availableNow=True) if now else writer).start()

    def run(self, sink: Collected, **more: Any) -> "StreamingQuery":
        """Read what is there now."""
        query = self.start(sink, now=True, **more)
        try:
            assert query.awaitTermination(round(WAIT_S)), "the query did not end"
        finally:
            query.stop()
        return query

    @contextlib.contextmanager
    def running(self, sink: Collected, **more: Any) -> "Iterator[StreamingQuery]":
        """Until the end of the block. The query has begun: what is sent now is to come."""
        query = self.start(sink, **more)
        try:
            until(lambda: self.has_begun or not query.isActive, query)
            yield query
        finally:
            query.stop()

    @property
    def has_begun(self) -> bool:
        return (self.checkpoint / "offsets" / "0").exists()


def until(fact: Callable[[], object], query: "StreamingQuery | None" = None) -> None:
    """Wait for something to become true; a query that fails meanwhile is raised."""
    deadline = time.monotonic() + WAIT_S
    while not fact():
        if query is not None and query.exception() is not None:
            raise query.exception()  # type: ignore[misc]
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(POLL_S)


def error_of(query: "StreamingQuery") -> str:
    """What a query fails with."""
    try:
        query.awaitTermination(round(WAIT_S))
    except Exception as error:  # noqa: BLE001 - Spark wraps what a worker raises
        return str(error)
    finally:
        query.stop()
    raise AssertionError("the query did not fail")
