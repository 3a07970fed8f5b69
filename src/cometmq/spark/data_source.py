"""`format("rocketmq")`: topics as DataFrames, as streams and as sinks.

Options travel as plain texts; every process makes its own connections of them.
"""

import logging
from typing import TYPE_CHECKING, Final

try:
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType

    from .topic.readers import RocketMQReader, RocketMQStreamReader
except ImportError as missing:
    from .errors import NotReady

    raise NotReady(f"Spark is not ready: {missing}; pip install 'cometmq[spark]'") from missing

from .connection import redacted
from .errors import BadOption
from .option_values import canonical, columns, refuse_tables
from .schema import ddl
from .spark_schema import check_schema
from .topic.options import KNOWN, read_options

if TYPE_CHECKING:
    from .sink.writers import RocketMQStreamWriter, RocketMQWriter

# The sink is imported where it is used: Spark starts many Python processes, and most only read.
log = logging.getLogger(__name__)
NAME: Final = "rocketmq"


class RocketMQDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        refuse_tables(self.options, NAME, in_use=False)
        return ddl(columns(canonical(self.options, KNOWN)))

    def reader(self, schema: StructType) -> RocketMQReader:
        return RocketMQReader(self._checked(schema, streaming=False), schema)

    def streamReader(self, schema: StructType) -> RocketMQStreamReader:  # noqa: N802 - Spark's
        return RocketMQStreamReader(self._checked(schema, streaming=True), schema)

    def _checked(self, schema: StructType, *, streaming: bool) -> dict[str, str]:
        given = dict(self.options)
        refuse_tables(given, NAME, in_use=True)
        options = read_options(given, streaming=streaming)
        check_schema(schema, given, options.columns)
        log.info("rocketmq source with %s", redacted(given))
        return given

    def writer(self, schema: StructType, overwrite: bool) -> "RocketMQWriter":
        from .sink.writers import RocketMQWriter

        if overwrite:
            raise BadOption('mode("overwrite"): a topic cannot be overwritten; use mode("append")')
        return RocketMQWriter(self._writable(schema), schema.fieldNames())

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002 - output mode complete: each batch sends the whole result
    ) -> "RocketMQStreamWriter":
        from .sink.writers import RocketMQStreamWriter

        return RocketMQStreamWriter(self._writable(schema), schema.fieldNames())

    def _writable(self, schema: StructType) -> dict[str, str]:
        from .sink.columns import check_columns
        from .sink.options import read_sink_options

        given = dict(self.options)
        refuse_tables(given, NAME, in_use=True)
        options = read_sink_options(given)
        stated = {field.name: field.dataType.simpleString() for field in schema.fields}
        check_columns(stated, options)
        log.info("rocketmq sink with %s", redacted(given))
        return given
