"""Where records begin in a file of the log: hops from one to the next, and the search for one.

A record tells its own size and physical offset, so a place where one begins is known from a few
bytes. Nothing is decoded here, and checksums are verified only by the search.
"""

import re
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
_MAGIC_END: Final = 8
_MAGIC: Final = re.compile(
    b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (MAGIC_V1, MAGIC_V2))
)
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

    def whole_end(self, start: int) -> int:
        """How far whole records follow one another from `start` on, as they are at this moment:
        what a broker writes meanwhile is not followed, which might take for ever."""
        offset, asked = start, CHUNK_BYTES
        while offset < self.end:
            asked = min(asked, self.end - offset)
            chunk = memoryview(self.read(offset, asked))
            scan = scan_records(chunk, 0, len(chunk), offset, (), False, True)
            offset += scan.position
            rest = chunk[scan.position :]
            if scan.stop is Stop.BLANK or len(chunk) < asked or not self._goes_on(rest, offset):
                break
            asked = max(CHUNK_BYTES, record_size(rest, offset) or 0)
        return offset

    def _goes_on(self, rest: memoryview, offset: int) -> bool:
        """Whether a record may begin at `offset`, of which `rest` was read, and be whole."""
        if len(rest) < HEAD_BYTES:
            return offset + len(rest) < self.end
        size = record_size(rest, offset)
        return size is not None and len(rest) < size <= min(self.end - offset, RECORD_BYTES_MAX)

    def is_filled_up(self, offset: int) -> bool:
        """Whether the marker stands here that fills up a file."""
        return self.read(offset, _MAGIC_END)[_MAGIC_AT:] == _BLANK

    def search(self, start: int, end: int) -> int | None:
        """Where the next whole record begins in [start, end)."""
        return next((at for at in self._candidates(start, end) if self._is_whole(at)), None)

    def _is_whole(self, offset: int) -> bool:
        size = record_size(self.read(offset, HEAD_BYTES), offset)
        if size is None or offset + size > self.end or size > RECORD_BYTES_MAX:
            return False
        record = memoryview(self.read(offset, size))
        return check_record(record, 0, len(record), offset) > 0

    def _candidates(self, start: int, end: int) -> Iterator[int]:
        """Places that may be a record's, as its magic number stands there."""
        buffer = memoryview(bytearray(CHUNK_BYTES + _MAGIC_END - 1))
        for offset in self._chunks(start, end):
            # A magic number may lie across two chunks.
            chunk = buffer[: self.read_into(offset, buffer[: self.end - offset])]
            found = [offset + match.start() - _MAGIC_AT for match in _MAGIC.finditer(chunk)]
            yield from (place for place in found if offset <= place < end)

    def _chunks(self, start: int, end: int) -> Iterator[int]:
        """Where to read, so as to see all of [start, end) but what was never written."""
        for first, stop in self._file.data_ranges(start - self._base, end - self._base):
            # The first bytes of a record's size may be zeros of a hole.
            begin = max(self._base + first - _MAGIC_AT, start)
            yield from range(begin, self._base + stop, CHUNK_BYTES)


def record_size(head: bytes | memoryview, offset: int) -> int | None:
    """The size of the record whose first bytes these are; None when they are not a record's."""
    if len(head) < HEAD_BYTES:
        return None
    size, magic, told = _HEAD.unpack_from(head)
    is_record = magic in (MAGIC_V1, MAGIC_V2) and size >= FIXED_BYTES_MIN and told == offset
    return size if is_record else None
