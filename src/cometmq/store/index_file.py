"""One index file: which records carry a key. Layout in protocol/layout.py.

A hash table on disk: slots point to the newest item of a chain, items to the one before.
"""

from pathlib import Path

import msgspec

from cometmq.protocol.hot import index_count_below, index_insert, index_lookup, index_relink
from cometmq.protocol.layout import (
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_ITEM,
    INDEX_ITEM_BYTES,
    KEY_BYTES,
)

from .disk import Disk
from .segment import PAGE_BYTES, Segment

RESERVE_STEP_BYTES = 1024 * 1024


class IndexHeader(msgspec.Struct, frozen=True):
    begin_timestamp: int
    end_timestamp: int
    begin_offset: int
    end_offset: int
    slots_used: int
    next_item: int


class IndexFile:
    def __init__(self, segment: Segment, slots: int, items: int) -> None:
        self._segment = segment
        self._slots = slots
        self._items = items
        self._items_at = INDEX_HEADER_BYTES + slots * 4
        self.count = self._told_count()
        """Items in the file."""

    @staticmethod
    def size(slots: int, items: int) -> int:
        return INDEX_HEADER_BYTES + slots * 4 + items * INDEX_ITEM_BYTES

    @classmethod
    def create(
        cls, path: Path, slots: int, items: int, disk: Disk, after: "IndexFile | None"
    ) -> "IndexFile":
        """A new file, which begins where the one before it ended."""
        head = INDEX_HEADER_BYTES + slots * 4
        size = cls.size(slots, items)
        made = cls(Segment.create(path, 0, size, disk, head), slots, items)
        begin = end = 0
        if after is not None:
            begin, end = after.header.end_timestamp, after.header.end_offset
        made._write(IndexHeader(begin, begin, end, end, 0, 1))
        return made

    @classmethod
    def open(cls, path: Path, slots: int, items: int, disk: Disk) -> "IndexFile":
        return cls(Segment.open(path, 0, cls.size(slots, items), disk), slots, items)

    @property
    def name(self) -> str:
        return self._segment.path.name

    @property
    def header(self) -> IndexHeader:
        return IndexHeader(*INDEX_HEADER.unpack_from(self._segment.view))

    @property
    def full(self) -> bool:
        return self.count + 1 >= self._items

    def insert(self, keys: bytes, at: int) -> int:
        """Insert packed keys from byte `at` on, as many as fit into the blocks at hand and one
        step of new ones; where to go on. On a full disk nothing is inserted."""
        segment = self._segment
        next_item_end = self._items_at + (self.count + 2) * INDEX_ITEM_BYTES
        segment.reserve(next_item_end, RESERVE_STEP_BYTES)
        room = (segment.reserved - self._items_at) // INDEX_ITEM_BYTES
        limit = min(self._items, room)
        end = index_insert(segment.view, self._slots, limit, keys, at)
        self.count += (end - at) // KEY_BYTES
        return end

    def lookup(self, key_hash: int, begin_ms: int, end_ms: int, count_max: int) -> list[int]:
        return index_lookup(self._segment.view, self._slots, key_hash, begin_ms, end_ms, count_max)

    def covers(self, begin_ms: int, end_ms: int) -> bool:
        header = self.header
        return header.begin_timestamp <= end_ms and header.end_timestamp >= begin_ms

    def count_below(self, physical_end: int) -> int:
        """How many items point to records below `physical_end`."""
        view = self._segment.view
        return index_count_below(view, self._slots, physical_end, self._items) - 1

    def cut(self, count: int, end_timestamp: int) -> None:
        """Keep the first `count` items, of which the last was stored at `end_timestamp`.

        Slots and chains are made anew from the items: after a crash only the items that were
        surely on disk can be trusted.
        """
        end = self._items_at + (count + 1) * INDEX_ITEM_BYTES
        self._segment.reserve(end, PAGE_BYTES)
        self._segment.cut(end)
        used = index_relink(self._segment.view, self._slots, count + 1)
        begin_time, begin_offset = self.header.begin_timestamp, self.header.begin_offset
        end_offset = self.last_item(count)[0]
        self._write(
            IndexHeader(begin_time, end_timestamp, begin_offset, end_offset, used, count + 1)
        )

    def last_item(self, count: int) -> tuple[int, int]:
        """Physical offset and approximate store time of item number `count`."""
        at = self._items_at + count * INDEX_ITEM_BYTES
        _, physical, seconds, _ = INDEX_ITEM.unpack_from(self._segment.view, at)
        return physical, self.header.begin_timestamp + seconds * 1000

    def sync(self) -> None:
        self._segment.sync()

    def delete(self) -> None:
        self._segment.delete()

    def _write(self, header: IndexHeader) -> None:
        INDEX_HEADER.pack_into(self._segment.view, 0, *msgspec.structs.astuple(header))
        self.count = self._told_count()

    def _told_count(self) -> int:
        return max(self.header.next_item, 1) - 1
