"""Few large files instead of many small ones: `compact("/data/lake")`.

Readers of a Delta table see the old files or the new ones, never both, and files that nobody can
still be reading go after a week. Neither Spark nor a broker takes part, and an archive may go on.
"""

from typing import Any, Final

import msgspec

from ..errors import BadOption
from .lake.delta import delta_table, deltalake
from .lake.place import Place
from .lake.reading import facts_of
from .lake.tables import DELTA, ICEBERG

TARGET_BYTES: Final = 512 << 20
RETENTION_HOURS_MIN: Final = 168
"""What Delta takes for safe: no reader and no writer is at work for longer."""
_WHY_NOT: Final = {
    ICEBERG: "pyiceberg has no means to replace files; an engine with Iceberg's actions has "
    "(rewrite_data_files)",
    "parquet": "who reads plain Parquet files would see rows twice or not at all while files are "
    "replaced; archive to --format delta",
}


class Compacted(msgspec.Struct, frozen=True):
    lake: str
    files_before: int
    files_after: int
    files_deleted: int
    """Of earlier compactions."""


def compact(
    lake: str, *, retention_hours: int = RETENTION_HOURS_MIN, target_bytes: int = TARGET_BYTES
) -> Compacted:
    """Put small files together, and delete what was replaced more than `retention_hours` ago."""
    if retention_hours < RETENTION_HOURS_MIN:
        raise BadOption(
            f"retention: {RETENTION_HOURS_MIN} h or more is safe; a reader may still be at work"
        )
    place = Place(lake)
    format_name = facts_of(place).format
    if format_name != DELTA:
        raise BadOption(f"{lake} has the format {format_name}: {_WHY_NOT[format_name]}")
    table = delta_table(place)
    before = len(table.file_uris())
    table.optimize.compact(target_size=target_bytes, writer_properties=_properties())
    deleted = table.vacuum(retention_hours, dry_run=False)
    return Compacted(lake, before, len(delta_table(place).file_uris()), len(deleted))


def _properties() -> Any:
    return deltalake().WriterProperties(compression="ZSTD", compression_level=1)
