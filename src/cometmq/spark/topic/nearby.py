"""A queue read out of its broker's own files, where those lie on this machine.

The broker says where its store is. Whether that store is the one that lies here is not a matter of
names: a record that the broker has just sent must stand here, byte for byte, at the same place.
Entries and records are checked as a broker checks them before it serves them; whoever reads goes on
with pulls from the first message on that cannot be read here, so nothing is lost by trying.

Files of the log are mapped. What a broker cuts off a file was never served, and a file that it
deletes stays as long as it is mapped.
"""

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cometmq.protocol.hot import ColumnBuilder
from cometmq.protocol.layout import ENTRY, ENTRY_BYTES
from cometmq.protocol.message_queue import MessageQueue

from ..log.files import LocalFiles, SegmentFile, read_at, segments_in

ROOT: Final = "storePathRootDir"
ENTRIES_MAX: Final = 4096
"""Read at once."""
RANGE_MIN: Final = 10_000
"""Messages below which looking for files takes longer than pulling."""


def nearby_queue(
    told: Mapping[str, str], queue: MessageQueue, offset: int, record: bytes
) -> "NearbyQueue | None":
    """The files of a queue, if they are here: `told` are its broker's settings, and the message
    at `offset` is this record."""
    root = Path(told.get(ROOT, ""))
    if not root.is_absolute():
        return None
    found = NearbyQueue(root, queue)
    return found if found.record(offset) == record else None


class NearbyQueue:
    def __init__(self, root: Path, queue: MessageQueue) -> None:
        self._files = LocalFiles(str(root))
        self._directory = f"consumequeue/{queue.topic}/{queue.queue_id}"
        self._mapped: _MappedLog | None = None

    def record(self, offset: int) -> bytes | None:
        """The bytes of one message; None if it cannot be found."""
        try:
            entries = self._entries(offset, 1)
            if not entries:
                return None
            physical, size, _ = ENTRY.unpack(entries)
            mapped = self._log_with(physical)
            return bytes(mapped.view[physical - mapped.base :][:size])
        except (OSError, ValueError):
            return None

    def take(self, builder: ColumnBuilder, offset: int, count: int, bytes_max: int) -> int:
        """Add messages from `offset` on, `count` of them at most; how many. None where the first
        of them is gone, or damaged."""
        try:
            entries = self._entries(offset, min(count, ENTRIES_MAX))
            if not entries:
                return 0
            mapped = self._log_with(ENTRY.unpack_from(entries)[0])
        except (OSError, ValueError):
            return 0
        return builder.add_entries(entries, offset, mapped.view, mapped.base, bytes_max)

    def _entries(self, offset: int, count: int) -> bytes:
        """Whole entries, as many as stand in one file; those behind the queue's end are zeros."""
        segments = segments_in(self._files, self._directory)
        segment = _holding(segments, offset * ENTRY_BYTES)
        position = offset * ENTRY_BYTES - segment.base
        size = min(count * ENTRY_BYTES, segment.size - position)
        found = read_at(self._files.open(segment.path), position, size)
        return found[: len(found) // ENTRY_BYTES * ENTRY_BYTES]

    def _log_with(self, physical: int) -> "_MappedLog":
        mapped = self._mapped
        if mapped is None or not mapped.base <= physical < mapped.base + len(mapped.view):
            segment = _holding(segments_in(self._files, "commitlog"), physical)
            mapped = self._mapped = _MappedLog(Path(self._files.shown(segment.path)), segment.base)
        return mapped


class _MappedLog:
    """A file of the log. It is let go with the last who looks at it."""

    def __init__(self, path: Path, base: int) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.view = memoryview(mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ))
        finally:
            os.close(fd)
        self.base = base


def _holding(segments: list[SegmentFile], at: int) -> SegmentFile:
    for segment in reversed(segments):
        if segment.base <= at < segment.end:
            return segment
    raise FileNotFoundError(f"no file has byte {at}")
