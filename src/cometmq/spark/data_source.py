"""`format("rocketmq")`: topics as DataFrames, as streams and as sinks.

Options travel as plain texts; every process makes its own connections of them.
"""

import logging

try:
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType

    from .topic.readers import RocketMQReader, RocketMQStreamReader
except ImportError as missing:
    from .errors import NotReady

    raise NotReady(f"Spark is not ready: {missing}; pip install 'cometmq[spark]'") from missing

from .option_values import canonical, columns
from .schema import ddl
from .spark_schema import check_schema
from .topic.options import KNOWN, read_options, redacted

log = logging.getLogger(__name__)


class RocketMQDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        return ddl(columns(canonical(self.options, KNOWN)))

    def reader(self, schema: StructType) -> RocketMQReader:
        return RocketMQReader(self._checked(schema, streaming=False), schema)

    def streamReader(self, schema: StructType) -> RocketMQStreamReader:  # noqa: N802 - Spark's
        return RocketMQStreamReader(self._checked(schema, streaming=True), schema)

    def _checked(self, schema: StructType, *, streaming: bool) -> dict[str, str]:
        given = dict(self.options)
        options = read_options(given, streaming=streaming)
        check_schema(schema, given, options.columns)
        log.info("rocketmq source with %s", redacted(given))
        return given
