"""RocketMQ's replication stream, without I/O; brokers of 4.x and 5.x speak the same.

    slave → master   int64 how far its log goes             a report
    master → slave   int64 offset, int32 size, bytes        a frame; size 0: a sign of life

The first report asks for everything from there on, with 0 from the start of the master's last file.
Later ones acknowledge. A frame's bytes are those of the log, cut anywhere but at a file's end.
"""

import struct
from collections.abc import Iterator
from typing import Final

from .errors import BrokenStream

FRAME: Final = struct.Struct(">qi")
REPORT: Final = struct.Struct(">q")
FRAME_BYTES_MAX: Final = 4 * 1024**2 - FRAME.size
"""RocketMQ's slaves have a buffer of 4 MiB for a frame."""


def frame_header(offset: int, size: int) -> bytes:
    return FRAME.pack(offset, size)


def report(offset: int) -> bytes:
    return REPORT.pack(offset)


class Reports:
    """What a slave tells, out of any split of its bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """The last offset that is told in full; None when there is none."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        if not whole:
            return None
        offset: int = REPORT.unpack_from(data, whole - REPORT.size)[0]
        if offset < 0:
            raise BrokenStream(f"a report of offset {offset}")
        return offset


class Frames:
    """What a master sends, out of any split of its bytes. Nothing is kept but part of a header:
    the bytes of a frame are given on as they come."""

    def __init__(self) -> None:
        self._header = b""
        self._offset = 0
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        """Offsets and the bytes that belong there; no bytes for a sign of life."""
        view, at = memoryview(data), 0
        while at < len(view):
            if self._left:
                piece = view[at : at + self._left]
                at += len(piece)
                offset = self._offset
                self._offset += len(piece)
                self._left -= len(piece)
                yield offset, piece
                continue
            missing = FRAME.size - len(self._header)
            self._header += bytes(view[at : at + missing])
            at += missing
            if len(self._header) == FRAME.size:
                self._begin()
                if not self._left:
                    yield self._offset, view[:0]

    def _begin(self) -> None:
        self._offset, self._left = FRAME.unpack(self._header)
        self._header = b""
        if self._offset < 0 or not 0 <= self._left <= FRAME_BYTES_MAX:
            raise BrokenStream(f"a frame of {self._left} bytes for offset {self._offset}")
