"""A chain of segments of one size in one directory, without gaps."""

import bisect
from collections.abc import Iterator
from pathlib import Path

from .disk import Disk
from .errors import StoreMismatch
from .segment import NAME_DIGITS, Segment


class SegmentChain:
    """Invariant: each segment begins where the one before it ends."""

    def __init__(self, directory: Path, segment_bytes: int, disk: Disk) -> None:
        self.directory = directory
        self.segment_bytes = segment_bytes
        self._disk = disk
        self._segments: list[Segment] = []

    def load(self) -> None:
        """Open what is on disk. Files that are not ours to read are left alone."""
        if not self.directory.is_dir():
            return
        for leftover in self.directory.glob(f"{'[0-9]' * NAME_DIGITS}.new"):
            leftover.unlink()
        names = sorted(p.name for p in self.directory.iterdir() if _is_segment_name(p.name))
        for name in names:
            self.attach(Segment.open(self.directory / name, int(name), self.segment_bytes, self._disk))

    def attach(self, segment: Segment) -> None:
        if self._segments and self._segments[-1].end != segment.base:
            raise StoreMismatch(
                f"{self.directory}: {segment.path.name} does not begin where the file before it"
                f" ends ({self._segments[-1].end}); is the configured file size"
                f" ({self.segment_bytes}) the one it was written with?"
            )
        self._segments.append(segment)

    def create(self, base: int, reserved: int | None = None) -> Segment:
        self._disk.make_directory(self.directory)
        segment = Segment.create(self.directory, base, self.segment_bytes, self._disk, reserved)
        self.attach(segment)
        return segment

    def find(self, offset: int) -> Segment | None:
        """The segment that holds the byte at `offset`."""
        if not self._segments:
            return None
        number = (offset - self._segments[0].base) // self.segment_bytes
        return self._segments[number] if 0 <= number < len(self._segments) else None

    def between(self, start: int, end: int) -> list[Segment]:
        """The segments that hold any byte of [start, end)."""
        first = bisect.bisect_right(self._segments, start, key=lambda s: s.end)
        return [s for s in self._segments[first:] if s.base < end]

    def remove_first(self) -> None:
        self._segments.pop(0).delete()

    def remove_from(self, offset: int) -> None:
        """Delete the segments that begin at `offset` or behind it."""
        while self._segments and self._segments[-1].base >= offset:
            self._segments.pop().delete()

    def close(self) -> None:
        for segment in self._segments:
            segment.drop()
        self._segments.clear()

    def __iter__(self) -> Iterator[Segment]:
        return iter(tuple(self._segments))

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def first(self) -> Segment | None:
        return self._segments[0] if self._segments else None

    @property
    def last(self) -> Segment | None:
        return self._segments[-1] if self._segments else None


def _is_segment_name(name: str) -> bool:
    return len(name) == NAME_DIGITS and name.isascii() and name.isdigit()
