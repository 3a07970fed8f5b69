"""`format("rocketmq-log")`: the files of a broker's store as a DataFrame, without a broker.

Reads stores of CometMQ and of Apache RocketMQ, also while a broker writes to them. The log is read
as it is when the read is planned; each task opens the files itself, so they must be reachable by
the same path everywhere.
"""

from collections.abc import Iterator, Mapping
from typing import Final

try:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.types import StructType
except ImportError as missing:
    from ..errors import NotReady

    raise NotReady(f"Spark is not ready: {missing}; pip install 'cometmq[spark]'") from missing

from ..option_values import canonical, columns, refuse_tables
from ..schema import ddl
from ..spark_schema import as_stated, check_schema
from ..worker_connection import GoesToWorkers
from ..worker_garbage import leave_modules_alone
from .files import files_at
from .options import KNOWN, read_log_options
from .ranges import plan
from .reading import read_part

NAME: Final = "rocketmq-log"


class RocketMQLogDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        refuse_tables(self.options, NAME, in_use=False)
        return ddl(columns(canonical(self.options, KNOWN)))

    def reader(self, schema: StructType) -> "RocketMQLogReader":
        given = dict(self.options)
        refuse_tables(given, NAME, in_use=True)
        check_schema(schema, given, read_log_options(given).columns)
        return RocketMQLogReader(given, schema)


class RocketMQLogReader(GoesToWorkers, DataSourceReader):
    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._given = given
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        options = read_log_options(self._given)
        return [InputPartition(part) for part in plan(files_at(options.path), options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        leave_modules_alone()
        part = partition.value or ()  # None is what Spark makes of no partitions at all.
        batches = read_part(read_log_options(self._given), part, self._schema.fieldNames())
        return as_stated(batches, self._schema)
