"""Turns on the event loop, for handlers that never wait for anything.

Without them, everything that was read ahead would be consumed in one go, and meanwhile no heartbeat
is sent and nobody else's task runs. All workers of a consumer share one turn.
"""

import asyncio

TURN_S = 0.01


class Turns:
    def __init__(self) -> None:
        self._ends = 0.0
        self._has_begun = asyncio.Event()
        self._has_begun.set()

    def is_over(self, now: float) -> bool:
        return now > self._ends

    async def next(self) -> None:
        """Wait until everything else had its turn."""
        if self._has_begun.is_set():
            self._has_begun.clear()
            asyncio.get_running_loop().call_soon(self._begin)
        await self._has_begun.wait()

    def _begin(self) -> None:
        self._ends = asyncio.get_running_loop().time() + TURN_S
        self._has_begun.set()
