"""Records as columns: one buffer a field instead of one object a message, laid out as Arrow's.

`ColumnBuilder` takes the records of pulls or of log files and gives the columns that are wanted.
This is the plain one; `hot.ColumnBuilder` is compiled where it can be. Neither knows Arrow itself:
numbers stand in machine order, texts are UTF-8 behind 32-bit offsets, nulls are bits.
"""

import sys
from array import array
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from . import flags
from ._reference import (
    RecordFields,
    check_record,
    entry_damage,
    record_fields,
    record_parts,
    split_records,
)
from .layout import ENTRY
from .message_id import offset_id
from .properties import (
    KEYS,
    RECORD_CRC,
    TAGS,
    UNIQUE_KEY,
    decode_properties,
    property_value,
)
from .scan import Damage, Stop

NUMBERS: Final = {
    "queueId": "i",
    "queueOffset": "q",
    "physicalOffset": "q",
    "bornTimestamp": "q",
    "storeTimestamp": "q",
    "reconsumeTimes": "i",
    "sysFlag": "i",
    "flag": "i",
}
"""Their types as `array` names them. Times are microseconds since 1970."""
TEXTS: Final = ("topic", "msgId", "keys", "tags")
BINARIES: Final = ("body", "properties", "bornHost", "storeHost")
COLUMNS: Final = (*TEXTS, *NUMBERS, *BINARIES)
"""Bodies are as stored, hosts are packed, properties are encoded."""
BUFFER_BYTES_MAX: Final = 2**31 - 1
"""What 32-bit offsets reach."""

_KEYS, _TAGS, _UNIQUE_KEY = KEYS.encode(), TAGS.encode(), UNIQUE_KEY.encode()


class Column(NamedTuple):
    """Buffers of one column. `offsets` is empty for numbers, `validity` where nothing is null."""

    offsets: bytes
    data: bytes
    validity: bytes
    null_count: int


class PropertyColumns(NamedTuple):
    """Properties of many messages: `row_ends` are 32-bit offsets into the entries, which are those
    of all messages behind one another. Records' own checksums are left out."""

    row_ends: bytes
    names: Column
    values: Column


class Choice(NamedTuple):
    """Which records of a log are wanted. Those that no queue ever points to are not, unless
    `uncommitted` says so: prepared and rolled-back ones."""

    topics: frozenset[bytes] | None = None
    without_topics: frozenset[bytes] = frozenset()
    queue_ids: frozenset[int] | None = None
    stored_from: int = -(2**63)
    stored_before: int = 2**63 - 1
    """Milliseconds since 1970."""
    uncommitted: bool = False

    def has(self, record: RecordFields) -> bool:
        return (
            (self.uncommitted or flags.is_queued(record[8]))
            and self.stored_from <= record[6] < self.stored_before
            and (self.queue_ids is None or record[1] in self.queue_ids)
            and (self.topics is None or record[0] in self.topics)
            and record[0] not in self.without_topics
        )


class Walked(NamedTuple):
    """How far a walk over log bytes came, and why it ended there."""

    position: int
    stop: Stop
    damage: Damage


class ColumnBuilder:
    """Collects records; `take` gives what was collected, and begins anew.

    `tags`: only records with one of these tags. A broker compares hashes, so it may send others.
    """

    def __init__(self, names: Iterable[str], tags: frozenset[bytes] | None = None) -> None:
        self._names = tuple(names)
        unknown = set(self._names) - set(COLUMNS)
        if unknown:
            raise ValueError(f"no such columns: {', '.join(sorted(unknown))}")
        self._tags = tags
        self._begin()

    def _begin(self) -> None:
        self.count = 0
        self.data_bytes = 0
        """Of texts and binaries together."""
        self._values: dict[str, list[int | bytes | None]] = {name: [] for name in self._names}

    def add(self, data: bytes, start: int = 0, end: int = 2**63 - 1) -> int:
        """Take the records in whose queue offsets lie between; how many. MalformedRecord when one
        is not whole: then nothing of `data` is taken."""
        records = split_records(data)
        return sum(self._put(record) for record in records if start <= record[2] < end)

    def walk(
        self, view: memoryview, start: int, end: int, base: int, choice: Choice | None = None
    ) -> Walked:
        """Take the chosen records of a log from `start` on, up to the first that is not whole.

        `base` is the physical offset of the first byte of `view`. Checksums are verified for all
        records, also for those that are not chosen: damage may hide what a record is.
        """
        choice = choice or Choice()
        position, size = start, 1
        while position < end:
            size = check_record(view, position, end, base + position)
            if size <= 0:
                break
            fields = _fields_at(view, position, size)
            if choice.has(fields):
                self._put(fields)
            position += size
        stop = Stop.END if size > 0 else Stop.DAMAGED if size else Stop.BLANK
        return Walked(position, stop, Damage(min(size, 0) * -1))

    def add_entries(
        self, entries: bytes, queue_offset: int, log: memoryview, base: int, bytes_max: int
    ) -> int:
        """Take the records of a log that ConsumeQueue entries lead to, of which the first has
        `queue_offset`; how many. `base` is the physical offset of the first byte of `log`.

        Ends before the first entry that leads elsewhere, or not to the whole record that it
        tells of, and where more than `bytes_max` of them would be taken; one is, however large.
        """
        taken = total = 0
        for physical, size, _ in ENTRY.iter_unpack(entries):
            position = physical - base
            if not 0 <= position < len(log) or (taken and total + size > bytes_max):
                break
            if entry_damage(log, position, len(log), physical, size, queue_offset + taken):
                break
            self._put(_fields_at(log, position, size))
            total += size
            taken += 1
        return taken

    def _put(self, record: RecordFields) -> int:
        """Add a record's fields to the columns, unless its tag is not asked for; how many."""
        properties = record[10]
        tag = property_value(properties, _TAGS)
        if self._tags is not None and tag not in self._tags:
            return 0
        fields: dict[str, int | bytes | None] = {
            "topic": record[0],
            "queueId": record[1],
            "queueOffset": record[2],
            "physicalOffset": record[3],
            "reconsumeTimes": record[4],
            "bornTimestamp": _micros(record[5]),
            "storeTimestamp": _micros(record[6]),
            "flag": record[7],
            "sysFlag": record[8],
            "body": record[9],
            "properties": properties,
            "bornHost": record[11],
            "storeHost": record[12],
            "tags": tag,
            "keys": property_value(properties, _KEYS),
            "msgId": property_value(properties, _UNIQUE_KEY)
            or offset_id(record[12], record[3]).encode(),
        }
        for name, values in self._values.items():
            value = _clean(name, fields[name])
            values.append(value)
            self.data_bytes += len(value) if isinstance(value, bytes) else 0
        self.count += 1
        return 1

    def take(self) -> dict[str, Column]:
        columns = {name: _column(name, values) for name, values in self._values.items()}
        self._begin()
        return columns


def _fields_at(log: memoryview, position: int, size: int) -> RecordFields:
    """Of a record whose lengths are known to add up."""
    record = bytes(log[position : position + size])
    parts = record_parts(record, 0, size)
    assert parts is not None
    return record_fields(record, 0, size, parts)


def property_columns(offsets: bytes, data: bytes) -> PropertyColumns:
    """Encoded properties of many messages as a column has them, taken apart as
    `decode_properties` does it. ValueError when `offsets` do not lie in `data`."""
    ends = array("i", offsets).tolist()
    if not ends or ends[0] < 0 or ends[-1] > len(data) or ends != sorted(ends):
        raise ValueError("offsets are not those of the data")
    names, values = list[int | bytes | None](), list[int | bytes | None]()
    row_ends = array("i", [0])
    for start, end in pairwise(ends):
        entries = decode_properties(bytes(data[start:end]))
        entries.pop(RECORD_CRC, None)
        names += [name.encode() for name in entries]
        values += [value.encode() for value in entries.values()]
        row_ends.append(len(names))
    return PropertyColumns(row_ends.tobytes(), _column("name", names), _column("value", values))


def _micros(milliseconds: int) -> int:
    """Wraps around as 64 bits do."""
    return (milliseconds * 1000 + 2**63) % 2**64 - 2**63


def _clean(name: str, value: int | bytes | None) -> int | bytes | None:
    """Texts must be UTF-8, whatever their sender wrote."""
    if name in TEXTS and isinstance(value, bytes) and not value.isascii():
        return value.decode("utf-8", "replace").encode()
    return value


def _column(name: str, values: list[int | bytes | None]) -> Column:
    if name in NUMBERS:
        numbers = [value for value in values if isinstance(value, int)]
        return Column(b"", array(NUMBERS[name], numbers).tobytes(), b"", 0)
    offsets, end = array("i", [0]), 0
    for value in values:
        end += len(value) if isinstance(value, bytes) else 0
        offsets.append(end)
    nulls = sum(value is None for value in values)
    pieces = [value for value in values if isinstance(value, bytes)]
    return Column(offsets.tobytes(), b"".join(pieces), _validity(values) if nulls else b"", nulls)


def _validity(values: list[int | bytes | None]) -> bytes:
    bits = bytearray((len(values) + 7) // 8)
    for number, value in enumerate(values):
        if value is not None:
            bits[number >> 3] |= 1 << (number & 7)
    return bytes(bits)


assert sys.byteorder == "little", "Arrow's buffers are little-endian, and so are ours"
