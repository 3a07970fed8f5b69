"""A chain of segments of one size in one directory, named by offset in 20 digits, without gaps."""

import bisect
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

from .disk import Disk
from .errors import StoreMismatch
from .segment import Segment

NAME_DIGITS = 20


class SegmentChain:
    """Invariant: each segment begins where the one before it ends.

    The tuple of segments is replaced, never changed: a reader in any thread takes it once and has
    a chain that holds together, also while retention takes files away at its start.
    """

    def __init__(
        self, directory: Path, segment_bytes: int, disk: Disk, *, keep_open: bool = True
    ) -> None:
        """`keep_open`: see `segment`."""
        self.directory = directory
        self.segment_bytes = segment_bytes
        self._disk = disk
        self._keep_open = keep_open
        self._segments: tuple[Segment, ...] = ()
        self._changing = threading.Lock()

    def load(self, *, may_be_short: bool = False) -> None:
        """Open what is on disk. Files with other names are left alone."""
        if not self.directory.is_dir():
            return
        for leftover in self.directory.glob(f"{'[0-9]' * NAME_DIGITS}.new"):
            leftover.unlink()
        bases = sorted(int(p.name) for p in self.directory.iterdir() if _is_segment_name(p.name))
        # All names first: a file must not be touched before it is known to fit.
        for before, base in itertools.pairwise(bases):
            if base - before != self.segment_bytes:
                raise StoreMismatch(
                    f"{self.directory}: the file at {base} follows the one at {before}, but files"
                    f" have {self.segment_bytes} bytes; was another size configured before?"
                )
        for base in bases:
            segment = Segment.open(
                self.path(base), base, self.segment_bytes, self._disk,
                may_be_short=may_be_short, keep_open=self._keep_open,
            )  # fmt: skip
            self.attach(segment)

    def path(self, base: int) -> Path:
        return self.directory / f"{base:0{NAME_DIGITS}d}"

    def make(self, base: int, reserved: int | None = None) -> Segment:
        """Create a segment's file, without adding it to the chain."""
        self._disk.make_directory(self.directory)
        return Segment.create(
            self.path(base), base, self.segment_bytes, self._disk, reserved,
            keep_open=self._keep_open,
        )  # fmt: skip

    def attach(self, segment: Segment) -> None:
        with self._changing:
            assert not self._segments or self._segments[-1].end == segment.base
            self._segments = (*self._segments, segment)

    def find(self, offset: int) -> Segment | None:
        """The segment that holds the byte at `offset`."""
        segments = self._segments
        if not segments:
            return None
        number = (offset - segments[0].base) // self.segment_bytes
        return segments[number] if 0 <= number < len(segments) else None

    def between(self, start: int, end: int) -> list[Segment]:
        """The segments that hold any byte of [start, end)."""
        segments = self._segments
        first = bisect.bisect_right(segments, start, key=lambda s: s.end)
        return [s for s in segments[first:] if s.base < end]

    def remove_first(self) -> None:
        with self._changing:
            first, *rest = self._segments
            self._segments = tuple(rest)
        first.delete()

    def remove_from(self, offset: int) -> None:
        """Delete the segments that begin at `offset` or behind it."""
        with self._changing:
            removed = [s for s in self._segments if s.base >= offset]
            self._segments = tuple(s for s in self._segments if s.base < offset)
        for segment in reversed(removed):
            segment.delete()

    def close(self) -> None:
        self._segments = ()

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def first(self) -> Segment | None:
        segments = self._segments
        return segments[0] if segments else None

    @property
    def last(self) -> Segment | None:
        segments = self._segments
        return segments[-1] if segments else None


def _is_segment_name(name: str) -> bool:
    return len(name) == NAME_DIGITS and name.isascii() and name.isdigit()
