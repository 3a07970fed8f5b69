"""A lake's directory, wherever it lies: a local path, a mounted one, or a URL that fsspec knows.

What is written here is whole or not there, and what was synced survives a power cut. Paths are
relative to the lake. On object stores a move is a copy, and a written file is durable once closed.
"""

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from ...errors import BadOption, NotReady


class Place:
    def __init__(self, url: str) -> None:
        self.url = url
        self._files, root = _opened(url)
        self._root = PurePosixPath(root)
        self.is_local = "file" in _protocols(self._files)

    def shown(self, path: str = "") -> str:
        """The path as Spark and others take it."""
        if self.is_local or not path:
            return str(self._root / path) if self.is_local else self.url
        return f"{self.url.rstrip('/')}/{path}"

    def listed(self, directory: str) -> list[str]:
        """Names in a directory, in order; none when there is no such directory."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self._files.invalidate_cache()
            found = self._files.ls(self._at(directory), detail=False)
            return sorted(PurePosixPath(path).name for path in found)
        return []

    def has(self, path: str) -> bool:
        self._files.invalidate_cache()
        return bool(self._files.exists(self._at(path)))

    def read(self, path: str) -> bytes | None:
        """None when there is no such file."""
        with contextlib.suppress(FileNotFoundError), self._files.open(self._at(path), "rb") as file:
            return bytes(file.read())
        return None

    def write(self, path: str, data: bytes) -> None:
        """A small file, whole and durable."""
        parent = PurePosixPath(path).parent
        made = str(parent / f".{uuid.uuid4().hex}.tmp")
        with self.created(made) as file:
            file.write(data)
        self.move(made, path)
        self.sync_directories([path])

    @contextlib.contextmanager
    def created(self, path: str) -> Iterator[BinaryIO]:
        """A new file, durable behind the block but for its name."""
        self._files.makedirs(self._parent(path), exist_ok=True)
        with self._files.open(self._at(path), "wb") as file:
            yield file
            if self.is_local:
                file.flush()
                os.fsync(file.fileno())

    def move(self, source: str, target: str) -> None:
        """Over whatever has that name."""
        self._files.makedirs(self._parent(target), exist_ok=True)
        if self.is_local:
            os.replace(self._at(source), self._at(target))
        else:
            self._files.mv(self._at(source), self._at(target))

    def remove(self, path: str) -> None:
        """A file, or a directory with all that is in it; or nothing, when it is gone already."""
        with contextlib.suppress(FileNotFoundError):
            self._files.rm(self._at(path), recursive=True)

    def sync_directories(self, paths: Iterable[str]) -> None:
        """Have the names of these files survive a power cut, too."""
        if not self.is_local:
            return
        parents = {parent for path in paths for parent in PurePosixPath(path).parents}
        for parent in parents:
            _sync(str(self._root / parent))

    def sync_files(self, paths: Iterable[str]) -> None:
        """Files that somebody else wrote, and their names; those that are gone need no sync."""
        if not self.is_local:
            return
        there = [path for path in paths if self.has(path)]
        for path in there:
            with contextlib.suppress(FileNotFoundError):
                _sync(self._at(path))
        self.sync_directories(there)

    def _at(self, path: str) -> str:
        return str(self._root / path)

    def _parent(self, path: str) -> str:
        return str((self._root / path).parent)


def _opened(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as missing:
        raise NotReady(f"{missing}: pip install 'cometmq[spark]'") from missing
    if not url:
        raise BadOption("the lake's path is empty")
    try:
        files, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise BadOption(f"{url} cannot be opened: {error}") from None
    return files, root


def _protocols(files: Any) -> tuple[str, ...]:
    names = files.protocol
    return (names,) if isinstance(names, str) else tuple(names)


def _sync(path: str) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
