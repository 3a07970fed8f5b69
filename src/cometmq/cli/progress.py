"""How far long work is: a line on the terminal that is written over; nothing where none looks."""

import sys
import time
from types import TracebackType
from typing import Final, Self

_EVERY_S: Final = 0.2
_BAR_CHARS: Final = 24


class Progress:
    """`with Progress("sent", total=1000) as progress: progress.advance()`."""

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what = what
        self._total = total
        self._began = self._shown = time.monotonic()
        self._is_seen = sys.stderr.isatty()
        self.done = 0

    def advance(self, count: int = 1) -> None:
        self.done += count
        now = time.monotonic()
        if self._is_seen and now - self._shown >= _EVERY_S:
            self._shown = now
            sys.stderr.write(f"\r\x1b[K{line(self._what, self.done, self._total, self.seconds)}")
            sys.stderr.flush()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def rate(self) -> float:
        return self.done / self.seconds if self.seconds else 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_seen:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def line(what: str, done: int, total: int | None, seconds: float) -> str:
    rate = done / seconds if seconds else 0.0
    told = f"{done:,} {what}, {rate:,.0f}/s"
    if not total:
        return told
    filled = min(_BAR_CHARS, _BAR_CHARS * done // total)
    left = f", {(total - done) / rate:,.0f} s left" if rate and done < total else ""
    return f"[{'#' * filled}{'.' * (_BAR_CHARS - filled)}] {told} of {total:,}{left}"
