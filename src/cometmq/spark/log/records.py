"""Where records begin in a file of the log: hops from one to the next, and the search for one.

A record tells its own size and physical offset, so a place where one begins is known from a few
bytes. Nothing is decoded here, and checksums are verified only by the search.
"""

import struct
from collections.abc import Iterator
from typing import Final

from cometmq.protocol.hot import check_record, scan_records
from cometmq.protocol.layout import BLANK_MAGIC, FIXED_BYTES_MIN, MAGIC_V1, MAGIC_V2
from cometmq.protocol.scan import Stop

from .files import OpenFile, SegmentFile, read_at

CHUNK_BYTES: Final = 1 << 20
RECORD_BYTES_MAX: Final = 256 << 20
"""A size field that tells more than this is damaged."""
_HEAD: Final = struct.Struct(">iI20xq")
HEAD_BYTES: Final = _HEAD.size
_MAGIC_AT: Final = 4
_MAGICS: Final = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
_BLANK: Final = BLANK_MAGIC.to_bytes(4, "big")


class LogFile:
    """An open file of the log. Offsets are physical ones."""

    def __init__(self, file: OpenFile, segment: SegmentFile) -> None:
        self._file = file
        self._base = segment.base
        self.end = segment.end

    def read(self, offset: int, size: int) -> bytes:
        return read_at(self._file, offset - self._base, min(size, self.end - offset))

    def read_into(self, offset: int, buffer: memoryview) -> int:
        return self._file.read_into(offset - self._base, buffer)

    def hop(self, known: int, wanted: int) -> int:
        """From a record to the first that begins at `wanted` or behind it; or to where no record
        follows, when that comes first."""
        offset = known
        while offset < wanted:
            chunk = memoryview(self.read(offset, min(CHUNK_BYTES, wanted - offset)))
            scan = scan_records(chunk, 0, len(chunk), offset, (), False, False)
            offset += scan.position
            if scan.stop is not Stop.DAMAGED:
                if scan.stop is Stop.BLANK or not scan.position:
                    break
                continue
            # It may only reach beyond what was looked at; then its size tells where it ends.
            size = record_size(self.read(offset, HEAD_BYTES), offset)
            if size is None or offset + size > self.end:
                break
            offset += size
        return offset

    def is_end(self, offset: int) -> bool:
        """Whether nothing was ever written here, or the marker that fills up a file."""
        head = self.read(offset, 8)
        return not any(head) or head[_MAGIC_AT:] == _BLANK

    def search(self, start: int, end: int) -> int | None:
        """Where the next whole record begins in [start, end)."""
        for offset in self._candidates(start, end):
            size = record_size(self.read(offset, HEAD_BYTES), offset)
            if size is None or offset + size > self.end or size > RECORD_BYTES_MAX:
                continue
            record = memoryview(self.read(offset, size))
            if check_record(record, 0, len(record), offset) > 0:
                return offset
        return None

    def _candidates(self, start: int, end: int) -> Iterator[int]:
        """Places that may be a record's, as its magic number stands there."""
        offset = start
        while offset < end:
            # A magic number may lie across two chunks.
            chunk = self.read(offset, CHUNK_BYTES + _MAGIC_AT + 3)
            found = sorted(at for magic in _MAGICS for at in _all(chunk, magic))
            yield from (offset + at - _MAGIC_AT for at in found if at >= _MAGIC_AT)
            offset += CHUNK_BYTES


def record_size(head: bytes | memoryview, offset: int) -> int | None:
    """The size of the record whose first bytes these are; None when they are not a record's."""
    if len(head) < HEAD_BYTES:
        return None
    size, magic, told = _HEAD.unpack_from(head)
    is_record = magic in (MAGIC_V1, MAGIC_V2) and size >= FIXED_BYTES_MIN and told == offset
    return size if is_record else None


def _all(data: bytes, wanted: bytes) -> Iterator[int]:
    at = data.find(wanted)
    while at >= 0:
        yield at
        at = data.find(wanted, at + 1)
