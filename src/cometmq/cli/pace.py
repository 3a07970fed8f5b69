"""So many a second, and no more."""

import asyncio


class Pace:
    def __init__(self, rate: float | None) -> None:
        self._gap_s = 1 / rate if rate else 0.0
        self._next_s: float | None = None

    async def turn(self) -> None:
        """Wait until the next one may go."""
        if not self._gap_s:
            return
        now = asyncio.get_running_loop().time()
        due = now if self._next_s is None else self._next_s
        if due > now:
            await asyncio.sleep(due - now)
        # Who was late does not catch up with a burst.
        self._next_s = max(due, now - 1.0) + self._gap_s
