"""Orderly consumption: each queue's messages one after the other, at one member at a time.

A queue is consumed only while its broker has locked it for us. A message that fails is tried again
in its place, after a while, and everything behind it waits. A queue that is given up is unlocked
when its handler has ended, not before: the next owner never works beside us.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import logging
from collections import deque

from cometmq.protocol.message_queue import MessageQueue

from ..backoff import Backoff
from ..received import ReceivedMessage
from .feed import Feed
from .handling import Handling, Later, Outcome
from .locks import QueueLocks
from .returns import DEAD_LETTER, Returns
from .turns import Turns
from .window import Window

log = logging.getLogger(__name__)
_LOCK_AGAIN_FIRST_S = 0.05
_LOCK_AGAIN_S = 1.0


class _Line:
    """The messages of one queue that wait for their turn."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.window: Window | None = None
        self.waiting: deque[ReceivedMessage] = deque()
        self.arrived = asyncio.Event()
        self.is_over = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def end(self) -> None:
        self.is_over.set()
        self.arrived.set()


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
        """Without `locks`, as when broadcasting, every queue is ours. Without `returns` there are
        no dead letters."""
        self._handling = handling
        self._returns = returns
        self._locks = locks
        self._options = options
        self._slots = asyncio.Semaphore(workers)
        self._turns = Turns()
        self._lines: dict[MessageQueue, _Line] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        """Of all lines, also of those that are given up and not at their end yet."""
        self._renewal: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Those that handlers run in."""
        return list(self._tasks)

    def start(self) -> None:
        if self._locks is not None:
            self._renewal = asyncio.create_task(self._locks.renew())

    async def stop(self, timeout_s: float) -> None:
        """Let handlers that have begun end, within a bound."""
        self._stopping = True
        for line in self._lines.values():
            line.end()
        if self._tasks:
            await self._end(self.tasks, timeout_s)
        if self._renewal is not None:
            self._renewal.cancel()

    async def _end(self, tasks: list[asyncio.Task[None]], timeout_s: float) -> None:
        _, late = await asyncio.wait(tasks, timeout=timeout_s)
        if late:
            log.warning("%d handlers did not end within %g s: cancelled", len(late), timeout_s)
            for task in late:
                task.cancel()
            await asyncio.wait(late, timeout=timeout_s)

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
            line.end()
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
            line = self._lines[feed.queue] = self._new_line(feed)
        if line.window is not window:
            line.window = window
            line.waiting.clear()
        line.waiting.extend(messages)
        line.arrived.set()

    def _new_line(self, feed: Feed) -> _Line:
        line = _Line(feed)
        line.task = asyncio.create_task(self._run(line))
        self._tasks.add(line.task)
        line.task.add_done_callback(self._tasks.discard)
        return line

    async def _run(self, line: _Line) -> None:
        feed, loop = line.feed, asyncio.get_running_loop()
        while not self._is_over(feed):
            if line.window is not feed.window:
                line.waiting.clear()  # The queue was reset: these count no more.
            if not line.waiting:
                line.arrived.clear()
                await line.arrived.wait()
            elif not self._holds(feed):
                log.warning("%r: the lock is lost", feed)
                await self.taken(feed)
            elif self._turns.is_over(loop.time()):
                await self._turns.next()
            else:
                await self._next(line)

    async def _next(self, line: _Line) -> None:
        feed, window = line.feed, line.window
        assert window is not None
        async with self._slots:
            batch = self._batch(line)
            if not batch:
                return
            outcome = await self._handling.handle(batch)
        if feed.window is not window:
            return
        done = await self._judged(batch, outcome)
        if line.window is window:
            for _ in range(done):
                line.waiting.popleft()
        feed.finish(window, batch[:done])
        if done < len(batch):
            await self._suspend(line)

    def _batch(self, line: _Line) -> list[ReceivedMessage]:
        """What comes next. Nothing, when that changed while we waited for our turn."""
        feed = line.feed
        if self._is_over(feed) or line.window is not feed.window or not self._holds(feed):
            return []
        return list(itertools.islice(line.waiting, self._options.batch_size))

    async def _suspend(self, line: _Line) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.suspend_s):
                await line.is_over.wait()

    def _is_over(self, feed: Feed) -> bool:
        return feed.is_dropped or self._stopping

    def _holds(self, feed: Feed) -> bool:
        return self._locks is None or self._locks.holds(feed.queue)

    async def _judged(self, batch: list[ReceivedMessage], outcome: Outcome) -> int:
        """How many messages from the batch's beginning need not come again."""
        if outcome is None:
            return len(batch)
        done = min(outcome.done, len(batch))
        while done < len(batch) and await self._is_dead(batch[done], outcome):
            done += 1
        for message in batch[done:]:
            message.reconsume_times += 1
        return done

    async def _is_dead(self, message: ReceivedMessage, later: Later) -> bool:
        """Whether it failed for the last time and the dead letters have it."""
        limit = self._options.reconsume_max
        exhausted = 0 <= limit <= message.reconsume_times
        if not exhausted and later.delay_level != DEAD_LETTER:
            return False
        if self._returns is None:
            log.warning("message %s of a broadcasting group is dropped", message.message_id)
            return True
        return await self._returns.send_back(message, DEAD_LETTER)
