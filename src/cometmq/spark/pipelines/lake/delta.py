"""A lake as a Delta table, kept without Java by the package `deltalake`.

Each batch is one entry of the table's log, with the query's id and the batch's number: Delta's
own means against entering something twice.
"""

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from ...errors import BadOption, NotReady
from .errors import LakeError
from .place import Place
from .records import BatchRecord

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LOG: Final = "_delta_log"
_UNSURE: Final = 32
"""So many of the last entries may be in memory only, if who wrote them was killed. A kernel keeps
nothing so long that there could be more."""


_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
"""Which Delta takes for another sign."""


class _Added(msgspec.Struct):
    path: str
    """Quoted, as in a URL."""


class _Action(msgspec.Struct):
    """A line of an entry, as far as it is looked at."""

    add: _Added | None = None


class DeltaLog:
    by_record = False

    def __init__(self, place: Place, schema: pa.Schema, partitions: Sequence[str]) -> None:
        if place.is_local and (escape := _ESCAPE.search(place.shown())):
            raise BadOption(f"{place.url}: {escape[0]!r} cannot be in the path of a delta lake")
        self._place = place
        self._partitions = list(partitions)
        with plain_errors(place):
            table = deltalake().DeltaTable.create(
                place.shown(), schema, mode="ignore", partition_by=self._partitions
            )
            self._synced = max(-1, table.version() - _UNSURE)
            self._sync(table.version())

    def has(self, record: BatchRecord) -> bool:
        reached = delta_table(self._place).transaction_version(record.query)
        return reached is not None and reached >= record.batch

    def add(self, record: BatchRecord) -> None:
        # The table as it is now: an old view of it would collide with its own last entry.
        table, now_ms = delta_table(self._place), round(time.time() * 1000)
        self._require_new(table, record)
        entered = deltalake().Transaction(record.query, record.batch, now_ms)
        with plain_errors(self._place):
            table.create_write_transaction(
                _actions(record, now_ms), "append", table.schema(), self._partitions,
                commit_properties=deltalake().CommitProperties(app_transactions=[entered]),
            )  # fmt: skip
        self._sync(table.version())

    def _require_new(self, table: "DeltaTable", record: BatchRecord) -> None:
        """Entries made behind this view of the table, Delta itself compares with ours."""
        reached = table.transaction_version(record.query)
        if reached is not None and reached >= record.batch:
            raise LakeError(
                f"{self._place.url} has batch {reached} of this query already: another archive "
                f"writes this lake with the checkpoint {record.checkpoint}"
            )

    def _sync(self, known: int) -> None:
        self._synced = sync_log(self._place, self._synced + 1, known)


def sync_log(place: Place, version: int, known: int) -> int:
    """Have all entries from a version on on disk, those of others too, with the files that they
    name: a log with a gap cannot be read. Up to the version `known`, entries may have been tidied
    away. The last version that is on disk now."""
    made: list[str] = []
    while place.is_local and ((names := list(_left_by(place, version))) or version <= known):
        made += names
        version += 1
    place.sync_files(made)
    return version - 1


def _left_by(place: Place, version: int) -> Iterator[str]:
    """What a version has left in the lake: its files, its entry, and a checkpoint of the log."""
    number = f"{_LOG}/{version:020d}"
    entry = place.read(f"{number}.json")
    if entry is not None:
        yield from _paths_added(entry)
        yield f"{number}.json"
    if place.has(f"{number}.checkpoint.parquet"):
        yield from (f"{number}.checkpoint.parquet", f"{_LOG}/_last_checkpoint")


def _paths_added(entry: bytes) -> Iterator[str]:
    for line in entry.splitlines():
        if added := msgspec.json.decode(line, type=_Action).add:
            yield unquote(added.path)


def delta_table(place: Place) -> "DeltaTable":
    with plain_errors(place):
        table: DeltaTable = deltalake().DeltaTable(place.shown())
    return table


def delta_files(place: Place) -> list[str]:
    """The paths of the files of which the table consists."""
    with plain_errors(place):
        added = pa.table(delta_table(place).get_add_actions(flatten=True))
    return [unquote(path) for path in added.column("path").to_pylist()]


@contextlib.contextmanager
def plain_errors(place: Place) -> Iterator[None]:
    """What is wrong with a table is an error of ours."""
    try:
        yield
    except (deltalake().exceptions.DeltaError, msgspec.DecodeError) as error:
        raise LakeError(f"{place.url}: {error}") from error


def deltalake() -> Any:
    try:
        import deltalake
    except ImportError as missing:
        raise NotReady(f"{missing}: pip install 'cometmq[spark]'") from missing
    return deltalake


def _actions(record: BatchRecord, now_ms: int) -> list[Any]:
    from deltalake.transaction import AddAction

    return [
        AddAction(
            path=file.path,
            size=file.bytes,
            partition_values={"topic": file.topic, "date": file.date},
            modification_time=now_ms,
            data_change=True,
            stats=file.stats,
        )
        for file in record.files
    ]
