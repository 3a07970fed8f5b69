"""The `lock` and `abort` files: one store at a time, and how the last one ended."""

import fcntl
import os
from pathlib import Path

from .disk import Disk
from .errors import StoreLocked


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
            # The record lock on byte 0 is Java's; it knows only processes, so flock guards
            # against a second store in this one.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(fd)
            raise StoreLocked(
                f"{self._root} is in use by another store ({error.strerror})"
            ) from error
        os.pwrite(fd, b"lock", 0)
        self._lock_fd = fd
