"""Few large files instead of many small ones: `compact("/data/lake")`.

Readers of a Delta table see the old files or the new ones, never both, and files that nobody can
still be reading go after a week. Neither Spark nor a broker takes part, and an archive may go on;
another compaction may not.
"""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..errors import BadOption
from .lake.delta import delta_table, deltalake, plain_errors, sync_log
from .lake.lock import sole_compaction
from .lake.place import Place
from .lake.reading import facts_of
from .lake.tables import DELTA, ICEBERG

if TYPE_CHECKING:
    from deltalake import DeltaTable

TARGET_BYTES: Final = 512 << 20
RETENTION_HOURS_MIN: Final = 168
"""What Delta takes for safe: no reader and no writer is at work for longer."""
_FILES: Final = "topic="
"""How the paths of an archive's files begin."""
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
    """Put small files together, and delete files that were replaced a week ago or earlier, and are
    older than `retention_hours`. BadOption while another compaction is at work there."""
    if retention_hours < RETENTION_HOURS_MIN:
        raise BadOption(
            f"retention: {RETENTION_HOURS_MIN} h or more is safe; a reader may still be at work"
        )
    place = Place(lake)
    format_name = facts_of(place).format
    if format_name != DELTA:
        raise BadOption(f"{lake} has the format {format_name}: {_WHY_NOT[format_name]}")
    with sole_compaction(place), plain_errors(place):
        table = delta_table(place)
        first, before = table.version() + 1, len(table.file_uris())
        table.optimize.compact(target_size=target_bytes, writer_properties=_properties())
        sync_log(place, first, table.version())
        deleted = _delete_replaced(place, table, retention_hours)
        return Compacted(lake, before, len(table.file_uris()), deleted)


def _delete_replaced(place: Place, table: "DeltaTable", retention_hours: int) -> int:
    """Also what Delta's log has forgotten to be replaced, as it does after a week. What does not
    lie among an archive's files, a checkpoint perhaps, is left alone."""
    old = table.vacuum(retention_hours, dry_run=True, full=True)
    files = [path for path in old if path.startswith(_FILES)]
    for path in files:
        place.remove(path)
    return len(files)


def _properties() -> Any:
    return deltalake().WriterProperties(compression="ZSTD", compression_level=1)
