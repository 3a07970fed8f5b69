"""A lake as an Iceberg table, kept without Java by the package `pyiceberg`.

The catalog is a SQLite file in the lake, `_iceberg.db`, so the lake is a local path. A batch's
files and its number are entered in one transaction, so a batch cannot be entered twice.
"""

import importlib
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, Final

import pyarrow as pa

from ...errors import BadOption, NotReady
from .errors import LakeError
from .lock import entry_in
from .place import Place
from .records import STATED, BatchRecord

IDENTIFIER: Final = "cometmq.messages"
CATALOG: Final = "_iceberg.db"
_METADATA: Final = "metadata"
_ODD: Final = re.compile("[?#%]")
"""What the catalog's address would not take for a part of its path."""
ENTRIES_KEPT: Final = 100
"""With more of them, each would take longer than the one before: they are all read and written."""
_METRICS: Final = "write.metadata.metrics"
_PROPERTIES: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": str(ENTRIES_KEPT),
    "commit.manifest-merge.enabled": "true",
    f"{_METRICS}.default": "none",  # Of the others, the files have no bounds.
    **{f"{_METRICS}.column.{name}": "full" for name in ("topic", "date", *STATED)},
}


class IcebergCatalog:
    by_record = False

    def __init__(self, place: Place, schema: pa.Schema, partitions: Sequence[str]) -> None:
        if not place.is_local:
            raise BadOption(f"{place.url}: an iceberg lake is a local path, for its catalog's sake")
        if odd := _ODD.search(place.shown()):
            raise BadOption(f"{place.url}: {odd[0]!r} cannot be in the path of an iceberg lake")
        self._place = place
        self._synced: frozenset[str] = frozenset()
        _create(_catalog(place), place, schema, partitions)
        self._sync()  # Who made the last entry may have been killed before it did.

    def has(self, record: BatchRecord) -> bool:
        reached = iceberg_table(self._place).properties.get(_property(record))
        return reached is not None and int(reached) >= record.batch

    def add(self, record: BatchRecord) -> None:
        with entry_in(self._place):
            if self.has(record):
                raise LakeError(
                    f"{self._place.url} has batch {record.batch} of this query already: another "
                    f"archive writes this lake with the checkpoint {record.checkpoint}"
                )
            with iceberg_table(self._place).transaction() as entry:
                entry.set_properties({_property(record): str(record.batch)})
                paths = [_uri(self._place, file.path) for file in record.files]
                # Each file has a name of its own; to compare it with all that are there takes long.
                entry.add_files(paths, check_duplicate_files=False)
                _forget_old(entry)
        self._sync()

    def _sync(self) -> None:
        """Have on disk all of which the table consists now. Entries that others have made since
        ours stand on ours, and need it."""
        table = iceberg_table(self._place)
        made = {table.metadata_location}
        if snapshot := table.current_snapshot():
            made |= {snapshot.manifest_list}
            made |= {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
        new = sorted(made - self._synced)
        self._place.sync_files(f"{_METADATA}/{PurePosixPath(path).name}" for path in new)
        self._synced = frozenset(made)


def iceberg_table(place: Place) -> Any:
    return _catalog(place).load_table(IDENTIFIER)


def _create(catalog: Any, place: Place, schema: pa.Schema, partitions: Sequence[str]) -> None:
    catalog.create_namespace_if_not_exists(IDENTIFIER.partition(".")[0])
    if catalog.table_exists(IDENTIFIER):
        return
    with catalog.create_table_transaction(
        IDENTIFIER, schema, location=_uri(place, ""), properties=_PROPERTIES
    ) as creation, creation.update_spec() as spec:  # fmt: skip
        for name in partitions:
            spec.add_identity(name)


def _forget_old(entry: Any) -> None:
    """Only that they were: their files stay, for who reads an older entry at this moment."""
    snapshots = importlib.import_module("pyiceberg.table.update.snapshot")
    known = sorted(entry.table_metadata.snapshots, key=lambda one: one.sequence_number)
    if old := known[:-ENTRIES_KEPT]:
        with snapshots.ExpireSnapshots(entry) as update:
            update.by_ids([one.snapshot_id for one in old])


def _catalog(place: Place) -> Any:
    try:
        catalogs = importlib.import_module("pyiceberg.catalog.sql")
    except ImportError as missing:
        raise NotReady(
            f"format iceberg is not available because of {missing}: "
            "pip install 'pyiceberg[sql-sqlite,pyarrow]>=0.12'"
        ) from missing
    return catalogs.SqlCatalog("cometmq", uri=f"sqlite:///{place.shown(CATALOG)}")


def _property(record: BatchRecord) -> str:
    return f"cometmq.archive.{record.query}"


def _uri(place: Place, path: str) -> str:
    return f"file://{place.shown(path)}"
