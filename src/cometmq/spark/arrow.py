"""Records' columns as Arrow batches, with the types that Spark compares to the letter.

`ColumnBuilder` knows records but no Arrow; here its buffers become arrays without a copy. What it
leaves as stored is made readable: packed bodies, hosts, properties.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cometmq.protocol.columns import Column
from cometmq.protocol.compression import decompress
from cometmq.protocol.errors import MalformedRecord
from cometmq.protocol.flags import COMPRESSED, INNER_BATCH, NEED_UNWRAP
from cometmq.protocol.host import unpack_host

from .errors import Unreadable
from .property_maps import MAPS, property_maps

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
_HOSTS: Final = ("bornHost", "storeHost")


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
        self, taken: Mapping[str, Column], count: int, where: str
    ) -> Iterator[pa.RecordBatch]:
        """The rows that a builder gave away when it had `count`; several batches where bodies
        unpack to much. Unreadable, with `where`, when one of them cannot be told."""
        flags = np.frombuffer(taken["sysFlag"].data, np.int32)
        if (flags & _WHOLE_BATCH == _WHOLE_BATCH).any():
            raise Unreadable(
                f"{where} has records that are whole batches (queue.type=BatchCQ); Spark's source "
                "does not read them"
            )
        arrays = {name: self.column(name, taken, count) for name in self._columns}
        if "body" not in arrays or not (flags & COMPRESSED).any():
            yield self._batch(arrays)
            return
        try:
            for first, bodies in _unpacked(arrays["body"], flags):
                rest = {name: one.slice(first, len(bodies)) for name, one in arrays.items()}
                yield self._batch({**rest, "body": bodies})
        except MalformedRecord as error:
            raise Unreadable(f"{where}: {error}") from None

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


def _unpacked(bodies: pa.Array, flags: Any) -> Iterator[tuple[int, pa.Array]]:
    """Bodies as they were sent, in pieces of bounded size, each with the number of its first."""
    values: list[bytes] = []
    first = size = 0
    for row, (body, flag) in enumerate(zip(bodies, flags.tolist(), strict=True)):
        values.append(decompress(body.as_py(), flag))
        size += len(values[-1])
        if size >= BYTES_MAX:
            yield first, pa.array(values, pa.binary())
            values, first, size = [], row + 1, 0
    if values:
        yield first, pa.array(values, pa.binary())


def _host_texts(packed: pa.Array) -> pa.Array:
    """Few hosts send many messages, so each is put into words once."""
    coded = packed.dictionary_encode()
    texts = [str(unpack_host(host)) for host in coded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(
        coded.indices, pa.array(texts, pa.string())
    ).dictionary_decode()
