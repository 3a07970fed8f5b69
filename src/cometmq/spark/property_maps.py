"""Encoded properties as a column of maps, whole batches at once.

Rules are those of `decode_properties`. What only few senders do (a name twice, bytes that are no
UTF-8) is left to it, message by message.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from cometmq.protocol.properties import ENTRY_END, NAME_END, RECORD_CRC, decode_properties

MAPS: Final = pa.map_(pa.string(), pa.string())
_CRC: Final = RECORD_CRC.encode()
_PARTS: Final = 4
"""Of an entry: name, mark, value, mark."""

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Truths = np.ndarray[Any, np.dtype[np.bool_]]


def property_maps(encoded: pa.Array) -> pa.Array:
    """`encoded` has the type binary, no nulls and no offset of its own."""
    try:
        return _at_once(encoded)
    except pa.ArrowInvalid:
        return _one_by_one(encoded)


def _one_by_one(encoded: pa.Array) -> pa.Array:
    maps = [decode_properties(value) for value in encoded.to_pylist()]
    for one in maps:
        one.pop(RECORD_CRC, None)
    return pa.array([list(one.items()) for one in maps], MAPS)


def _at_once(encoded: pa.Array) -> pa.Array:
    _, row_offsets, data_buffer = encoded.buffers()
    row_ends = np.frombuffer(row_offsets, np.int32)[1 : len(encoded) + 1].astype(np.int64)
    size = int(row_ends[-1]) if len(row_ends) else 0
    data = np.frombuffer(data_buffer or b"", np.uint8)[:size]
    starts, ends, rows = _entries(data, row_ends)
    marks, whole = _marks(data, starts, ends)
    parts = _parts(starts, marks, ends, size, data_buffer)
    places = np.flatnonzero(whole)
    coded = parts.take(pa.array(places * _PARTS)).dictionary_encode()
    codes = coded.indices.to_numpy()
    kept = codes != coded.dictionary.index(pa.scalar(_CRC, pa.binary())).as_py()
    if not kept.all():
        places, codes = places[kept], codes[kept]
    _require_single(codes, rows[places])
    names = coded.dictionary.cast(pa.string()).take(pa.array(codes))
    values = parts.take(pa.array(places * _PARTS + 2)).cast(pa.string())
    map_offsets = np.searchsorted(rows[places], np.arange(len(encoded) + 1)).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(map_offsets), names, values)


def _entries(data: Bytes, row_ends: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Where entries begin and end, and the rows that they are of. A row's end ends one, too."""
    closing = np.flatnonzero(data == ENTRY_END[0])
    before = np.searchsorted(closing, row_ends)
    ends = np.insert(closing, before, row_ends)
    lasts = before + np.arange(len(row_ends))
    begins = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
    begins[lasts[:-1] + 1] = row_ends[:-1]
    rows = np.repeat(np.arange(len(row_ends)), np.diff(lasts, prepend=-1))
    return begins, ends, rows


def _marks(data: Bytes, starts: Numbers, ends: Numbers) -> tuple[Numbers, Truths]:
    """Where each entry's name ends, and whether it has both a name and a value."""
    marks = np.append(np.flatnonzero(data == NAME_END[0]), len(data))
    first = marks[np.searchsorted(marks[:-1], starts)]
    whole = (first > starts) & (first + 1 < ends)
    return np.where(whole, first, starts), whole


def _parts(starts: Numbers, marks: Numbers, ends: Numbers, size: int, data: pa.Buffer) -> pa.Array:
    """All bytes, cut into the parts of all entries."""
    edges = np.empty(len(starts) * _PARTS + 1, np.int32)
    edges[0:-1:_PARTS], edges[1::_PARTS] = starts, marks
    edges[2::_PARTS] = np.minimum(marks + 1, ends)
    edges[3::_PARTS], edges[-1] = ends, size
    buffers = [None, pa.py_buffer(edges), data]
    return pa.Array.from_buffers(pa.binary(), len(edges) - 1, buffers)


def _require_single(codes: Any, rows: Numbers) -> None:
    """ArrowInvalid when a row has a name twice."""
    keys = np.sort((rows << 32) + codes)
    if (keys[1:] == keys[:-1]).any():
        raise pa.ArrowInvalid("a name stands twice among a message's properties")
