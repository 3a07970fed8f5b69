"""A rate that is kept: what was not used in time is not made up for later."""

import time
from collections.abc import Callable


class Pace:
    def __init__(
        self,
        rate: float | None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """`rate` a second; None: as fast as can be."""
        self._rate = rate
        self._now = now
        self._sleep = sleep
        self._due = 0.0

    def wait(self, count: int) -> None:
        """Before so many are sent: until those before them have had their time."""
        if self._rate is None:
            return
        begin = max(self._due, self._now())
        self._sleep(max(0.0, begin - self._now()))
        self._due = begin + count / self._rate

    def rest(self) -> None:
        """Behind the last ones: until these have had their time, too."""
        if self._rate is not None:
            self._sleep(max(0.0, self._due - self._now()))

    def portion(self, most: int, a_second: int = 1) -> int:
        """How many to send at once, so that there are so many portions a second."""
        return most if self._rate is None else max(1, min(most, int(self._rate / a_second)))
