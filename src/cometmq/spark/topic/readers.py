"""How Spark reads topics: once, and on and on.

A stream's first offset is empty, and the offset behind it tells where each queue began: Spark has
written it down before anything is read, so a query that was killed before its first batch begins
where it began the first time. Queues that are found later begin at their beginning.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ..spark_schema import as_stated
from ..worker_connection import GoesToWorkers
from ..worker_garbage import leave_modules_alone
from .loss import Losses
from .offsets import Progress, QueueRange, ranges_between, split
from .options import SourceOptions, read_options
from .planning import ranges_of

if TYPE_CHECKING:
    from .stream import Stream

# What plans and what reads is imported where it is used: Spark starts many Python processes, and
# each does only one of both.


class RocketMQReader(GoesToWorkers, DataSourceReader):
    """A batch: from the starting offsets to the ending ones, as they are when it is planned."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._given = given
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        from .overview import Overview

        options = read_options(self._given, streaming=False)
        losses = Losses(fail=options.fail_on_data_loss)
        with Overview(options) as overview:
            queues = overview.queues()
            start = overview.resolve(options.starting, queues)
            end = overview.resolve(options.ending, queues)
        for queue, place in start.items():
            losses.check_place(QueueRange(queue, place, queues[queue].max_offset))
        ranges = ranges_between(start, end)
        for part in ranges:
            losses.check_start(part, queues[part.queue].min_offset)
        return _partitions(ranges, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(read_options(self._given, streaming=False), self._schema, partition)


class RocketMQStreamReader(GoesToWorkers, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._given = given
        self._schema = schema
        self._opened: Stream | None = None

    @property
    def _stream(self) -> "Stream":
        """Made in the process that plans: connections do not travel."""
        if self._opened is None:
            from .stream import Stream

            self._opened = Stream(read_options(self._given, streaming=True))
        return self._opened

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as all that follow
        return {}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        before = Progress.from_json(start)
        after = self._stream.next(before, everything=isinstance(limit, ReadAllAvailable))
        return start if after is None else after.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = read_options(self._given, streaming=True)
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        if options.min_offsets is not None:
            return ReadMinRows(options.min_offsets)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._stream.latest_seen()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._stream.stop_at_the_present()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        ranges = ranges_of(Progress.from_json(start), Progress.from_json(end))
        return _partitions(ranges, read_options(self._given, streaming=True))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(read_options(self._given, streaming=True), self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._stream.committed(Progress.from_json(end))

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()


def _partitions(ranges: list[QueueRange], options: SourceOptions) -> list[InputPartition]:
    pieces = split(ranges, options.min_partitions, options.max_records)
    return [InputPartition(piece) for piece in pieces]


def _rows(
    options: SourceOptions, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    if partition.value is None:  # What Spark makes of no partitions at all.
        return
    from .ranges import read_range

    leave_modules_alone()
    yield from as_stated(read_range(options, partition.value, schema.fieldNames()), schema)
