"""The key index: index files in the order of time, the last of which takes new items.

A file is named by the store time of its first message, as RocketMQ writes times (local,
yyyyMMddHHmmssSSS), so that the index is a function of the log alone.
"""

import re
import threading
import time
from collections.abc import Callable

from cometmq.protocol import java
from cometmq.protocol.layout import KEY

from .config import StoreConfig
from .disk import Disk
from .index_file import IndexFile

_NAME = re.compile(r"\d{17}")


class KeyIndex:
    def __init__(self, config: StoreConfig, disk: Disk) -> None:
        self._config = config
        self._disk = disk
        self._files: tuple[IndexFile, ...] = ()
        self._changing = threading.Lock()
        self._unsynced: list[IndexFile] = []

    def load(self) -> None:
        directory = self._config.index_dir
        if not directory.is_dir():
            return
        for leftover in directory.glob("*.new"):
            leftover.unlink()
        slots, items = self._config.index_slots, self._config.index_items
        paths = sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name))
        self._files = tuple(IndexFile.open(path, slots, items, self._disk) for path in paths)

    def insert(self, keys: bytes, at: int) -> int:
        """Insert some of the packed keys (see Scan.keys) from byte `at` on; where to go on.

        On a full disk nothing is inserted, and the same call may be made again.
        """
        if not self._files or self._files[-1].full:
            self._add_file(KEY.unpack_from(keys, at)[2])
        last = self._files[-1]
        end = last.insert(keys, at)
        # Behind the insert: whoever takes the list meanwhile syncs what was inserted.
        if last not in self._unsynced:
            with self._changing:
                self._unsynced.append(last)
        return end

    def _add_file(self, timestamp_ms: int) -> None:
        self._disk.make_directory(self._config.index_dir)
        name = local_time_name(timestamp_ms)
        if self._files and name <= self._files[-1].name:
            name = f"{int(self._files[-1].name) + 1:017d}"
        last = self._files[-1] if self._files else None
        made = IndexFile.create(
            self._config.index_dir / name, self._config.index_slots, self._config.index_items,
            self._disk, last,
        )  # fmt: skip
        with self._changing:
            self._files = (*self._files, made)

    def lookup(self, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int) -> list[int]:
        """Physical offsets of records that may carry the key, newest first."""
        hashed = java.key_hash(topic, key)
        found: list[int] = []
        for file in reversed(self._files):
            if file.covers(begin_ms, end_ms):
                found += file.lookup(hashed, begin_ms, end_ms, count_max - len(found))
            if len(found) >= count_max or file.header.begin_timestamp < begin_ms:
                break
        return found

    def cut(self, physical_end: int, store_time: Callable[[int], int | None]) -> None:
        """Forget items of records at `physical_end` and behind it, and repair what is left.

        `store_time` tells when the record at an offset was stored, if it is still there.
        """
        while self._files:
            file = self._files[-1]
            kept = file.count_below(physical_end)
            if kept:
                physical, about = file.last_item(kept)
                file.cut(kept, store_time(physical) or about)
                self._unsynced.append(file)
                return
            file.delete()
            self._files = self._files[:-1]

    def newest_items(self) -> int:
        """How many items the newest file has."""
        return self._files[-1].count if self._files else 0

    def sync(self) -> None:
        with self._changing:
            unsynced, self._unsynced = self._unsynced, []
        for file in unsynced:
            file.sync()

    def expire(self, physical_start: int) -> int:
        """Delete files that point to nothing any more; how many."""
        deleted = 0
        while len(self._files) > 1 and self._files[0].header.end_offset < physical_start:
            with self._changing:
                first, *rest = self._files
                self._files = tuple(rest)
            first.delete()
            deleted += 1
        return deleted

    def spans(self) -> list[tuple[int, int]]:
        """Of each file with items, the first and the last record that it points to."""
        headers = [file.header for file in self._files if file.count]
        return [(header.begin_offset, header.end_offset) for header in headers]

    def last_offset(self) -> int:
        """The record of the last item; 0 when there is none."""
        return next((f.header.end_offset for f in reversed(self._files) if f.count), 0)

    def durable_offset(self, timestamp_ms: int) -> int:
        """From which record on a crashed RocketMQ may have lost items: it makes a file durable
        only when it is full, and notes the store time of its end."""
        kept = [f for f in self._files if f.count and f.header.end_timestamp <= timestamp_ms]
        return kept[-1].header.end_offset if kept else 0

    def close(self) -> None:
        self._files = ()
        self._unsynced = []

    def __len__(self) -> int:
        return len(self._files)


def local_time_name(timestamp_ms: int) -> str:
    seconds, millis = divmod(timestamp_ms, 1000)
    return time.strftime("%Y%m%d%H%M%S", time.localtime(seconds)) + f"{millis:03d}"
