"""Ranges of a log as Arrow batches: what a task does.

Every whole record of a range that is wanted is in exactly one row. Damage is an error, or skipped
and told (`tolerateDamage`); a file that is gone likewise (`failOnDataLoss`). Only what no whole
record follows at the log's end is neither: its broker is writing it, or left it behind.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from cometmq.protocol.hot import ColumnBuilder
from cometmq.protocol.scan import Damage, Stop
from cometmq.transport.memory import keep_freed_memory

from ..arrow import BYTES_MAX, ROWS_MAX, ArrowRows, Odd
from ..errors import DataLost, Unreadable
from .files import Files, files_at
from .options import LogOptions
from .ranges import LogRange, Part
from .records import HEAD_BYTES, RECORD_BYTES_MAX, LogFile, record_size

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 256 << 10
"""Read at once: what is walked over shall still be in the processor's cache."""
_PLACE: Final = {
    "topic": "topic",
    "queueId": "queue",
    "queueOffset": "offset",
    "physicalOffset": "physical offset",
}
"""Columns that tell where a message is, and their names in words: any may turn out unreadable."""


def read_part(options: LogOptions, part: Part, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    keep_freed_memory()
    files = files_at(options.path)
    # Topics take a tenth of the time where no body is asked for; then there is little to be told.
    beside = list(_PLACE) if "body" in columns else ["physicalOffset"]
    rows = ArrowRows(columns, options.broker_name, beside)
    builder = ColumnBuilder(rows.collected)

    def batches() -> Iterator[pa.RecordBatch]:
        count, taken = builder.count, builder.take()

        def place(row: int) -> str:
            found = {name: rows.column(name, taken, count)[row] for name in beside}
            said = ", ".join(f"{_PLACE[name]} {value}" for name, value in found.items())
            return f"{files.shown('')}: {said}"

        odd = Odd(place, options.tolerate_damage, "tolerateDamage=true")
        return rows.batches(taken, count, odd)

    for one in part:
        for _ in RangeWalk(files, options, one, builder):
            if builder.count >= ROWS_MAX or builder.data_bytes >= BYTES_MAX:
                yield from batches()
    if builder.count:
        yield from batches()


class RangeWalk:
    """Takes the records of one range, a step at a time."""

    def __init__(
        self, files: Files, options: LogOptions, one: LogRange, builder: ColumnBuilder
    ) -> None:
        self._files = files
        self._options = options
        self._range = one
        self._builder = builder
        self._buffer = memoryview(bytearray(CHUNK_BYTES))
        self._offset = one.start
        self._seen_damaged = -1

    def __iter__(self) -> Iterator[None]:
        try:
            file = LogFile(self._files.open(self._range.segment.path), self._range.segment)
            while self._offset < self._range.end:
                self._step(file)
                yield
        except FileNotFoundError:
            self._lost()

    def _step(self, file: LogFile) -> None:
        asked = min(len(self._buffer), self._range.end - self._offset)
        chunk = self._buffer[: file.read_into(self._offset, self._buffer[:asked])]
        walked = self._builder.walk(chunk, 0, len(chunk), self._offset, self._options.choice)
        self._offset += walked.position
        if walked.stop is Stop.BLANK:
            self._offset = self._range.end
        elif not chunk:  # The file was cut off.
            self._pass(file, Damage.SIZE)
        elif walked.stop is Stop.DAMAGED:
            is_all = len(chunk) < asked
            if is_all or not self._goes_on(chunk[walked.position :]):
                self._pass(file, walked.damage)

    def _goes_on(self, rest: memoryview) -> bool:
        """Whether a record only reaches beyond what was read. Then there is room for it."""
        room = min(self._range.end - self._offset, RECORD_BYTES_MAX)
        if len(rest) < HEAD_BYTES:
            return len(rest) < room
        size = record_size(rest, self._offset)
        if size is None or not len(rest) < size <= room:
            return False
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(size))
        return True

    def _pass(self, file: LogFile, damage: Damage) -> None:
        """Go on behind something that is no whole record."""
        one, offset = self._range, self._offset
        found = file.search(offset + 1, one.end)
        if one.is_tail and found is None:
            self._cut_off()
            self._offset = one.end
        elif one.is_tail and self._seen_damaged != offset:
            self._seen_damaged = offset  # It may have been written meanwhile: look again.
        else:
            self._offset = one.end if found is None else found
            self._damaged(offset, damage)

    def _cut_off(self) -> None:
        """What was whole when the read was planned, a broker that recovers may have taken back."""
        log.warning(
            "%s: what was planned of offsets %d to %d is not there any more: the log was cut off",
            self._files.shown(self._range.segment.path), self._offset, self._range.end,
        )  # fmt: skip

    def _damaged(self, offset: int, damage: Damage) -> None:
        path = self._files.shown(self._range.segment.path)
        said = f"{path}: no whole record at physical offset {offset}: {damage.describe()}"
        if not self._options.tolerate_damage:
            raise Unreadable(f"{said}; tolerateDamage=true goes on with the next one")
        log.warning("%s; going on at %d", said, self._offset)

    def _lost(self) -> None:
        path = self._files.shown(self._range.segment.path)
        said = f"{path} was deleted before offsets {self._offset} to {self._range.end} were read"
        if self._options.fail_on_data_loss:
            raise DataLost(f"{said}; failOnDataLoss=false reads what is left")
        log.warning("%s; reading what is left", said)
