"""The CommitLog: all messages of the broker in the order of their arrival.

One writer appends. A record never crosses a file's end: what does not fit leaves a marker there
and goes to the next file. `end` is the offset where the next record goes.
"""

import struct
from collections.abc import Sequence

from cometmq.protocol.express import Rules, Taken
from cometmq.protocol.hot import append_records, append_sends
from cometmq.protocol.layout import BLANK_MAGIC, FIXED_BYTES_MIN
from cometmq.protocol.message import Appended, Message

from .allocator import Allocator
from .config import StoreConfig
from .disk import Disk, is_disk_full
from .errors import DiskFull, MessageTooLarge, StoreFailed, StoreMismatch
from .segment import Segment
from .segments import SegmentChain

_BLANK = struct.Struct(">iI")


class CommitLog:
    def __init__(self, config: StoreConfig, disk: Disk, store_host: bytes) -> None:
        self._config = config
        self._disk = disk
        self._store_host = store_host
        self._sealed = config.seal_records
        self.segments = SegmentChain(config.commit_log_dir, config.commit_log_file_bytes, disk)
        self._allocator = Allocator(self._make)
        # The file that takes the next record. A fresh log has none: its room is 0.
        self._view = memoryview(bytearray())
        self._base = self._position = self._limit = 0
        self._unreserved: Segment | None = None

    def reconfigure(self, config: StoreConfig) -> None:
        self._config = config

    def start(self, end: int) -> None:
        """Begin to append at `end`, which recovery has found."""
        self._allocator.start()
        self._go_to(end)
        if self._config.warm_up and not len(self.segments):
            # Otherwise the first message would wait until a whole file is warm.
            self._allocator.prepare(end)

    def _go_to(self, end: int) -> None:
        segment = self.segments.find(end)
        self._unreserved = None
        if segment is None:
            self._base, self._position, self._limit = end, 0, 0
        else:
            # No room until the rest of the file has its blocks: see make_room.
            self._unreserved = segment
            self._base = segment.base
            self._position = self._limit = end - segment.base

    def stop(self) -> None:
        """Take no more records. What was written stays readable."""
        self._allocator.stop()

    def close(self) -> None:
        """Let go of the files."""
        self.segments.close()
        self._view = memoryview(bytearray())
        self._unreserved = None

    @property
    def end(self) -> int:
        return self._base + self._position

    @property
    def start_offset(self) -> int:
        """The first offset that is still kept."""
        first = self.segments.first
        return first.base if first is not None else 0

    def append(
        self,
        messages: Sequence[Message],
        number: int,
        next_offsets: dict[tuple[str, int], int],
        store_timestamp: int,
        placed: list[Appended],
    ) -> int:
        """Write messages from `number` on at `end`, in this file; the number of the first one
        that does not go in as it is (see append_records)."""
        before = len(placed)
        try:
            return append_records(
                self._view, self._position, self._limit, self._base, messages, number,
                next_offsets, store_timestamp, self._store_host, self._sealed,
                self._config.message_bytes_max, placed,
            )  # fmt: skip
        finally:
            # Also when a message is refused: those before it have their offsets and stay.
            if len(placed) > before:
                self._position = placed[-1].end - self._base

    def append_sends(
        self,
        data: bytes,
        rules: Rules,
        born_host: bytes,
        requests_max: int,
        next_offsets: dict[tuple[str, int], int],
        store_timestamp: int,
    ) -> Taken:
        """Write the sends that `data` begins with at `end`, in this file, as far as they go in
        as they are."""
        taken = append_sends(
            self._view, self._position, self._limit, self._base, next_offsets, store_timestamp,
            self._store_host, self._sealed, data, rules, born_host, requests_max,
        )  # fmt: skip
        self._position = taken.position
        return taken

    def begin_at(self, offset: int) -> None:
        """Let a log that has nothing yet begin elsewhere: at the start of a file."""
        assert not len(self.segments)
        if offset % self._config.commit_log_file_bytes:
            raise StoreMismatch(
                f"a CommitLog cannot begin at {offset}: its files have "
                f"{self._config.commit_log_file_bytes} bytes here (mappedFileSizeCommitLog)"
            )
        self._base, self._position, self._limit = offset, 0, 0

    def cut(self, end: int) -> None:
        """Give up everything from `end` on, durably: it does not come back after a crash."""
        self._allocator.drop()
        self.segments.remove_from(end)
        if self.segments.directory.is_dir():
            self._disk.sync_directory(self.segments.directory)
        segment = self.segments.find(end)
        if segment is not None:
            segment.cut(end - segment.base)
        self._go_to(end)

    def append_raw(self, data: memoryview) -> None:
        """Write bytes of another log at `end`, across files. On a full disk what fitted stays."""
        at = 0
        while at < len(data):
            if self._unreserved is not None or self._position == self._limit:
                self._make_room()
            size = min(len(data) - at, self._limit - self._position)
            self._view[self._position : self._position + size] = data[at : at + size]
            self._position += size
            at += size

    def make_room(self, message: Message) -> None:
        """Go on in the next file, because this one has no room for a message."""
        fresh = self._limit and self._position == 0 and self._unreserved is None
        if fresh or len(message.body) + FIXED_BYTES_MIN > self._config.commit_log_file_bytes:
            raise MessageTooLarge(
                f"a message with a body of {len(message.body)} bytes does not fit into a"
                f" CommitLog file of {self._config.commit_log_file_bytes}"
            )
        self._make_room()

    def _make_room(self) -> None:
        try:
            if self._unreserved is not None:
                self._unreserved.reserve(self._unreserved.size, self._unreserved.size)
                segment, self._unreserved = self._unreserved, None
                self._activate(segment, self._position)
            else:
                self._roll()
        except OSError as error:
            what = f"the CommitLog gets no room for more messages: {error}"
            raise DiskFull(what) if is_disk_full(error) else StoreFailed(what) from error

    def sync(self, start: int, end: int) -> None:
        """Make the bytes of [start, end) durable."""
        for segment in self.segments.between(start, end):
            segment.sync()

    def _roll(self) -> None:
        """Go on in the next file. The marker is written only when there is one."""
        segment = self._allocator.take(self._base + self._limit)
        if self._limit - self._position >= _BLANK.size:
            _BLANK.pack_into(self._view, self._position, self._limit - self._position, BLANK_MAGIC)
        self.segments.attach(segment)
        self._activate(segment, 0)

    def _activate(self, segment: Segment, position: int) -> None:
        self._view = segment.view
        self._base, self._position, self._limit = segment.base, position, segment.size
        self._allocator.prepare(segment.end)

    def _make(self, base: int) -> Segment:
        segment = self.segments.make(base)
        if self._config.warm_up:
            segment.warm_up()
        return segment
