"""One dispatch a turn of an event loop, however many tasks appended in it.

A dispatch costs the same for one message as for a hundred, and a sync that starts in the middle of
a turn serves only half of those who wait.
"""

import asyncio
from collections.abc import Callable

from .message_store import MessageStore


class LoopTurns:
    def __init__(
        self, store: MessageStore, on_arrival: Callable[[list[bytes]], None] | None = None
    ) -> None:
        """`on_arrival` is told the queues that got messages, after each dispatch."""
        self._store = store
        self._on_arrival = on_arrival
        self._scheduled = False

    def appended(self) -> None:
        """Something was appended: dispatch at the end of this turn."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._scheduled = False
        touched = self._store.dispatch()
        if touched and self._on_arrival is not None:
            self._on_arrival(touched)
