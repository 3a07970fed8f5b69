"""Pulls that found nothing and wait for a message.

Each is asked again when its queue gets messages, and at its deadline it takes whatever there is.
Deadlines are looked at twice a second: a pull that waits a little longer than it asked for costs
nobody anything, a timer for each would.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

import msgspec

from cometmq.protocol.scan import QUEUE_ID_BYTES
from cometmq.transport.connection import Connection

log = logging.getLogger(__name__)
SWEEP_INTERVAL_S = 0.5


class WaitingPull(msgspec.Struct, eq=False):
    connection: Connection
    queue: bytes
    deadline: float
    retry: Callable[["WaitingPull", bool], bool]
    """Called with whether this is the last time; True when the pull got its answer."""


class WaitingPulls:
    def __init__(self, held_max: int) -> None:
        self.held_max = held_max
        self._queues: dict[bytes, list[WaitingPull]] = {}
        self._count = 0
        self._topics: dict[bytes, int] = {}
        """How many wait on queues of each topic."""
        self._sweeping: asyncio.TimerHandle | None = None
        self._stopped = False

    def __len__(self) -> int:
        return self._count

    def awaits(self, topic: str) -> bool:
        """Whether a pull waits on any queue of a topic."""
        return bool(self._topics) and topic.encode() in self._topics

    def hold(self, pull: WaitingPull) -> bool:
        """Let it wait; False when too many do."""
        if self._count >= self.held_max:
            return False
        self._queues.setdefault(pull.queue, []).append(pull)
        self._add(pull.queue, 1)
        if self._sweeping is None and not self._stopped:
            self._plan_sweep()
        return True

    def arrived(self, queues: Iterable[bytes]) -> None:
        """These queues got messages."""
        for queue in queues:
            if queue in self._queues:
                self._retry(queue, last=False)

    def ask_again(self) -> None:
        """Something changed that concerns all who wait."""
        self.arrived(list(self._queues))

    def release(self, queue: bytes) -> None:
        """Answer all who wait on a queue, whatever there is."""
        if queue in self._queues:
            self._retry(queue, last=True)

    def stop(self) -> None:
        """Answer all; who comes later waits until its connection closes."""
        self._stopped = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        for queue in list(self._queues):
            self.release(queue)

    def _retry(self, queue: bytes, *, last: bool) -> None:
        waiting = self._queues.pop(queue)
        self._add(queue, -len(waiting))
        left = [p for p in waiting if p.connection.is_open and not _retry(p, last=last)]
        if left:
            # A retry may have let the same client wait again meanwhile.
            self._queues[queue] = left + self._queues.get(queue, [])
            self._add(queue, len(left))

    def _add(self, queue: bytes, count: int) -> None:
        self._count += count
        topic = queue[:-QUEUE_ID_BYTES]
        of_topic = self._topics.pop(topic, 0) + count
        if of_topic:
            self._topics[topic] = of_topic

    def _plan_sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(SWEEP_INTERVAL_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        now = asyncio.get_running_loop().time()
        for queue, waiting in list(self._queues.items()):
            if any(p.deadline <= now or not p.connection.is_open for p in waiting):
                self._expire(queue, waiting, now)
        if self._queues:
            self._plan_sweep()

    def _expire(self, queue: bytes, waiting: list[WaitingPull], now: float) -> None:
        due = [p for p in waiting if p.deadline <= now and p.connection.is_open]
        left = [p for p in waiting if p.deadline > now and p.connection.is_open]
        self._add(queue, len(left) - len(waiting))
        if left:
            self._queues[queue] = left
        else:
            del self._queues[queue]
        for pull in due:
            _retry(pull, last=True)


def _retry(pull: WaitingPull, *, last: bool) -> bool:
    """Whether a pull is through. One that fails must not keep the others from their messages."""
    try:
        return pull.retry(pull, last)
    except Exception:
        log.exception("a pull of %s could not be answered", pull.connection.peer)
        return True
