"""One dispatch and one wait a turn of an event loop, however many callers appended in it.

A dispatch costs the same for one message as for a hundred, a sync that starts in the middle of a
turn serves only half of those who wait, and a wait a message costs more than its append. What
nobody waits for shares a dispatch with later turns.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from cometmq.histogram import Histogram

from .config import FlushMode
from .errors import StoreError
from .message_store import MessageStore

log = logging.getLogger(__name__)
LATER_S = 0.02
LATER_BYTES_MAX = 128 * 1024
"""How long a dispatch that nobody waits for may be put off, and how much of the log: with small
turns it costs as much as the append and the answer."""
Settled = Callable[[BaseException | None], None]
"""Told that what was appended may be acknowledged, or why it may not."""
SETTLE_S = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
    2.5, 5.0,
)  # fmt: skip


class Replicas(Protocol):
    """Other brokers that must have what was appended before it is acknowledged."""

    def appended(self) -> None:
        """A turn ends in which something was appended."""
        ...

    def wanted(self) -> bool:
        """Whether anybody has to be waited for just now."""
        ...

    def when_replicated(self, offset: int, future: "asyncio.Future[None]") -> None:
        """Complete a future when enough of them have everything below `offset`."""
        ...


class LoopTurns:
    def __init__(
        self, store: MessageStore, on_arrival: Callable[[list[bytes]], None] | None = None
    ) -> None:
        """`on_arrival` is told the queues that got messages, after each dispatch."""
        self._store = store
        self._on_arrival = on_arrival
        self.waits_for_disk = store.config.flush is FlushMode.SYNC
        """Whether the disk of this broker alone is waited for."""
        self.replicas: Replicas | None = None
        self._callers: list[Settled] | None = None
        self._later: asyncio.TimerHandle | None = None
        self._began = 0.0
        self._requests = 0
        self.latency = Histogram(SETTLE_S)
        """Seconds from the first append of a turn until those of the turn may be acknowledged."""

    def appended(self, settled: Settled, requests: int = 1) -> None:
        """Something was appended: it is dispatched at the end of this turn, and `settled` is
        called when the flush mode lets it be acknowledged. `requests` brought it."""
        self._plan().append(settled)
        self._requests += requests

    def confirmed(self) -> None:
        """Something may be dispatched: that is done at the end of this turn."""
        self._plan()

    @property
    def waits(self) -> bool:
        """Whether what was appended has to wait for anything before it may be acknowledged."""
        return self.waits_for_disk or self.replicas is not None

    def acknowledged(self, requests: int, *, awaited: bool) -> None:
        """The same as `appended`, for what has nothing to wait for and is acknowledged already.
        If it is not `awaited` by anybody, it is dispatched a little later, together with more of
        its kind; whoever is going to look has to `catch_up` before."""
        store = self._store
        if awaited or store.appended.value - store.dispatched.value > LATER_BYTES_MAX:
            self._plan()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(LATER_S, self.catch_up)
        self.latency.add(0.0, requests)

    def catch_up(self) -> None:
        """Dispatch what was put off: who calls this sees everything that was acknowledged."""
        if self._later is not None:
            self._tell_arrived(self._dispatch())

    def _plan(self) -> list[Settled]:
        if self._callers is None:
            self._callers = []
            self._began = time.monotonic()
            self._requests = 0
            asyncio.get_running_loop().call_soon(self._end_turn)
        return self._callers

    async def settled(self) -> None:
        """The same for a task."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.appended(lambda error: _complete(future, error))
        await future

    def _end_turn(self) -> None:
        callers, self._callers = self._callers or [], None
        began, requests = self._began, self._requests
        waits = bool(callers) and self.waits
        if callers and not waits:
            # It is in the log, that is all there is to wait for.
            self._settle(callers, began, requests, None)
        try:
            if callers and self.replicas is not None:
                self.replicas.appended()
            touched = self._dispatch()
        except BaseException as error:
            # Nobody must wait for ever because something broke here.
            if waits:
                _tell(callers, error)
            raise
        if waits:
            self._wait(callers, began, requests)
        self._tell_arrived(touched)

    def _dispatch(self) -> list[bytes]:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        return self._store.dispatch()

    def _tell_arrived(self, queues: list[bytes]) -> None:
        if queues and self._on_arrival is not None:
            self._on_arrival(queues)

    def _settle(
        self, callers: list[Settled], began: float, requests: int, error: BaseException | None
    ) -> None:
        _tell(callers, error)
        if error is None:
            self.latency.add(time.monotonic() - began, requests)

    def _wait(self, callers: list[Settled], began: float, requests: int) -> None:
        store, end = self._store, self._store.appended.value
        waits = _Waits(lambda error: self._settle(callers, began, requests, error))
        if self.waits_for_disk:
            timeout_ms = store.config.sync_flush_timeout_ms
            waits.add(lambda future: store.flushed.when_reached(end, timeout_ms, future))
        replicas = self.replicas
        if replicas is not None and replicas.wanted():
            waits.add(lambda future: replicas.when_replicated(end, future))
        waits.all_begun()


class _Waits:
    """What the callers of one turn wait for, all at the same time. If several fail, they are told
    of the one that was begun last: as in RocketMQ, a slave that is missing counts more."""

    def __init__(self, settled: Settled) -> None:
        self._settled = settled
        self._errors: list[BaseException | None] = [None]
        self._open = 1

    def add(self, begin: "Callable[[asyncio.Future[None]], None]") -> None:
        number = len(self._errors)
        self._errors.append(None)
        self._open += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: self._over(number, done.exception()))
        try:
            begin(future)
        except StoreError as error:  # Too many wait already.
            future.set_exception(error)

    def all_begun(self) -> None:
        self._over(0, None)

    def _over(self, number: int, error: BaseException | None) -> None:
        self._errors[number] = error
        self._open -= 1
        if not self._open:
            failed = [error for error in self._errors if error is not None]
            self._settled(failed[-1] if failed else None)


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
