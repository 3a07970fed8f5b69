"""The files of a broker's store, wherever they lie: in a directory, or behind an fsspec URL.

Read only, and never through a mapping: a broker that recovers cuts files, and who looks at the part
that is gone would be killed.
"""

import errno
import os
import re
import sys
import weakref
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from ..errors import BadOption, NotReady, NotThere

_SEGMENT_NAME: Final = re.compile(r"\d{20}")
_SIGNS: Final = frozenset(("commitlog", "checkpoint", "lock"))
"""By which a store is known, also one that has no message yet."""
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]+:(:|//)")


class OpenFile(Protocol):
    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill the buffer as far as the file goes; how many bytes."""
        ...

    def data_ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that may hold something but zeros: files are made ahead in
        full length, and reading through all that nobody wrote yet would take long."""
        ...


class Files(Protocol):
    """Paths are relative to the store's directory."""

    def listed(self, directory: str) -> dict[str, int | None]:
        """Names in a directory: files with their sizes, directories with None. Empty when there
        is no such directory."""
        ...

    def open(self, path: str) -> OpenFile:
        """FileNotFoundError when it is gone."""
        ...

    def shown(self, path: str) -> str:
        """The path as a user knows it."""
        ...


class SegmentFile(NamedTuple):
    """A file of a chain, whose first byte has the offset `base`."""

    base: int
    size: int
    path: str

    @property
    def end(self) -> int:
        return self.base + self.size


def files_at(path: str) -> Files:
    if path.startswith("file:/"):  # With one slash or three, as Hadoop writes it.
        return LocalFiles(unquote(urlsplit(path).path))
    return UrlFiles(path) if _URL.match(path) else LocalFiles(path)


def segments_in(files: Files, directory: str) -> list[SegmentFile]:
    """The files of a chain in their order. Those with other names are not of it."""
    found = [
        SegmentFile(int(name), size, f"{directory}/{name}" if directory else name)
        for name, size in files.listed(directory).items()
        if size and _SEGMENT_NAME.fullmatch(name)
    ]
    return sorted(found)


def log_segments(files: Files) -> list[SegmentFile]:
    """The CommitLog's files; `path` may also be the log's own directory."""
    segments = segments_in(files, "commitlog") or segments_in(files, "")
    if not segments and _SIGNS.isdisjoint(files.listed("")):
        raise NotThere(f"path: {files.shown('')} is no store: it has no directory `commitlog`")
    return segments


def read_at(file: OpenFile, position: int, size: int) -> bytes:
    """Up to `size` bytes; fewer where the file ends."""
    buffer = memoryview(bytearray(size))
    return bytes(buffer[: file.read_into(position, buffer)])


# -- local ---------------------------------------------------------------------------------------


class LocalFiles:
    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def listed(self, directory: str) -> dict[str, int | None]:
        try:
            entries = list(os.scandir(self._root / directory))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return {entry.name: _size(entry) for entry in entries}

    def open(self, path: str) -> "LocalFile":
        return LocalFile(self._root / path)

    def shown(self, path: str) -> str:
        return str(self._root / path)


class LocalFile:
    """Stays readable when it is deleted meanwhile."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)

    def read_into(self, position: int, buffer: memoryview) -> int:
        filled = 0
        while filled < len(buffer):
            got = self._read_some(position + filled, buffer[filled:])
            if not got:
                break
            filled += got
        return filled

    def data_ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        # All of them before any is read: pages that were read ahead count as data.
        found = []
        while start < end and (data := self._seek(start, os.SEEK_DATA)) < end:
            start = min(self._seek(data, os.SEEK_HOLE), end)
            found.append((data, start))
        return found

    def _seek(self, position: int, whence: int) -> int:
        """Where the next data begin, or the next hole."""
        try:
            return os.lseek(self._fd, position, whence)
        except OSError as error:
            if error.errno == errno.ENXIO:  # Neither follows; the file may have been cut off.
                return sys.maxsize
            raise _deletion_named(error) from None

    def _read_some(self, position: int, buffer: memoryview) -> int:
        try:
            return os.preadv(self._fd, [buffer], position)
        except OSError as error:
            raise _deletion_named(error) from None


def _deletion_named(error: OSError) -> OSError:
    """ESTALE is what NFS says of a deleted file."""
    return FileNotFoundError(*error.args) if error.errno == errno.ESTALE else error


def _size(entry: "os.DirEntry[str]") -> int | None:
    try:
        return None if entry.is_dir() else entry.stat().st_size
    except FileNotFoundError:
        return 0  # Deleted since it was listed.


# -- by URL --------------------------------------------------------------------------------------


class UrlFiles:
    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError as missing:
            raise NotReady(f"path: {url} needs fsspec ({missing}): pip install fsspec") from None
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise BadOption(f"path: {error}") from None
        self._url = url.rstrip("/")

    def listed(self, directory: str) -> dict[str, int | None]:
        self._files.invalidate_cache()
        try:
            entries = self._files.ls(self._path(directory), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return {
            entry["name"].rstrip("/").rpartition("/")[2]: (
                None if entry["type"] == "directory" else entry["size"]
            )
            for entry in entries
        }

    def open(self, path: str) -> "UrlFile":
        return UrlFile(self._files.open(self._path(path), "rb"))

    def shown(self, path: str) -> str:
        return f"{self._url}/{path}" if path else self._url

    def _path(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}" if path else self._root


class UrlFile:
    def __init__(self, file: Any) -> None:
        self._file = file

    def read_into(self, position: int, buffer: memoryview) -> int:
        self._file.seek(position)
        filled = 0
        while filled < len(buffer):
            got = self._file.readinto(buffer[filled:])
            if not got:
                break
            filled += got
        return filled

    def data_ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        return [(start, end)] if start < end else []
