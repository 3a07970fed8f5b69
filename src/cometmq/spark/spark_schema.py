"""Schemas as Spark states them: which of our columns a read wants.

A user's schema has any of our columns, in any order, with their own types.
"""

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from .errors import BadOption
from .schema import SPARK_TYPES

_CHOOSING = ("columns", "includeproperties")


def check_schema(schema: StructType, given: Mapping[str, str], columns: tuple[str, ...]) -> None:
    """BadOption when the schema is not one of ours, or not what the options ask for."""
    if not schema.fields:
        raise BadOption(f"the schema has no column; there are {', '.join(SPARK_TYPES)}")
    for field in schema.fields:
        expected, found = SPARK_TYPES.get(field.name), field.dataType.simpleString()
        if expected is None:
            raise BadOption(f"schema: no column {field.name}; there are {', '.join(SPARK_TYPES)}")
        if found != expected:
            raise BadOption(f"schema: column {field.name} is {expected}, not {found}")
    chooses = any(name.lower() in _CHOOSING for name in given)
    if chooses and tuple(schema.fieldNames()) != columns:
        raise BadOption("columns or includeProperties, and a schema with other columns")


def as_stated(batches: Iterable[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Batches with the schema to the letter: a user's may say that a column is never null."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    for batch in batches:
        yield pa.RecordBatch.from_arrays(batch.columns, schema=wanted)
