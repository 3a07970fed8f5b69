"""What a broker does again and again."""

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


class Clockwork:
    def __init__(self) -> None:
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}

    def every(self, interval_s: float, work: Callable[[], None]) -> None:
        """Do it at that interval; what fails for lack of space is tried again the next time."""
        loop = asyncio.get_running_loop()

        def tick() -> None:
            self._timers[work] = loop.call_later(interval_s, tick)
            try:
                work()
            except OSError:
                log.exception("%s failed and is tried again", work.__name__)

        self._timers[work] = loop.call_later(interval_s, tick)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
