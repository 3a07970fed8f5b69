"""How Spark runs an archive's batches: a stream whose rows are the files that its tasks wrote.

Private to the archive. Batches are planned as those of the source are. A task reads its ranges,
leaves Parquet files in the lake's staging directory, and hands Spark one row: what it wrote. The
rows of one task tell also how far the batch goes in every queue.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from ..errors import SparkError
from ..topic.offsets import Offsets, Progress, QueueRange, split, to_json
from ..topic.options import read_options
from ..topic.planning import ranges_of
from ..topic.readers import RocketMQStreamReader
from ..worker_garbage import leave_modules_alone
from .archive_bundles import bundled
from .lake.records import LakeFile

# What reads and writes is imported where it is used: the process that plans the batches does not
# need it, and nothing begins before it is there.

NAME: Final = "rocketmq-archive"
LAKE: Final = "lake"
FORMAT: Final = "lakeFormat"
"""Options that the source does not have."""
IN_LAKE: Final = "cometmq.archive.isInLake"
"""A local property of Spark: the tasks' batch is in the lake, and they have nothing to write."""
_ROW: Final = pa.schema([("written", pa.string())])


class Written(msgspec.Struct, frozen=True):
    """What one task did."""

    files: list[LakeFile]
    ends: Offsets
    """Where the batch ends; from one task only."""


class ArchiveDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "written string"

    def streamReader(self, schema: StructType) -> "ArchiveReader":  # noqa: N802 - Spark's
        given = {name.lower(): value for name, value in self.options.items()}
        lake, format_name = given.pop(LAKE), given.pop(FORMAT.lower())
        return ArchiveReader(given, schema, lake, format_name)


class ArchiveReader(RocketMQStreamReader):
    def __init__(
        self, given: Mapping[str, str], schema: StructType, lake: str, format_name: str
    ) -> None:
        super().__init__(given, schema)
        self._lake = lake
        self._format_name = format_name

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        options = read_options(self._given, streaming=True)
        after = Progress.from_json(end)
        ranges = ranges_of(Progress.from_json(start), after)
        bundles = bundled(split(ranges, options.min_partitions, options.max_records)) or [[]]
        ends = to_json(after.ends)
        return [
            InputPartition((bundle, {} if number else ends))
            for number, bundle in enumerate(bundles)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        bundle, ends = partition.value
        files = self._write(bundle) if bundle and not _is_in_lake() else []
        told = msgspec.json.encode(Written(files, ends)).decode()
        yield pa.RecordBatch.from_pydict({"written": [told]}, schema=_ROW)

    def _write(self, bundle: list[QueueRange]) -> list[LakeFile]:
        from ..topic.ranges import read_range
        from .archive_files import Naming, TopicFiles
        from .lake.place import Place
        from .lake.staging import staged_path
        from .lake.tables import file_schema, row_columns

        leave_modules_alone()
        options = read_options(self._given, streaming=True)
        columns = row_columns(options.columns)
        query, batch = _running()
        naming = Naming(bundle[0].queue.topic, lambda: staged_path(query, batch), f"part-{batch}")
        schema = file_schema(options.columns, self._format_name)
        files = TopicFiles(Place(self._lake), naming, schema)
        for part in bundle:
            for rows in read_range(options, part, columns):
                files.add(rows)
        return files.close()


def _is_in_lake() -> bool:
    context = TaskContext.get()
    return context is not None and context.getLocalProperty(IN_LAKE) is not None


def _running() -> tuple[str, str]:
    """Query and batch of the task that runs here."""
    context = TaskContext.get()
    query = context and context.getLocalProperty("sql.streaming.queryId")
    batch = context and context.getLocalProperty("streaming.sql.batchId")
    if not query or not batch:
        raise SparkError("Spark does not tell which batch this is: it needs PySpark 4.2 or newer")
    return query, batch
