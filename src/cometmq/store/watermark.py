"""An offset that only grows, and those who wait for it to pass a point.

The store keeps five: appended, flushed, replicated, confirmed and dispatched. A send is answered
when its policy's watermarks have passed the end of its record. One thread advances a watermark;
any thread, and any number of asyncio tasks of one loop, may wait on it.
"""

import asyncio
import heapq
import itertools
import threading

from .errors import StoreError, WaitersFull, WaitTimeout

WAITERS_MAX = 100_000


class Watermark:
    def __init__(self, name: str, value: int = 0) -> None:
        self.name = name
        self.value = value
        self.failure: StoreError | None = None
        self._changed = threading.Condition()
        self._blocked = 0
        self._tasks = _WaitingTasks(self)

    def advance(self, value: int) -> None:
        """Move up to `value` and wake who waited for it; a lower value changes nothing."""
        if value <= self.value:
            return
        self.value = value
        self._wake()

    def reset(self, value: int) -> None:
        """Set the starting point, before anybody waits."""
        self.value = value

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
        self._raise_unless_reached(offset, timeout_ms)

    async def reached(self, offset: int, timeout_ms: int) -> None:
        """Suspend this task until the watermark has reached `offset`."""
        if self.value < offset and self.failure is None:
            await self._tasks.join(offset, timeout_ms)
        self._raise_unless_reached(offset, timeout_ms)

    @property
    def awaited(self) -> bool:
        """Whether anybody waits just now."""
        return self._blocked > 0 or self._tasks.count > 0

    def _wake(self) -> None:
        if self._blocked:
            with self._changed:
                self._changed.notify_all()
        if self._tasks.count:
            self._tasks.wake()

    def _raise_unless_reached(self, offset: int, timeout_ms: int) -> None:
        if self.value >= offset:
            return
        if self.failure is not None:
            raise self.failure
        raise WaitTimeout(f"{self.name} did not reach {offset} within {timeout_ms} ms")


class _WaitingTasks:
    """Futures of one event loop, ordered by the offset they wait for.

    One wake-up a flush serves them all, and one timer serves all time-outs: a timer a task would
    cost more than the wait itself.
    """

    def __init__(self, watermark: Watermark) -> None:
        self._watermark = watermark
        self._heap: list[tuple[int, int, float, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._timer: asyncio.TimerHandle | None = None
        self._waking = False

    @property
    def count(self) -> int:
        return len(self._heap)

    async def join(self, offset: int, timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._heap:
                raise StoreError(f"tasks of two event loops wait on {self._watermark.name}")
            self._loop, self._thread = loop, threading.get_ident()
            self._timer, self._waking = None, False
        if len(self._heap) >= WAITERS_MAX:
            raise WaitersFull(f"{WAITERS_MAX} callers wait on {self._watermark.name} already")
        future: asyncio.Future[None] = loop.create_future()
        deadline = loop.time() + timeout_ms / 1000
        heapq.heappush(self._heap, (offset, next(self._numbers), deadline, future))
        # Between the caller's look at the value and this push the watermark may have moved.
        self._release()
        if not future.done():
            self._watch(loop, deadline)
        await future

    def _watch(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        """See to it that the timer goes off at `deadline` at the latest."""
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = loop.call_at(deadline, self._expire)

    def wake(self) -> None:
        if threading.get_ident() == self._thread:
            self._release()
        elif not self._waking and self._loop is not None and not self._loop.is_closed():
            self._waking = True
            self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        # First the flag, then the value: an advance in between asks for another wake-up.
        self._waking = False
        value, failed = self._watermark.value, self._watermark.failure is not None
        while self._heap and (failed or self._heap[0][0] <= value):
            future = heapq.heappop(self._heap)[3]
            if not future.done():
                future.set_result(None)

    def _expire(self) -> None:
        self._timer = None
        assert self._loop is not None
        now = self._loop.time()
        late = [entry for entry in self._heap if entry[2] <= now or entry[3].done()]
        if late:
            self._heap = [e for e in self._heap if e[2] > now and not e[3].done()]
            heapq.heapify(self._heap)
            for entry in late:
                if not entry[3].done():
                    entry[3].set_result(None)
        if self._heap:
            self._watch(self._loop, min(entry[2] for entry in self._heap))
