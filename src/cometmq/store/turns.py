"""One dispatch and one wait a turn of an event loop, however many tasks appended in it.

A dispatch costs the same for one message as for a hundred, a sync that starts in the middle of a
turn serves only half of those who wait, and a wait a message costs more than its append.
"""

import asyncio
from collections.abc import Awaitable, Callable

from .config import FlushMode
from .message_store import MessageStore
from .watermark import DONE


class LoopTurns:
    def __init__(
        self, store: MessageStore, on_arrival: Callable[[list[bytes]], None] | None = None
    ) -> None:
        """`on_arrival` is told the queues that got messages, after each dispatch."""
        self._store = store
        self._on_arrival = on_arrival
        self._waits = store.config.flush is FlushMode.SYNC
        self._turn: asyncio.Future[None] | None = None

    def appended(self) -> Awaitable[None]:
        """Something was appended: it is dispatched at the end of this turn, and may be
        acknowledged when what comes back is done."""
        if self._turn is None:
            loop = asyncio.get_running_loop()
            self._turn = loop.create_future()
            loop.call_soon(self._end_turn, self._turn)
        return self._turn if self._waits else DONE

    def _end_turn(self, turn: "asyncio.Future[None]") -> None:
        self._turn = None
        try:
            touched = self._store.dispatch()
            if self._waits:
                self._settle(turn)
        except BaseException as error:
            # Nobody must wait for ever because something broke here.
            if not turn.done():
                turn.set_exception(error)
            raise
        if touched and self._on_arrival is not None:
            self._on_arrival(touched)

    def _settle(self, turn: "asyncio.Future[None]") -> None:
        store = self._store
        timeout_ms = store.config.sync_flush_timeout_ms
        store.flushed.when_reached(store.appended.value, timeout_ms, turn)
