"""Parquet files of one topic, written by a task: one for each day, more where it grows large.

Row groups are large, for readers and for compression. Days are those of UTC on which a broker
stored the messages. A file is staged and belongs to nobody until its batch is committed.
"""

import contextlib
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .lake.place import Place
from .lake.records import STATED, LakeFile

ROW_GROUP_ROWS_MAX: Final = 1 << 20
ROW_GROUP_BYTES_MAX: Final = 128 << 20
"""Before compression; a task has so much in memory for each day that it writes."""
FILE_BYTES_MAX: Final = 512 << 20
DAYS_OPEN_MAX: Final = 4
"""Stored times go up in a queue, so a day that was left seldom comes again."""
_DAY_US: Final = 86_400_000_000
_REPEATED: Final = (
    "topic", "date", "brokerName", "queueId", "tags", "reconsumeTimes", "bornHost", "storeHost",
    "sysFlag",
)  # fmt: skip
"""Columns with few values, for which a dictionary is worth while."""
_RISING: Final = ("queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp")
"""Columns in which a value is a little more than the one before."""
_BOUNDED: Final = (*_REPEATED, *_RISING)
"""Columns by whose bounds a reader may pass over pages. For ids and bodies they cost and tell
nothing."""
_PAGE_BYTES: Final = 1 << 20
"""As most writers have it; with smaller ones a body costs a third more."""


class Naming(NamedTuple):
    """How a task's files are called."""

    topic: str
    stage: Callable[[], str]
    """A new path for a staged file."""
    prefix: str
    """Of the final names; what follows is unique."""


class TopicFiles:
    def __init__(self, place: Place, naming: Naming, schema: pa.Schema) -> None:
        self._place = place
        self._naming = naming
        self._schema = schema
        self._open: dict[int, _DayFile] = {}
        self._done: list[LakeFile] = []

    def add(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:  # All of them were duplicates.
            return
        for day, part in _by_day(rows):
            self._file(day).add(part)
            if self._open[day].bytes >= FILE_BYTES_MAX:
                self._close(day)

    def close(self) -> list[LakeFile]:
        for day in list(self._open):
            self._close(day)
        return self._done

    def _file(self, day: int) -> "_DayFile":
        if day not in self._open:
            if len(self._open) == DAYS_OPEN_MAX:
                self._close(next(iter(self._open)))
            self._open[day] = _DayFile(self._place, self._naming, self._schema, day)
        return self._open[day]

    def _close(self, day: int) -> None:
        self._done.append(self._open.pop(day).close())


class _DayFile:
    def __init__(self, place: Place, naming: Naming, schema: pa.Schema, day: int) -> None:
        self._naming = naming
        self._schema = schema
        self._date = date(1970, 1, 1) + timedelta(days=day)
        self._staged = naming.stage()
        self._stats = _Stats()
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
        self._stack = contextlib.ExitStack()
        self._file = self._stack.enter_context(place.created(self._staged))
        self._writer = self._stack.enter_context(_writer(self._file, schema))

    @property
    def bytes(self) -> int:
        return self._file.tell()

    def add(self, rows: pa.RecordBatch) -> None:
        self._stats.add(rows)
        self._pending.append(rows)
        self._pending_rows += rows.num_rows
        self._pending_bytes += rows.nbytes
        if self._pending_rows >= ROW_GROUP_ROWS_MAX or self._pending_bytes >= ROW_GROUP_BYTES_MAX:
            self._flush()

    def close(self) -> LakeFile:
        self._flush()
        self._writer.close()
        size = self._file.tell()
        self._stack.close()
        topic, unique = self._naming.topic, self._staged.rpartition("/")[2].partition(".")[0]
        directory = f"topic={quote(topic, safe='')}/date={self._date}"
        return LakeFile(
            staged=self._staged,
            path=f"{directory}/{self._naming.prefix}-{unique}.parquet",
            topic=topic,
            date=str(self._date),
            rows=self._stats.rows,
            bytes=size,
            stats=self._stats.to_json(),
        )

    def _flush(self) -> None:
        if self._pending:
            rows = pa.Table.from_batches(self._pending)
            self._writer.write_table(self._with_partition(rows), ROW_GROUP_ROWS_MAX)
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0

    def _with_partition(self, rows: pa.Table) -> pa.Table:
        """Where the format wants topic and day in the file itself."""
        values = {"topic": self._naming.topic, "date": self._date}
        for field in reversed(self._schema):
            if field.name in values:
                value = pa.scalar(values[field.name], field.type)
                rows = rows.add_column(0, field, pa.repeat(value, len(rows)))
        return rows


def _writer(file: Any, schema: pa.Schema) -> pq.ParquetWriter:
    repeated = [name for name in schema.names if name in _REPEATED]
    if "properties" in schema.names:
        repeated.append("properties.key_value.key")
    return pq.ParquetWriter(
        file,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=repeated,
        column_encoding={name: "DELTA_BINARY_PACKED" for name in schema.names if name in _RISING},
        write_statistics=[name for name in schema.names if name in _BOUNDED],
        data_page_size=_PAGE_BYTES,
    )


def _by_day(rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    days = rows.column("storeTimestamp").cast(pa.int64()).to_numpy() // _DAY_US
    if days.min() == days.max():
        yield int(days[0]), rows
        return
    for day in np.unique(days).tolist():
        yield day, rows.filter(pa.array(days == day))


class _Stats:
    """Counts and bounds, as Delta's log has them."""

    def __init__(self) -> None:
        self.rows = 0
        self._least: dict[str, Any] = {}
        self._greatest: dict[str, Any] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        for name in STATED:
            bounds = pc.min_max(rows.column(name)).as_py()
            self._least[name] = min(bounds["min"], self._least.get(name, bounds["min"]))
            self._greatest[name] = max(bounds["max"], self._greatest.get(name, bounds["max"]))

    def to_json(self) -> str:
        told = {
            "numRecords": self.rows,
            "minValues": self._least,
            "maxValues": self._greatest,
            "nullCount": dict.fromkeys(STATED, 0),
        }
        return msgspec.json.encode(told).decode()
