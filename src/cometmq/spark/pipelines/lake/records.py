"""What an archive writes down beside a lake's files, as JSON under `_archive/`.

    _archive/lake.json              the lake's format and columns
    _archive/<query>/<batch>.json   a batch: its files and how far it goes in each queue

A batch's record is written before the batch becomes visible. Readers of Parquet pass over names
that begin with `_`.
"""

from typing import Final

import msgspec

from ...topic.offsets import Offsets
from .lock import one_name
from .place import Place

_ROOT: Final = "_archive"
_LAKE: Final = f"{_ROOT}/lake.json"
_KEPT: Final = 2
"""The last record may be of a batch that never became visible; the one before never is."""


STATED: Final = ("queueId", "queueOffset", "storeTimestamp")
"""Columns whose least and greatest values a reader may want to know before it opens a file."""


class LakeFile(msgspec.Struct, frozen=True):
    """One Parquet file: where a task left it, and where it belongs."""

    staged: str
    path: str
    topic: str
    date: str
    rows: int
    bytes: int
    stats: str
    """As Delta's log has them."""


class BatchRecord(msgspec.Struct, frozen=True):
    query: str
    batch: int
    checkpoint: str
    ends: Offsets
    files: list[LakeFile]


class LakeFacts(msgspec.Struct, frozen=True):
    format: str
    columns: tuple[str, ...]


class Records:
    def __init__(self, place: Place) -> None:
        self._place = place

    def facts(self) -> LakeFacts | None:
        told = self._place.read(_LAKE)
        return None if told is None else msgspec.json.decode(told, type=LakeFacts)

    def write_facts(self, facts: LakeFacts) -> None:
        self._place.write(_LAKE, msgspec.json.encode(facts))

    def queries(self) -> list[str]:
        return [name for name in self._place.listed(_ROOT) if not name.endswith(".json")]

    def with_checkpoint(self, checkpoint: str) -> list[list[BatchRecord]]:
        """Of each query that has this checkpoint, or had it before it was emptied: the last first.
        Nothing if none has begun."""
        begun = [records for records in map(self.of, self.queries()) if records]
        name = one_name(checkpoint)
        return [records for records in begun if one_name(records[0].checkpoint) == name]

    def of(self, query: str) -> list[BatchRecord]:
        """A query's records, the last one first."""
        told = [self._place.read(_path(query, batch)) for batch in self._batches(query)]
        return [msgspec.json.decode(one, type=BatchRecord) for one in told if one is not None]

    def write(self, record: BatchRecord) -> None:
        self._place.write(_path(record.query, record.batch), msgspec.json.encode(record))
        for batch in self._batches(record.query)[_KEPT:]:
            self._place.remove(_path(record.query, batch))

    def _batches(self, query: str) -> list[int]:
        names = self._place.listed(f"{_ROOT}/{query}")
        numbers = [name.removesuffix(".json") for name in names if not name.startswith(".")]
        return sorted((int(number) for number in numbers if number.isdigit()), reverse=True)


def _path(query: str, batch: int) -> str:
    return f"{_ROOT}/{query}/{batch}.json"
