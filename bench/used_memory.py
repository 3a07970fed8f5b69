"""Memory as a machine has it that runs for a while: full of files somebody has read.

New memory then comes from pages that are given up, which costs next to nothing. On a machine that
has just started, or a virtual one that gives its free memory back to its host, it comes from there
instead: 4 to 9 µs a page were measured where a page given up took 0.9. Whoever writes most pays
most for that, and it differs from minute to minute; it says nothing about a broker.

So a benchmark lets the kernel read a large file of nothing before each run. It takes room in the
page cache and none on the disk.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .report import progress

FREE_SHARE_MAX: Final = 0.012
"""Of all memory: less is not to be had, the kernel keeps some free for itself."""
STEP_BYTES: Final = 4 << 20
LOOK_BYTES: Final = 128 << 20
"""Read between two looks at how much is still free."""
FRESH_MEMORY: Final = "leave free memory free (see bench/used_memory.py)"
"""What the option says that does without."""

Fill = Callable[[], None]


@contextmanager
def used_memory(directory: Path | None, *, wanted: bool = True) -> Iterator[Fill]:
    """What it yields fills the memory that is free at the time; nothing if it is not wanted."""
    if not wanted:
        yield lambda: None
        return
    with tempfile.TemporaryFile(prefix="bench-memory-", dir=directory) as file:
        size = _memory_bytes("MemTotal")
        os.truncate(file.fileno(), size)
        progress(f"filling {size >> 30} GiB of memory, which takes a minute at most")
        yield _Filling(file.fileno(), size).fill


class _Filling:
    """Reads the file in circles: what was read longest ago is what the kernel gave up first."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._size = size
        self._at = 0
        self._buffer = bytearray(STEP_BYTES)

    def fill(self) -> None:
        free_max = int(self._size * FREE_SHARE_MAX)
        for _ in range(0, self._size, LOOK_BYTES):
            if _memory_bytes("MemFree") <= free_max:
                return
            for _ in range(0, LOOK_BYTES, STEP_BYTES):
                os.preadv(self._fd, [self._buffer], self._at)
                self._at = (self._at + STEP_BYTES) % self._size


def _memory_bytes(name: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        found, _, value = line.partition(":")
        if found == name:
            return int(value.split()[0]) * 1024
    raise RuntimeError(f"/proc/meminfo does not tell {name}")
