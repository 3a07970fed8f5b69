"""Concurrent consumption: a fixed number of workers take whatever was read, in any order.

A message that fails goes back to its broker, which brings it again later. If the broker does not
take it, it is tried here again after a while: until then its offset is not committed.
"""

import asyncio
import logging
from collections import deque
from typing import NamedTuple

from cometmq.protocol.message_queue import MessageQueue

from ..received import ReceivedMessage
from .feed import Feed
from .handling import FAILED, Handling, Later
from .returns import Returns
from .turns import Turns
from .window import Window

log = logging.getLogger(__name__)
_AGAIN_S = 5.0


class _Work(NamedTuple):
    feed: Feed
    window: Window
    messages: list[ReceivedMessage]

    @property
    def is_void(self) -> bool:
        """The queue was given up or reset: others consume these."""
        return self.feed.is_dropped or self.feed.window is not self.window


class _Worker:
    """`since` is when its handler began with `work`; 0 when no handler is at work."""

    def __init__(self) -> None:
        self.since = 0.0
        self.work: _Work | None = None
        self.is_expired = False
        self.task: asyncio.Task[None] | None = None


class ConcurrentWorkers:
    def __init__(
        self,
        handling: Handling,
        returns: Returns | None,
        *,
        workers: int,
        batch_size: int,
        timeout_s: float,
    ) -> None:
        """Without `returns`, as when broadcasting, a message that fails is dropped."""
        self._handling = handling
        self._returns = returns
        self._batch_size = batch_size
        self._timeout_s = timeout_s
        self._ready: deque[_Work] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._workers = [_Worker() for _ in range(workers)]
        self._timers: set[asyncio.TimerHandle] = set()
        self._turns = Turns()
        self._watch: asyncio.Task[None] | None = None
        self._stopping = False

    async def taken(self, feed: Feed) -> None:
        """A queue is ours as soon as it is given to us."""

    async def given_up(self, feed: Feed) -> None:
        """Nothing to wait for: what is in hand will come again elsewhere."""
        left = [work for work in self._ready if work.feed is not feed]
        self._ready.clear()
        self._ready.extend(left)

    async def released(self, queue: MessageQueue) -> None:
        """Nothing was locked."""

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Those that handlers run in."""
        return [worker.task for worker in self._workers if worker.task is not None]

    def start(self) -> None:
        for worker in self._workers:
            worker.task = asyncio.create_task(self._run(worker))
        self._watch = asyncio.create_task(self._expire())

    async def stop(self, timeout_s: float) -> None:
        """Begin nothing new; let what has begun end, within a bound."""
        self._stopping = True
        self._ready.clear()
        for timer in self._timers:
            timer.cancel()
        self._wake(len(self._idle))
        if self._watch is not None:
            self._watch.cancel()
        _, late = await asyncio.wait(self.tasks, timeout=timeout_s)
        if late:
            log.warning("%d handlers did not end within %g s: cancelled", len(late), timeout_s)
            for task in late:
                task.cancel()
            await asyncio.wait(late, timeout=timeout_s)

    # -- work comes ------------------------------------------------------------------------------

    def deliver(self, feed: Feed, window: Window, messages: list[ReceivedMessage]) -> None:
        size = self._batch_size
        work = [
            _Work(feed, window, messages[at : at + size]) for at in range(0, len(messages), size)
        ]
        self._add(work)

    def _add(self, work: list[_Work]) -> None:
        if not self._stopping:
            self._ready.extend(work)
            self._wake(len(work))

    def _wake(self, count: int) -> None:
        idle = self._idle
        while count and idle:
            waiting = idle.popleft()
            if not waiting.done():
                waiting.set_result(None)
                count -= 1

    # -- work is done ----------------------------------------------------------------------------

    async def _run(self, worker: _Worker) -> None:
        ready = self._ready
        loop = asyncio.get_running_loop()
        while not self._stopping:
            if not ready:
                waiting: asyncio.Future[None] = loop.create_future()
                self._idle.append(waiting)
                await waiting
                continue
            now = loop.time()
            if self._turns.is_over(now):
                await self._turns.next()
                continue
            work = ready.popleft()
            if not work.is_void:
                worker.work, worker.since = work, now
                await self._consume(worker, work)

    async def _consume(self, worker: _Worker, work: _Work) -> None:
        try:
            outcome = await self._handling.handle(work.messages)
        except asyncio.CancelledError:
            if not worker.is_expired:
                raise
            outcome = FAILED
        worker.since = 0.0
        if worker.is_expired:
            worker.is_expired = False
            if not self._handling.is_cancellable:
                return  # It was put off when its time was up.
            assert worker.task is not None
            worker.task.uncancel()
        if outcome is None:
            work.feed.finish(work.window, work.messages)
        else:
            await self._put_off(work, outcome)

    async def _put_off(self, work: _Work, later: Later) -> None:
        done, failed = work.messages[: later.done], work.messages[later.done :]
        if self._returns is None:
            log.warning("%d messages of a broadcasting group failed and are dropped", len(failed))
            work.feed.finish(work.window, work.messages)
            return
        work.feed.finish(work.window, done)
        if work.is_void:
            return  # Whoever has the queue now gets them anyway.
        kept: list[ReceivedMessage] = []
        for message in failed:
            if await self._returns.send_back(message, later.delay_level):
                work.feed.finish(work.window, [message])
            else:
                message.reconsume_times += 1
                kept.append(message)
        if kept:
            self._add_later(work._replace(messages=kept))

    def _add_later(self, work: _Work) -> None:
        def add() -> None:
            self._timers.discard(timer)
            self._add([work])

        timer = asyncio.get_running_loop().call_later(_AGAIN_S, add)
        self._timers.add(timer)

    # -- handlers that take too long -------------------------------------------------------------

    async def _expire(self) -> None:
        """A handler that runs for longer than allowed counts as failed."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(self._timeout_s / 4, 60.0))
            begun_before = loop.time() - self._timeout_s
            for worker in self._workers:
                if 0 < worker.since < begun_before and not worker.is_expired:
                    log.error("a handler ran for over %g s: counted as failed", self._timeout_s)
                    worker.is_expired = True
                    await self._end_or_put_off(worker)

    async def _end_or_put_off(self, worker: _Worker) -> None:
        """A coroutine is cancelled. A thread cannot be: its message goes back, and the worker takes
        the next one when the thread has come back, so that nothing expires unseen by a handler."""
        assert worker.task is not None
        assert worker.work is not None
        if self._handling.is_cancellable:
            worker.task.cancel()
        else:
            await self._put_off(worker.work, FAILED)
