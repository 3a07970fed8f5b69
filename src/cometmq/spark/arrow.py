"""Records' columns as Arrow batches, with the types that Spark compares to the letter.

`ColumnBuilder` knows records but no Arrow; here its buffers become arrays without a copy. What it
leaves as stored is made readable: packed bodies, hosts, properties. What cannot be made readable is
an error, or told and gone past, as its reader's options say (`Odd`).
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from cometmq.protocol.columns import Column
from cometmq.protocol.compression import decompress
from cometmq.protocol.errors import MalformedRecord
from cometmq.protocol.flags import COMPRESSED, INNER_BATCH, NEED_UNWRAP
from cometmq.protocol.host import unpack_host

from .errors import Unreadable
from .property_maps import MAPS, property_maps

log = logging.getLogger(__name__)

ROWS_MAX: Final = 1 << 15
"""Of a batch. Smaller ones cost Spark half its speed, larger ones only memory."""
BYTES_MAX: Final = 64 << 20
"""Of a batch's texts and binaries, as stored; of its bodies also unpacked."""
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "topic": pa.string(),
    "brokerName": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "msgId": pa.string(),
    "bornTimestamp": _TIMESTAMP,
    "storeTimestamp": _TIMESTAMP,
    "keys": pa.string(),
    "tags": pa.string(),
    "body": pa.binary(),
    "reconsumeTimes": pa.int32(),
    "bornHost": pa.string(),
    "storeHost": pa.string(),
    "sysFlag": pa.int32(),
    "physicalOffset": pa.int64(),
    "properties": MAPS,
}
_WHOLE_BATCH: Final = INNER_BATCH | NEED_UNWRAP
WHOLE_BATCH: Final = "a whole batch (queue.type=BatchCQ), which Spark's source does not read"
_HOSTS: Final = ("bornHost", "storeHost")


class Odd(NamedTuple):
    """How messages are met that cannot be rows as they are: nobody could read on if each of them
    failed every read for ever, and nobody would know of them if none did."""

    place: Callable[[int], str]
    """Where the message of a row is, in words."""
    is_tolerated: bool
    option: str
    """With which a user has them tolerated: `name=value`."""

    def body(self, row: int, why: str) -> None:
        self._found(row, why, "its body is null", "has null for its body")

    def whole_batch(self, row: int) -> None:
        why = f"the record is {WHOLE_BATCH}"
        self._found(row, why, "it is left out", "leaves it out")

    def _found(self, row: int, why: str, done: str, remedy: str) -> None:
        said = f"{self.place(row)}: {why}"
        if not self.is_tolerated:
            raise Unreadable(f"{said}; {self.option} {remedy}")
        log.warning("%s; %s", said, done)


class ArrowRows:
    """Makes batches of the wanted columns, in their order."""

    def __init__(
        self, columns: Sequence[str], broker_name: str | None, beside: Sequence[str] = ()
    ) -> None:
        """`beside`: columns that are collected, too, for `column`."""
        self.schema = pa.schema([(name, _TYPES[name]) for name in columns])
        self._columns = tuple(columns)
        self._broker_name = broker_name
        # Tells which bodies are packed, and which records are no messages.
        needed = dict.fromkeys((*columns, *beside, "sysFlag"))
        self.collected = tuple(name for name in needed if name != "brokerName")
        """What a ColumnBuilder has to collect for this."""

    def batches(
        self, taken: Mapping[str, Column], count: int, odd: Odd, left_out: Sequence[int] = ()
    ) -> Iterator[pa.RecordBatch]:
        """The rows that a builder gave away when it had `count`, less those with the numbers
        `left_out`; several batches where bodies unpack to much."""
        flags = np.frombuffer(taken["sysFlag"].data, np.int32)
        wrapped = flags & _WHOLE_BATCH == _WHOLE_BATCH
        if wrapped.any():
            whole = np.flatnonzero(wrapped).tolist()
            for row in whole:
                odd.whole_batch(row)
            left_out = [*left_out, *whole]
            flags = np.where(wrapped, 0, flags)  # What is left out need not be unpacked.
        batches = self._all(taken, count, flags, odd)
        return _without(batches, left_out) if left_out else batches

    def _all(
        self, taken: Mapping[str, Column], count: int, flags: Any, odd: Odd
    ) -> Iterator[pa.RecordBatch]:
        arrays = {name: self.column(name, taken, count) for name in self._columns}
        if "body" not in arrays or not (flags & COMPRESSED).any():
            yield self._batch(arrays)
            return
        for first, bodies in _unpacked(arrays["body"], flags, odd):
            rest = {name: one.slice(first, len(bodies)) for name, one in arrays.items()}
            yield self._batch({**rest, "body": bodies})

    def _batch(self, arrays: Mapping[str, pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [arrays[name] for name in self._columns], schema=self.schema
        )

    def column(self, name: str, taken: Mapping[str, Column], count: int) -> pa.Array:
        if name == "brokerName":
            return self._broker_names(count)
        column = taken[name]
        if name in _HOSTS:
            return _host_texts(_wrapped(pa.binary(), column, count))
        if name == "properties":
            return property_maps(column)
        return _wrapped(_TYPES[name], column, count)

    def _broker_names(self, count: int) -> pa.Array:
        if self._broker_name is None:
            return pa.nulls(count, pa.string())
        name = self._broker_name.encode()
        offsets = np.arange(count + 1, dtype=np.int32) * len(name)
        column = Column(offsets.tobytes(), name * count, b"", 0)
        return _wrapped(pa.string(), column, count)


def _wrapped(kind: pa.DataType, column: Column, count: int) -> pa.Array:
    buffers = [pa.py_buffer(column.validity) if column.null_count else None]
    if column.offsets:
        buffers.append(pa.py_buffer(column.offsets))
    buffers.append(pa.py_buffer(column.data))
    return pa.Array.from_buffers(kind, count, buffers, column.null_count)


def _unpacked(bodies: pa.Array, flags: Any, odd: Odd) -> Iterator[tuple[int, pa.Array]]:
    """Bodies as they were sent, in pieces of bounded size, each with the number of its first."""
    values: list[bytes | None] = []
    first = size = 0
    for row, (packed, flag) in enumerate(zip(bodies, flags.tolist(), strict=True)):
        body = None
        try:
            body = decompress(packed.as_py(), flag)
        except MalformedRecord as error:
            odd.body(row, str(error))
        values.append(body)
        size += len(body or b"")
        if size >= BYTES_MAX:
            yield first, pa.array(values, pa.binary())
            values, first, size = [], row + 1, 0
    if values:
        yield first, pa.array(values, pa.binary())


def _without(
    batches: Iterator[pa.RecordBatch], left_out: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """The same rows less those with these numbers, counted over all batches."""
    first, numbers = 0, np.array(left_out, np.int64)
    for batch in batches:
        mine = numbers[(numbers >= first) & (numbers < first + batch.num_rows)] - first
        first += batch.num_rows
        keeps = np.ones(batch.num_rows, np.bool_)
        keeps[mine] = False
        yield batch.filter(pa.array(keeps)) if len(mine) else batch


def _host_texts(packed: pa.Array) -> pa.Array:
    """Few hosts send many messages, so each is put into words once."""
    coded = packed.dictionary_encode()
    texts = [str(unpack_host(host)) for host in coded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(
        coded.indices, pa.array(texts, pa.string())
    ).dictionary_decode()
