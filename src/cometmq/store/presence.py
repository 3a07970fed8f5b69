"""The `lock` and `abort` files: one store at a time, and how the last one ended."""

import fcntl
import os
import struct
from pathlib import Path

from .disk import Disk
from .errors import StoreLocked

_FLOCK = struct.Struct("@hhqqi4x")
"""The kernel's struct flock: type, whence, start, length, process."""


class Presence:
    """Holds a store's directory. While it is held, `abort` exists; a crash leaves it behind."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self._root = root
        self._disk = disk
        self._lock_fd = -1

    @property
    def _abort(self) -> Path:
        return self._root / "abort"

    def enter(self) -> bool:
        """Take the directory; True when the last owner left it in order."""
        self._disk.make_directory(self._root)
        self._take_lock()
        clean = not self._abort.exists()
        if clean:
            self._disk.write_whole(self._abort, str(os.getpid()).encode())
        return clean

    def leave(self, *, clean: bool) -> None:
        if clean:
            self._abort.unlink(missing_ok=True)
            self._disk.sync_directory(self._root)
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _take_lock(self) -> None:
        path = self._root / "lock"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # Java takes a record lock on byte 0. Ours meets it but belongs to the open file, not
            # to the process: it also keeps out a second store here, and no stray close() of the
            # same file releases it.
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        except OSError as error:
            os.close(fd)
            raise StoreLocked(
                f"{self._root} is in use by another store ({error.strerror})"
            ) from error
        os.pwrite(fd, b"lock", 0)
        self._lock_fd = fd
