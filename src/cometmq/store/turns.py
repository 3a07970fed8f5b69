"""One dispatch and one wait a turn of an event loop, however many callers appended in it.

A dispatch costs the same for one message as for a hundred, a sync that starts in the middle of a
turn serves only half of those who wait, and a wait a message costs more than its append.
"""

import asyncio
import logging
from collections.abc import Callable

from .config import FlushMode
from .errors import StoreError
from .message_store import MessageStore

log = logging.getLogger(__name__)
Settled = Callable[[BaseException | None], None]
"""Told that what was appended may be acknowledged, or why it may not."""


class LoopTurns:
    def __init__(
        self, store: MessageStore, on_arrival: Callable[[list[bytes]], None] | None = None
    ) -> None:
        """`on_arrival` is told the queues that got messages, after each dispatch."""
        self._store = store
        self._on_arrival = on_arrival
        self._waits = store.config.flush is FlushMode.SYNC
        self._callers: list[Settled] | None = None

    def appended(self, settled: Settled) -> None:
        """Something was appended: it is dispatched at the end of this turn, and `settled` is
        called when the flush mode lets it be acknowledged."""
        if self._callers is None:
            self._callers = []
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._callers.append(settled)

    async def settled(self) -> None:
        """The same for a task."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.appended(lambda error: _complete(future, error))
        await future

    def _end_turn(self) -> None:
        callers, self._callers = self._callers or [], None
        try:
            touched = self._store.dispatch()
        except BaseException as error:
            # Nobody must wait for ever because something broke here.
            _tell(callers, error)
            raise
        if self._waits:
            self._wait(callers)
        else:
            _tell(callers, None)
        if touched and self._on_arrival is not None:
            self._on_arrival(touched)

    def _wait(self, callers: list[Settled]) -> None:
        store = self._store
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turn.add_done_callback(lambda done: _tell(callers, done.exception()))
        timeout_ms = store.config.sync_flush_timeout_ms
        try:
            store.flushed.when_reached(store.appended.value, timeout_ms, turn)
        except StoreError as error:  # Too many wait already.
            _tell(callers, error)


def _tell(callers: list[Settled], error: BaseException | None) -> None:
    for settled in callers:
        try:
            settled(error)
        except Exception:
            log.exception("one of %d who appended could not be told", len(callers))


def _complete(future: "asyncio.Future[None]", error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
