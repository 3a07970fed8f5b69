"""One mapped file.

Writes go through the mapping and only into blocks that the file already has: a full disk is an
error when blocks are asked for, never a SIGBUS at a write. Mapping and descriptor go with the last
reference, so a file that is deleted stays valid for whoever still reads it.

A mapping of Python's holds a descriptor of its own. Where there are many files, ours is opened only
for the moment (`keep_open=False`), so that each takes one of those that a process may have.
"""

import ctypes
import errno
import mmap
import os
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .disk import Disk
from .errors import StoreMismatch

PAGE_BYTES = mmap.PAGESIZE
_POPULATE_WRITE = 23
"""MADV_POPULATE_WRITE, which Python's mmap has no name for."""


class Segment:
    def __init__(
        self, path: Path, base: int, size: int, fd: int, disk: Disk, *, keep_open: bool = True
    ) -> None:
        """`base` is the offset of the first byte in the chain of files that this one is part of."""
        self.path = path
        self.base = base
        self.size = size
        self.end = base + size
        self._fd = fd if keep_open else None
        self._disk = disk
        close = weakref.finalize(self, os.close, fd)
        self._map = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self.view = memoryview(self._map)
        self.reserved = 0
        """So many bytes of it have their blocks for sure."""
        if not keep_open:
            close()

    @classmethod
    def create(
        cls,
        path: Path,
        base: int,
        size: int,
        disk: Disk,
        reserved: int | None = None,
        *,
        keep_open: bool = True,
    ) -> "Segment":
        """A new file of zeros; with blocks for all of it unless `reserved` names less."""
        reserve = size if reserved is None else min(reserved, size)
        fd = disk.create(path, size, reserve)
        segment = cls(path, base, size, fd, disk, keep_open=keep_open)
        segment.reserved = reserve
        return segment

    @classmethod
    def open(
        cls,
        path: Path,
        base: int,
        size: int,
        disk: Disk,
        *,
        may_be_short: bool = False,
        keep_open: bool = True,
    ) -> "Segment":
        """Map an existing file. With `may_be_short`, one that was cut off from outside is filled
        up with zeros, for recovery to see what is left."""
        fd = _open(path)
        found = os.fstat(fd).st_size
        if found > size or (found < size and not may_be_short):
            os.close(fd)
            raise StoreMismatch(f"{path} has {found} bytes, with this configuration it has {size}")
        if found < size:
            os.ftruncate(fd, size)
        return cls(path, base, size, fd, disk, keep_open=keep_open)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        if self._fd is not None:
            yield self._fd
            return
        fd = _open(self.path)
        try:
            yield fd
        finally:
            os.close(fd)

    def reserve(self, upto: int, step: int) -> None:
        """Make sure that the first `upto` bytes have blocks, `step` bytes ahead at a time."""
        if upto > self.reserved:
            target = min(-(-upto // step) * step, self.size)
            self.reserve_part(self.reserved, target)
            self.reserved = target

    def reserve_part(self, start: int, end: int) -> None:
        """The same for the bytes of [start, end), in a file that is written to in any order."""
        with self._opened() as fd:
            self._disk.reserve(fd, start, end - start)

    def sync(self) -> None:
        with ExitStack() as stack:
            try:
                fd = stack.enter_context(self._opened())
            except FileNotFoundError:
                return  # What was deleted meanwhile, nobody wants to find on the disk.
            self._disk.sync(self.path, fd)

    def cut(self, position: int) -> bool:
        """Zero everything from `position` on, durably; False when it is all zero already.

        What lies behind the end must not come back as data after the next crash. The blocks are
        given back too: reserve() is due before the next write.
        """
        if self.zero_from(position):
            return False
        with self._opened() as fd:
            os.ftruncate(fd, position)
            os.ftruncate(fd, self.size)
        self.reserved = min(self.reserved, position)
        self.sync()
        return True

    def warm_up(self) -> None:
        """Have every page ready to be written to, and ask the kernel to keep the file in memory."""
        if not _populate(self._map, self.size):
            for position in range(0, self.size, PAGE_BYTES):
                self._map[position] = self._map[position]
        _lock_memory(self._map, self.size)

    def data_ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that may hold something but zeros.

        Holes and blocks that were never written are skipped, so a long empty rest costs nothing.
        All ranges at once: whoever reads one makes the kernel read ahead, and pages in memory
        count as data.
        """
        with self._opened() as fd:
            return list(_data_ranges(fd, start, end))

    def modified_ms(self) -> int:
        with self._opened() as fd:
            return os.fstat(fd).st_mtime_ns // 1_000_000

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)

    def zero_from(self, position: int) -> bool:
        ranges = self.data_ranges(position, self.size)
        return all(is_zero(self.view[start:end]) for start, end in ranges)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def _data_ranges(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        try:
            start = os.lseek(fd, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        stop = os.lseek(fd, start, os.SEEK_HOLE)
        if start < end:
            yield start, min(stop, end)
        start = stop


def is_zero(view: memoryview) -> bool:
    """Whether all bytes are zero, compared in large steps (as bytes: views compare one by one)."""
    step = 1 << 20
    zeros = bytes(step)
    pieces = (bytes(view[at : at + step]) for at in range(0, len(view), step))
    return all(piece == zeros or piece.count(0) == len(piece) for piece in pieces)


def _populate(mapped: mmap.mmap, size: int) -> bool:
    """Have the kernel prepare all pages, while other threads of this process go on; False if it is
    too old for that (Linux 5.14)."""
    return bool(_libc().madvise(*_memory(mapped, size), _POPULATE_WRITE) == 0)


def _lock_memory(mapped: mmap.mmap, size: int) -> None:
    """mlock, which may be refused by a limit: warm-up is a wish, not a promise."""
    _libc().mlock(*_memory(mapped, size))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _memory(mapped: mmap.mmap, size: int) -> tuple[ctypes.c_void_p, ctypes.c_size_t]:
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    return ctypes.c_void_p(address), ctypes.c_size_t(size)
