"""`format("rocketmq")`: topics as DataFrames and as streams.

A stream's first offset is empty, and the offset behind it tells where each queue began: Spark has
written it down before anything is read, so a query that was killed before its first batch begins
where it began the first time. Queues that are found later begin at their beginning.
Options travel as plain texts; every process makes its own connections of them.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

try:
    import pyarrow as pa
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        InputPartition,
    )
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
    from pyspark.sql.types import StructType
except ImportError as missing:
    from .errors import NotReady

    raise NotReady(f"Spark is not ready: {missing}; pip install 'cometmq[spark]'") from missing

from .loss import Losses
from .offsets import Offsets, Progress, QueueRange, ranges_between, split
from .option_values import canonical, columns
from .options import KNOWN, SourceOptions, read_options, redacted
from .overview import Overview
from .planning import ranges_of
from .ranges import read_range
from .schema import ddl
from .spark_schema import as_stated, check_schema
from .stream import Stream

log = logging.getLogger(__name__)


class RocketMQDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        return ddl(columns(canonical(self.options, KNOWN)))

    def reader(self, schema: StructType) -> "RocketMQReader":
        return RocketMQReader(self._checked(schema, streaming=False), schema)

    def streamReader(self, schema: StructType) -> "RocketMQStreamReader":  # noqa: N802 - Spark's
        return RocketMQStreamReader(self._checked(schema, streaming=True), schema)

    def _checked(self, schema: StructType, *, streaming: bool) -> dict[str, str]:
        given = dict(self.options)
        options = read_options(given, streaming=streaming)
        check_schema(schema, given, options.columns)
        log.info("rocketmq source with %s", redacted(given))
        return given


class RocketMQReader(DataSourceReader):
    """A batch: from the starting offsets to the ending ones, as they are when it is planned."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._given = given
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        options = read_options(self._given, streaming=False)
        losses = Losses(fail=options.fail_on_data_loss)
        with Overview(options) as overview:
            queues = overview.queues()
            start = overview.resolve(options.starting, queues)
            end = overview.resolve(options.ending, queues)
        ranges = ranges_between(start, end)
        for part in ranges:
            losses.check_start(part, queues[part.queue].min_offset)
        return _partitions(ranges, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(read_options(self._given, streaming=False), self._schema, partition)


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._given = given
        self._schema = schema
        self._opened: Stream | None = None

    @property
    def _stream(self) -> Stream:
        """Made in the process that plans: connections do not travel."""
        if self._opened is None:
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

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
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
    yield from as_stated(read_range(options, partition.value, schema.fieldNames()), schema)
