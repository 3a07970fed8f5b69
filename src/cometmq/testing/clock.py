"""Clocks that a test moves: one that runs, one that stands still.

Whoever watches a clock hears when it was moved, in the thread that moved it. Nobody is told that
time goes by.
"""

from collections.abc import Callable

from cometmq.clock import SystemClock


class MovableClock:
    """The system's time, ahead of it by as much as a test has moved it."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self._ahead_ms = 0
        self._watchers: list[Callable[[], None]] = []

    def now_ms(self) -> int:
        return self._system.now_ms() + self._ahead_ms

    def advance(self, milliseconds: int) -> None:
        self._ahead_ms += milliseconds
        self._tell()

    def watch(self, moved: Callable[[], None]) -> None:
        self._watchers.append(moved)

    def unwatch(self, moved: Callable[[], None]) -> None:
        self._watchers.remove(moved)

    def _tell(self) -> None:
        for moved in list(self._watchers):
            moved()


class ManualClock(MovableClock):
    """Stands still until a test moves it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        super().__init__()
        self.current_ms = now_ms

    def now_ms(self) -> int:
        return self.current_ms

    def advance(self, milliseconds: int) -> None:
        self.current_ms += milliseconds
        self._tell()
