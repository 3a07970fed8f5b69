"""The timer checkpoint, `config/timercheck`: how far the timers were when that was surely on disk.

    0  int64 the second whose messages are being delivered    RocketMQ's own fields
    8  int64 timer log durable up to
    16 int64 next offset of the timer topic's queue
    24 int64 the same at the master
    32 int64 state version, int64 time, int64 counter
    64 int64 the millisecond that is being delivered          ours, behind what RocketMQ uses
    72 int64 end of the CommitLog when that began
    80 int64 next offset of the queue when that began
    88 int64 entries of the wheel from its second on
    96 int64 the counter of byte 48 once more
    104 uint32 CRC-32 over bytes 64 to 104, uint32 CRC-32 over bytes 0 to 104

The invariant of ours: what was due before that millisecond, and stood before that offset in the
queue, has its copy in the log before that end; every other copy lies behind it. RocketMQ leaves our
part alone but moves its own, which breaks the second CRC and makes the counters differ.
"""

import struct
import zlib
from pathlib import Path

import msgspec

from cometmq.protocol.data_version import DataVersion
from cometmq.store.disk import Disk

FILE_BYTES = 4096
REBUILDING = -1
"""In the place of the timer log's end, while files are not complete."""
TOLD_BYTES = 112
"""What a master tells of it: RocketMQ's slaves read their part, which comes first, and stop."""
_THEIRS = struct.Struct(">7q")
_OURS_AT, _OURS = 64, struct.Struct(">5q")
_CRCS_AT, _CRCS = 104, struct.Struct(">II")


class Progress(msgspec.Struct, frozen=True):
    """Up to where messages have been delivered: see the invariant above."""

    due_ms: int
    log_offset: int
    queue_offset: int


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    second_ms: int
    timer_log_end: int
    queue_offset: int
    version: DataVersion
    progress: Progress | None = None
    """None when a RocketMQ had the store since."""
    entries: int = 0

    def encode(self) -> bytes:
        assert self.progress is not None
        content = bytearray(FILE_BYTES)
        _THEIRS.pack_into(
            content, 0, self.second_ms, self.timer_log_end, self.queue_offset, self.queue_offset,
            self.version.state_version, self.version.timestamp, self.version.counter,
        )  # fmt: skip
        progress = self.progress
        _OURS.pack_into(
            content, _OURS_AT, progress.due_ms, progress.log_offset, progress.queue_offset,
            self.entries, self.version.counter,
        )  # fmt: skip
        ours = zlib.crc32(content[_OURS_AT:_CRCS_AT])
        _CRCS.pack_into(content, _CRCS_AT, ours, zlib.crc32(content[:_CRCS_AT]))
        return bytes(content)

    @classmethod
    def decode(cls, content: bytes) -> "Checkpoint | None":
        """None when it is damaged, or of neither broker."""
        if len(content) < _THEIRS.size:
            return None
        content = content.ljust(FILE_BYTES, b"\0")
        second_ms, log_end, offset, master_offset, *version = _THEIRS.unpack_from(content)
        theirs = cls(
            second_ms=second_ms, timer_log_end=log_end, queue_offset=min(offset, master_offset),
            version=DataVersion(*version),
        )  # fmt: skip
        if not any(content[_OURS_AT : _CRCS_AT + _CRCS.size]):
            return theirs if any(content[: _THEIRS.size]) else None
        ours, both = _CRCS.unpack_from(content, _CRCS_AT)
        due_ms, log_offset, queue_offset, entries, counter = _OURS.unpack_from(content, _OURS_AT)
        if ours != zlib.crc32(content[_OURS_AT:_CRCS_AT]):
            return None
        if both != zlib.crc32(content[:_CRCS_AT]):
            return theirs if theirs.version.counter > counter else None
        progress = Progress(due_ms, log_offset, queue_offset)
        return msgspec.structs.replace(theirs, progress=progress, entries=entries)


def read_checkpoint(path: Path) -> Checkpoint | None:
    try:
        return Checkpoint.decode(path.read_bytes())
    except FileNotFoundError:
        return None


def write_checkpoint(path: Path, checkpoint: Checkpoint, disk: Disk) -> None:
    disk.make_directory(path.parent)
    disk.write_whole(path, checkpoint.encode())
