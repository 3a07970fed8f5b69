"""Records of the simulated log: `length 4 | offset 8 | epoch 4 | text`.

Each knows its own offset, as RocketMQ's do: so a hole, a doubled or a torn piece shows. And each
knows the epoch it was written in, which the core is not told: so a table that lies shows, too.
"""

import struct
from collections.abc import Iterator

HEAD = struct.Struct(">IQI")


def record(offset: int, epoch: int, text: bytes) -> bytes:
    return HEAD.pack(HEAD.size + len(text), offset, epoch) + text


def walk(data: bytes | bytearray, base: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """End and epoch of each record from `start` on; `data` begins at `base`."""
    while start < end:
        length, offset, epoch = HEAD.unpack_from(data, start - base)
        assert offset == start, f"the record at {start} says that it is at {offset}"
        start += length
        yield start, epoch
    assert start == end, f"a record reaches beyond {end}"


def borders(data: bytes | bytearray, base: int, start: int, end: int) -> Iterator[int]:
    for border, _ in walk(data, base, start, end):
        yield border
