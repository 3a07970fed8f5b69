"""An offset that grows, and those who wait for it to pass a point.

The store keeps five: appended, flushed, replicated, confirmed and dispatched. A send is answered
when its policy's watermarks have passed the end of its record. One thread advances a watermark;
any thread, and any number of asyncio tasks of one loop, may wait on it.
"""

import asyncio
import heapq
import itertools
import threading
from collections.abc import Awaitable, Generator

from .errors import StoreError, WaitersFull, WaitTimeout

WAITERS_MAX = 100_000


class Done:
    """Something to await that is over already."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


DONE = Done()


class Watermark:
    def __init__(self, name: str, value: int = 0, late: type[WaitTimeout] = WaitTimeout) -> None:
        """`late` is what those get who waited for too long."""
        self.name = name
        self._late = late
        self.value = value
        self.failure: StoreError | None = None
        self._changed = threading.Condition()
        self._blocked = 0
        self._tasks = _WaitingTasks(self)
        self._waiting = self._tasks.waiting

    def advance(self, value: int) -> None:
        """Move up to `value` and wake who waited for it; a lower value changes nothing."""
        if value > self.value:
            self.value = value
            if self._blocked or self._waiting:
                self._wake()

    def reset(self, value: int) -> None:
        """Set the starting point, before anybody waits."""
        self.value = value

    def lower(self, value: int) -> None:
        """Go back, because what lies behind `value` was cut off."""
        self.value = min(self.value, value)

    def give_up(self, error: StoreError) -> None:
        """Tell all tasks that wait now that it will not come; later ones wait as ever."""
        self._tasks.give_up(error)

    def fail(self, failure: StoreError) -> None:
        """Never move again: whoever waits, now or later, gets this error."""
        self.failure = failure
        self._wake()

    def wait(self, offset: int, timeout_ms: int) -> None:
        """Block this thread until the watermark has reached `offset`."""
        with self._changed:
            self._blocked += 1
            try:
                self._changed.wait_for(
                    lambda: self.value >= offset or self.failure is not None, timeout_ms / 1000
                )
            finally:
                self._blocked -= 1
        if self.value < offset:
            raise self.failure or self.timeout(offset)

    def reached(self, offset: int, timeout_ms: int) -> Awaitable[None]:
        """Await this in a task until the watermark has reached `offset`."""
        if self.value >= offset:
            return DONE
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_reached(offset, timeout_ms, future)
        return future

    def when_reached(self, offset: int, timeout_ms: int, future: "asyncio.Future[None]") -> None:
        """Complete a future of the running loop when the watermark has reached `offset`."""
        self._tasks.join(offset, timeout_ms, future)

    @property
    def awaited(self) -> bool:
        """Whether anybody waits just now."""
        return self._blocked > 0 or bool(self._waiting)

    def timeout(self, offset: int) -> WaitTimeout:
        return self._late(f"{self.name} is at {self.value} and did not reach {offset} in time")

    def _wake(self) -> None:
        if self._blocked:
            with self._changed:
                self._changed.notify_all()
        if self._waiting:
            self._tasks.wake()


class _WaitingTasks:
    """Futures of one event loop, ordered by the offset they wait for.

    One wake-up a flush serves them all, and one timer serves all time-outs: a timer a task would
    cost more than the wait itself.
    """

    def __init__(self, watermark: Watermark) -> None:
        self._watermark = watermark
        self.waiting: list[tuple[int, int, float, asyncio.Future[None]]] = []
        """A heap of offset, number, deadline and future; always the same list."""
        self._numbers = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._timer: asyncio.TimerHandle | None = None
        self._waking = False

    def join(self, offset: int, timeout_ms: int, future: "asyncio.Future[None]") -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._adopt(loop)
        if len(self.waiting) >= WAITERS_MAX:
            raise WaitersFull(f"{WAITERS_MAX} callers wait on {self._watermark.name} already")
        deadline = loop.time() + timeout_ms / 1000
        heapq.heappush(self.waiting, (offset, next(self._numbers), deadline, future))
        if self._timer is None or self._timer.when() > deadline:
            self._watch(loop, deadline)
        # Between the caller's look at the value and the push the watermark may have moved.
        if self._watermark.value >= offset or self._watermark.failure is not None:
            self._release()

    def _adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.waiting and self._loop is not None and not self._loop.is_closed():
            raise StoreError(f"tasks of two event loops wait on {self._watermark.name}")
        self.waiting.clear()
        self._loop, self._thread = loop, threading.get_ident()
        self._timer, self._waking = None, False

    def wake(self) -> None:
        if threading.get_ident() == self._thread:
            self._release()
        elif not self._waking and self._loop is not None and not self._loop.is_closed():
            self._waking = True
            self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        # First the flag, then the value: an advance in between asks for another wake-up.
        self._waking = False
        value, failure = self._watermark.value, self._watermark.failure
        waiting = self.waiting
        while waiting and (waiting[0][0] <= value or failure is not None):
            offset, _, _, future = heapq.heappop(waiting)
            if future.done():
                continue
            if offset <= value or failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)

    def give_up(self, error: StoreError) -> None:
        waiting, self.waiting[:] = list(self.waiting), []
        for _, _, _, future in waiting:
            if not future.done():
                future.set_exception(error)

    def _watch(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        """See to it that the timer goes off at `deadline` at the latest."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        assert self._loop is not None
        now = self._loop.time()
        late = [entry for entry in self.waiting if entry[2] <= now or entry[3].done()]
        if late:
            self.waiting[:] = [e for e in self.waiting if e[2] > now and not e[3].done()]
            heapq.heapify(self.waiting)
            for offset, _, _, future in late:
                if not future.done():
                    future.set_exception(self._watermark.timeout(offset))
        if self.waiting:
            self._watch(self._loop, min(entry[2] for entry in self.waiting))
