"""A lake as a DataFrame, also a Delta table or Iceberg's, for which Spark has no reader of its own.

    frame = read_lake(spark, "/data/lake")

The files are those that the table has when this is called.
"""

from typing import TYPE_CHECKING, Final

from ...errors import NotThere
from ...schema import ddl
from .delta import delta_files
from .iceberg import iceberg_table
from .place import Place
from .records import LakeFacts, Records
from .tables import DELTA, ICEBERG, PARTITIONS, row_columns

_PATTERNS: Final = "__globPaths__"
"""Whether Spark takes `[` or `{` in a path for a part of a pattern: an option of its own use."""

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_lake(spark: "SparkSession", lake: str) -> "DataFrame":
    """Topic and date first, then the archive's columns."""
    place = Place(lake)
    facts = facts_of(place)
    columns = row_columns(facts.columns)
    schema = f"topic string, date date, {ddl(columns)}"
    files = _files(place, facts.format)
    if files is not None and not files:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("basePath", place.shown())
    reader = reader.option(_PATTERNS, "false")
    frame = reader.parquet(*([place.shown()] if files is None else files))
    return frame.select(*PARTITIONS, *columns)  # Spark has those of directories last.


def facts_of(place: Place) -> LakeFacts:
    facts = Records(place).facts()
    if facts is None:
        raise NotThere(f"{place.url} is no lake that `cometmq spark archive` has made")
    return facts


def _files(place: Place, format_name: str) -> list[str] | None:
    """Of which the table consists; None where it is all files that are there."""
    if format_name == DELTA:
        # Not as the package names them: with a space, or what else a URL quotes, Spark would take
        # its names for other files.
        return [place.shown(path) for path in delta_files(place)]
    if format_name == ICEBERG:
        tasks = iceberg_table(place).scan().plan_files()
        return [task.file.file_path.removeprefix("file://") for task in tasks]
    return None
