"""Orderly consumption: each queue's messages one after the other, at one member at a time.

A queue is consumed only while its broker has locked it for us. A message that fails is tried again
in its place, after a while, and everything behind it waits. A queue that is given up is unlocked
when its handler has ended, not before: the next owner never works beside us.
"""

import asyncio
import dataclasses
import logging
from collections import deque

from cometmq.protocol.message_queue import MessageQueue

from ..backoff import Backoff
from ..received import ReceivedMessage
from .feed import Feed
from .handling import Handling, Later, Outcome
from .locks import QueueLocks
from .returns import DEAD_LETTER, Returns
from .window import Window

log = logging.getLogger(__name__)
_LOCK_AGAIN_FIRST_S = 0.05
_LOCK_AGAIN_S = 1.0


class _Line:
    """The messages of one queue that wait for their turn."""

    def __init__(self) -> None:
        self.window: Window | None = None
        self.waiting: deque[ReceivedMessage] = deque()
        self.arrived = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class OrderlyOptions:
    batch_size: int
    suspend_s: float
    """After a failure, before the same message is tried again."""
    reconsume_max: int
    """Failures after which a message goes to the dead letters; negative: never."""


class OrderlyWorkers:
    def __init__(
        self,
        handling: Handling,
        returns: Returns | None,
        locks: QueueLocks | None,
        options: OrderlyOptions,
        *,
        workers: int,
    ) -> None:
        """Without `locks`, as when broadcasting, every queue is ours."""
        self._handling = handling
        self._returns = returns
        self._locks = locks
        self._options = options
        self._slots = asyncio.Semaphore(workers)
        self._lines: dict[MessageQueue, _Line] = {}
        self._renewal: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        if self._locks is not None:
            self._renewal = asyncio.create_task(self._locks.renew())

    async def stop(self, timeout_s: float) -> None:
        """Let handlers that have begun end, within a bound."""
        self._stopping = True
        for line in self._lines.values():
            line.arrived.set()
        tasks = [line.task for line in self._lines.values() if line.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout_s)
            for task in late:
                log.warning("an orderly handler did not end within %g s: cancelled", timeout_s)
                task.cancel()
        if self._renewal is not None:
            self._renewal.cancel()

    # -- queues come and go ----------------------------------------------------------------------

    async def taken(self, feed: Feed) -> None:
        """Wait until the queue is ours alone, or no longer ours to take."""
        locks = self._locks
        backoff = Backoff(_LOCK_AGAIN_FIRST_S, _LOCK_AGAIN_S)
        while locks is not None and not feed.is_dropped and not await locks.take(feed.queue):
            await asyncio.sleep(backoff.next_s())

    async def given_up(self, feed: Feed) -> None:
        """Wait until the handler has ended, however long it takes: we hold the lock."""
        line = self._lines.pop(feed.queue, None)
        if line is not None and line.task is not None:
            line.arrived.set()
            await asyncio.wait([line.task])

    async def released(self, queue: MessageQueue) -> None:
        if self._locks is not None:
            await self._locks.release(queue)

    # -- messages come ---------------------------------------------------------------------------

    def deliver(self, feed: Feed, window: Window, messages: list[ReceivedMessage]) -> None:
        if self._stopping:
            return
        line = self._lines.get(feed.queue)
        if line is None:
            line = self._lines[feed.queue] = _Line()
            line.task = asyncio.create_task(self._run(feed, line))
        if line.window is not window:
            line.window = window
            line.waiting.clear()
        line.waiting.extend(messages)
        line.arrived.set()

    async def _run(self, feed: Feed, line: _Line) -> None:
        while not self._is_over(feed):
            if not line.waiting:
                line.arrived.clear()
                await line.arrived.wait()
            elif self._locks is not None and not self._locks.holds(feed.queue):
                log.warning("%r: the lock is lost", feed)
                await self.taken(feed)
            else:
                await self._next(feed, line)

    async def _next(self, feed: Feed, line: _Line) -> None:
        window, waiting = line.window, line.waiting
        assert window is not None
        count = min(self._options.batch_size, len(waiting))
        batch = [waiting[at] for at in range(count)]
        async with self._slots:
            if self._is_over(feed):
                return
            outcome = await self._handling.handle(batch)
        if line.window is not window:
            return  # The queue was reset meanwhile: these count no more.
        done = await self._judged(batch, outcome)
        for _ in range(done):
            waiting.popleft()
        feed.finish(window, batch[:done])
        if done < len(batch) and not self._is_over(feed):
            await asyncio.sleep(self._options.suspend_s)

    def _is_over(self, feed: Feed) -> bool:
        return feed.is_dropped or self._stopping

    async def _judged(self, batch: list[ReceivedMessage], outcome: Outcome) -> int:
        """How many messages from the batch's beginning need not come again."""
        if outcome is None:
            return len(batch)
        done = min(outcome.done, len(batch))
        if self._returns is None:
            return len(batch)  # A broadcasting group does not repeat.
        while done < len(batch) and await self._is_dead(self._returns, batch[done], outcome):
            done += 1
        for message in batch[done:]:
            message.reconsume_times += 1
        return done

    async def _is_dead(self, returns: Returns, message: ReceivedMessage, later: Later) -> bool:
        """Whether it failed for the last time and the dead letters have it."""
        limit = self._options.reconsume_max
        exhausted = 0 <= limit <= message.reconsume_times
        if not exhausted and later.delay_level != DEAD_LETTER:
            return False
        return await returns.send_back(message, DEAD_LETTER)
