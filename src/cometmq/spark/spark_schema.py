"""Schemas as Spark states them: which of our columns a read wants.

A user's schema has any of our columns, in any order, with their own types. Spark believes it that a
column is never null: what is null all the same would be a wrong result, or an error of Java's.
"""

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from .errors import BadOption
from .option_values import named_twice
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
        if not field.nullable and field.name in _may_be_null(given):
            raise BadOption(
                f"schema: column {field.name} may be null here; "
                f"write {field.name} {expected} without NOT NULL"
            )
    if twice := named_twice(schema.fieldNames()):
        raise BadOption(f"schema: column {twice} is named twice")
    chooses = any(name.lower() in _CHOOSING for name in given)
    if chooses and tuple(schema.fieldNames()) != columns:
        raise BadOption("columns or includeProperties, and a schema with other columns")


def _may_be_null(given: Mapping[str, str]) -> set[str]:
    """What messages need not have, what files do not know, bodies that may be unreadable."""
    told = {name.lower(): value.lower() for name, value in given.items()}
    names = {"keys", "tags"}
    is_of_files = "path" in told
    if is_of_files and "brokername" not in told:
        names.add("brokerName")
    goes_on = ("toleratedamage", "true") if is_of_files else ("failondataloss", "false")
    if goes_on in told.items():
        names.add("body")
    return names


def as_stated(batches: Iterable[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Batches with the schema to the letter: a user's may say that a column is never null."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    for batch in batches:
        yield pa.RecordBatch.from_arrays(batch.columns, schema=wanted)
