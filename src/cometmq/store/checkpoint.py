"""The checkpoint file: how far log, queues and index were surely on disk.

    0  int64 store time of the last durable message      RocketMQ's own fields
    8  int64 store time of the last durable queue entry
    16 int64 store time of the last durable index item
    24 int64 master's flushed offset (of a slave)        kept as found
    32 int64 confirmed offset
    40 int64 start of the last record with a durable queue entry (since 5.5)
    64 int64 log durable up to                           ours, behind what RocketMQ uses
    72 int64 queues durable up to
    80 int64 index durable up to
    88 int64 entries of all queues below that
    96 int64 items of the newest index file below that
    104 uint32 CRC-32 over bytes 0 to 104

RocketMQ leaves our part alone but moves its own, which breaks the CRC: so we know that another
broker wrote to the store since, and go by RocketMQ's times alone.
"""

import struct
import zlib
from pathlib import Path

import msgspec

from .disk import Disk

FILE_BYTES = 4096
_THEIRS = struct.Struct(">6q")
_OURS_AT = 64
_OURS = struct.Struct(">5q")
_CRC_AT = 104


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """Our part of the checkpoint: exact offsets."""

    log: int
    queues: int
    index: int
    queue_entries: int
    newest_index_items: int


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    log_timestamp: int = 0
    queue_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed: int = 0
    confirmed: int = 0
    last_queued: int = 0
    marks: Marks | None = None

    def encode(self) -> bytes:
        content = bytearray(FILE_BYTES)
        _THEIRS.pack_into(
            content, 0, self.log_timestamp, self.queue_timestamp, self.index_timestamp,
            self.master_flushed, self.confirmed, self.last_queued,
        )  # fmt: skip
        if self.marks is not None:
            _OURS.pack_into(content, _OURS_AT, *msgspec.structs.astuple(self.marks))
            crc = zlib.crc32(content[:_CRC_AT])
            content[_CRC_AT : _CRC_AT + 4] = crc.to_bytes(4, "big")
        return bytes(content)

    @classmethod
    def decode(cls, content: bytes) -> "Checkpoint":
        content = content.ljust(FILE_BYTES, b"\0")
        log, queue, index, master, confirmed, queued = _THEIRS.unpack_from(content)
        marks = None
        if int.from_bytes(content[_CRC_AT : _CRC_AT + 4], "big") == zlib.crc32(content[:_CRC_AT]):
            durable, queues, items, entries, count = _OURS.unpack_from(content, _OURS_AT)
            marks = Marks(
                log=durable, queues=queues, index=items, queue_entries=entries,
                newest_index_items=count,
            )  # fmt: skip
        return cls(
            log_timestamp=log, queue_timestamp=queue, index_timestamp=index,
            master_flushed=master, confirmed=confirmed, last_queued=queued, marks=marks,
        )  # fmt: skip


def read_checkpoint(path: Path) -> Checkpoint:
    return Checkpoint.decode(path.read_bytes()) if path.exists() else Checkpoint()


def write_checkpoint(path: Path, checkpoint: Checkpoint, disk: Disk) -> None:
    disk.write_whole(path, checkpoint.encode())
