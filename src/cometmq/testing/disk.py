"""Disks that fail: one that loses its power, one whose syncs return errors."""

import errno
import os
import random
import threading
from pathlib import Path

from cometmq.store.disk import Disk

PAGE_BYTES = 4096


class PowerCutDisk(Disk):
    """Remembers what was synced, and can show the disk as a power cut would leave it.

    A page that was not synced may have reached the disk all the same, or not: chance decides page
    by page, as the kernel writes back in any order.
    """

    def __init__(self) -> None:
        self._durable: dict[Path, bytes] = {}
        self._lock = threading.Lock()
        self._off = False

    def create(self, path: Path, size: int, reserved: int) -> int:
        with self._lock:
            self._require_power()
            fd = super().create(path, size, reserved)
            self._durable[path] = bytes(size)
            return fd

    def sync(self, path: Path, fd: int) -> None:
        with self._lock:
            self._require_power()
            self._durable[path] = os.pread(fd, os.fstat(fd).st_size, 0)

    def write_whole(self, path: Path, content: bytes) -> None:
        with self._lock:
            self._require_power()
            super().write_whole(path, content)
            self._durable[path] = content

    def cut_power(self, root: Path, image: Path, chance: random.Random) -> None:
        """From now on every sync fails. `image` becomes a copy of `root` as the disk has it."""
        with self._lock:
            self._off = True
            for path, durable in self._durable.items():
                if path.exists():
                    target = image / path.relative_to(root)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(_mix_pages(durable, path.read_bytes(), chance))

    def _require_power(self) -> None:
        if self._off:
            raise OSError(errno.EIO, "the power is off")


class FailingDisk(Disk):
    """Syncs until told to fail; then every sync of a file returns the given error."""

    def __init__(self, code: int = errno.EIO) -> None:
        self._code = code
        self.failing = False

    def sync(self, path: Path, fd: int) -> None:
        if self.failing:
            raise OSError(self._code, os.strerror(self._code), str(path))
        super().sync(path, fd)


def _mix_pages(durable: bytes, current: bytes, chance: random.Random) -> bytes:
    mixed = bytearray(durable.ljust(len(current), b"\0"))
    for at in range(0, len(current), PAGE_BYTES):
        page = current[at : at + PAGE_BYTES]
        if mixed[at : at + PAGE_BYTES] != page and chance.random() < 0.5:
            mixed[at : at + PAGE_BYTES] = page
    return bytes(mixed)
