"""One mapped file of a chain; its name is the offset of its first byte in 20 digits.

Writes go through the mapping and only into blocks that the file already has: a full disk is an
error when blocks are asked for, never a SIGBUS at a write. A segment that is dropped stays valid
for whoever still holds a view of it; the memory goes with the last view.
"""

import ctypes
import mmap
import os
from pathlib import Path

from .disk import Disk
from .errors import StoreMismatch

NAME_DIGITS = 20
PAGE_BYTES = mmap.PAGESIZE


class Segment:
    def __init__(self, path: Path, base: int, size: int, fd: int, disk: Disk) -> None:
        self.path = path
        self.base = base
        self.size = size
        self._fd = fd
        self._disk = disk
        self._map = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self.view = memoryview(self._map)
        self.reserved = size

    @classmethod
    def create(
        cls, directory: Path, base: int, size: int, disk: Disk, reserved: int | None = None
    ) -> "Segment":
        path = directory / segment_name(base)
        reserve = size if reserved is None else min(reserved, size)
        segment = cls(path, base, size, disk.create(path, size, reserve), disk)
        segment.reserved = reserve
        return segment

    @classmethod
    def open(cls, path: Path, base: int, size: int, disk: Disk) -> "Segment":
        """Map an existing file. One that is too short was cut off from outside or by a crash at
        its creation; it is filled up with zeros."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            found = os.fstat(fd).st_size
            if found > size:
                raise StoreMismatch(f"{path} has {found} bytes, configured are {size}")
            if found < size:
                os.ftruncate(fd, size)
            segment = cls(path, base, size, fd, disk)
        except BaseException:
            os.close(fd)
            raise
        segment.reserved = 0
        return segment

    @property
    def end(self) -> int:
        return self.base + self.size

    def reserve(self, upto: int, step: int) -> None:
        """Make sure that the first `upto` bytes have blocks, `step` bytes ahead at a time."""
        if upto > self.reserved:
            target = min(-(-upto // step) * step, self.size)
            self._disk.reserve(self._fd, self.reserved, target - self.reserved)
            self.reserved = target

    def sync(self) -> None:
        self._disk.sync(self.path, self._fd)

    def cut(self, position: int) -> None:
        """Zero everything from `position` on, durably, if it is not zero already.

        What lies behind the end must not come back as data after the next crash.
        """
        if is_zero(self.view[position:]):
            return
        self.view[position:] = bytes(self.size - position)
        self.sync()

    def warm_up(self) -> None:
        """Touch every page and ask the kernel to keep the whole file in memory."""
        for position in range(0, self.size, PAGE_BYTES):
            self._map[position] = self._map[position]
        self._map.madvise(mmap.MADV_WILLNEED)
        _lock_memory(self._map, self.size)

    def modified_ms(self) -> int:
        return os.fstat(self._fd).st_mtime_ns // 1_000_000

    def drop(self) -> None:
        """Close the file; readers that still hold a view keep their bytes."""
        if self._fd < 0:
            return
        os.close(self._fd)
        self._fd = -1
        self.view = memoryview(b"")

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)
        self.drop()


def segment_name(base: int) -> str:
    return f"{base:0{NAME_DIGITS}d}"


def is_zero(view: memoryview) -> bool:
    """Whether all bytes are zero, compared in large steps."""
    step = 1 << 20
    zeros = memoryview(bytes(min(step, len(view))))
    return all(
        view[at : at + step] == zeros[: min(step, len(view) - at)]
        for at in range(0, len(view), step)
    )


def _lock_memory(mapped: mmap.mmap, size: int) -> None:
    """mlock, which may be refused by a limit: warm-up is a wish, not a promise."""
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(size))
