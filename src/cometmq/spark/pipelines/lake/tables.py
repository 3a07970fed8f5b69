"""The formats of a lake: how files that are in their places become visible to readers.

Plain Parquet needs no more than the places. There a batch is decided by its record, in the others
by an entry of the table, which has the query's id and the batch's number.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import pyarrow as pa

from ...arrow import ArrowRows
from ...errors import BadOption
from .delta import DeltaLog
from .iceberg import IcebergCatalog
from .place import Place
from .records import BatchRecord

DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
PARQUET: Final = "parquet"
FORMATS: Final = (DELTA, ICEBERG, PARQUET)
PARTITIONS: Final = {"topic": pa.string(), "date": pa.date32()}
"""The columns by which files lie in directories, with their types."""


class Table(Protocol):
    by_record: bool
    """Whether a batch is decided by its record alone."""

    def has(self, record: BatchRecord) -> bool:
        """Whether a batch whose record is written is decided."""
        ...

    def add(self, record: BatchRecord) -> None:
        """Make a batch visible whose files are in their places."""
        ...


class ParquetFiles:
    by_record = True

    def has(self, record: BatchRecord) -> bool:  # noqa: ARG002 - its record is all it takes
        return True

    def add(self, record: BatchRecord) -> None:
        """Files in their places are visible already."""


def table_of(format_name: str, place: Place, columns: Sequence[str]) -> Table:
    if format_name == DELTA:
        return DeltaLog(place, lake_schema(columns), list(PARTITIONS))
    if format_name == ICEBERG:
        return IcebergCatalog(place, lake_schema(columns), list(PARTITIONS))
    return ParquetFiles()


def check_format(name: str) -> None:
    if name not in FORMATS:
        raise BadOption(f"format: {name!r} is unknown; there are {', '.join(FORMATS)}")


def row_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Those that differ from row to row of a file."""
    return tuple(name for name in columns if name not in PARTITIONS)


def lake_schema(columns: Sequence[str]) -> pa.Schema:
    """What a reader of the lake sees."""
    return pa.schema([*PARTITIONS.items(), *ArrowRows(row_columns(columns), None).schema])


def file_schema(columns: Sequence[str], format_name: str) -> pa.Schema:
    """What a file has. In most formats a partition's values stand in the path or the log only, but
    Iceberg takes them from the file."""
    whole = lake_schema(columns)
    return whole if format_name == ICEBERG else pa.schema(list(whole)[len(PARTITIONS) :])
