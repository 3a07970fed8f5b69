"""The disk as a seam: the few calls whose failure or order decides over data.

Tests put another `Disk` in its place to lose what was not synced or to let a sync fail.
"""

import errno
import os
import shutil
from pathlib import Path

from cometmq.files import files_allowed


def is_disk_full(error: OSError) -> bool:
    """Whether an error says that there is no space, or that no more files may be open: the kinds
    that pass by themselves, and that come before anything was written."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


class Disk:
    def files_allowed(self) -> int:
        return files_allowed()

    def create(self, path: Path, size: int, reserved: int) -> int:
        """A new file of `size` bytes, of which the first `reserved` have their blocks.

        Appears under its name only when that is done, so that no half-made file is ever found.
        """
        temporary = path.with_name(path.name + ".new")
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            if reserved:
                os.posix_fallocate(fd, 0, reserved)
            os.ftruncate(fd, size)
            os.fsync(fd)
            os.replace(temporary, path)
        except BaseException:
            os.close(fd)
            temporary.unlink(missing_ok=True)
            raise
        self.sync_directory(path.parent)
        return fd

    def reserve(self, fd: int, start: int, size: int) -> None:
        """Give a range its blocks: a later write through a mapping cannot fail any more."""
        os.posix_fallocate(fd, start, size)

    def sync(self, path: Path, fd: int) -> None:
        """Make a file's data durable, also what was written through a mapping."""
        del path  # for those who simulate a disk
        os.fdatasync(fd)

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def write_whole(self, path: Path, content: bytes) -> None:
        """Replace a small file: afterwards it is the old one or the new one, never a part."""
        temporary = path.with_name(path.name + ".tmp")
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        self.sync_directory(path.parent)

    def make_directory(self, path: Path) -> None:
        """Make a directory and the missing ones above it, each known to its parent for good."""
        if path.is_dir():
            return
        self.make_directory(path.parent)
        path.mkdir(exist_ok=True)
        self.sync_directory(path.parent)

    def used_percent(self, path: Path) -> float:
        usage = shutil.disk_usage(path)
        # As RocketMQ reckons: what is left to ordinary users counts, not the root's reserve.
        return 100.0 * (1.0 - usage.free / (usage.used + usage.free))
