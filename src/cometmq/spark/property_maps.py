"""Encoded properties as a column of maps, whole batches at once.

Rules are those of `decode_properties`.
"""

from typing import Final

import pyarrow as pa

from cometmq.protocol.columns import Column
from cometmq.protocol.hot import property_columns

MAPS: Final = pa.map_(pa.string(), pa.string())
_OFFSET_BYTES: Final = 4


def property_maps(encoded: Column) -> pa.Array:
    """`encoded` has no nulls."""
    row_ends, names, values = property_columns(encoded.offsets, encoded.data)
    rows = pa.Array.from_buffers(
        pa.int32(), len(row_ends) // _OFFSET_BYTES, [None, pa.py_buffer(row_ends)]
    )
    return pa.MapArray.from_arrays(rows, _texts(names), _texts(values))


def _texts(column: Column) -> pa.Array:
    count = len(column.offsets) // _OFFSET_BYTES - 1
    buffers = [None, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.string(), count, buffers)
