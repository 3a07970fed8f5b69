"""The queue for the next message: in turn, around brokers that are slow or fail.

`RoundRobin` is a producer's place in one topic's queues. `LatencyFaults` keeps, for all topics,
until when each broker is better left alone, as RocketMQ 5's `sendLatencyFaultEnable` does. The
first only prefers another broker than the one that has just failed. No clock here: the caller
hands in the time. Lists of queues are never empty.
"""

from bisect import bisect_right
from collections.abc import Collection, Sequence

from cometmq.protocol.message_queue import MessageQueue

SLOW_FROM_MS = (550, 1_800, 3_000, 5_000, 15_000)
"""RocketMQ also lists 50 and 100, for which a broker is left alone for 0 ms."""
LEFT_ALONE_MS = (0, 2_000, 5_000, 6_000, 10_000, 30_000)
"""For how long, by how many of the limits above were reached."""
FAILURE_COUNTS_AS_MS = 10_000


class RoundRobin:
    """One topic's queues in turn. Producers that start elsewhere do not all meet at queue 0."""

    __slots__ = ("_place",)

    def __init__(self, start: int = 0) -> None:
        self._place = start - 1

    def next(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        """The next queue, if there is one not of the broker to avoid."""
        if avoid is None:
            return self._step(queues)
        return self.next_beside(queues, (avoid,)) or self._step(queues)

    def next_beside(
        self, queues: Sequence[MessageQueue], brokers: Collection[str]
    ) -> MessageQueue | None:
        """The next queue that is of none of these brokers."""
        # Queues passed over count as served: else the one behind them would serve for all of them.
        for _ in queues:
            queue = self._step(queues)
            if queue.broker_name not in brokers:
                return queue
        return None

    def _step(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        self._place = place = (self._place + 1) % len(queues)
        return queues[place]


class LatencyFaults:
    """Which brokers were slow or failed, and until when they are left alone.

    Holds only brokers that are left alone at the last bad answer, never more than there are.
    """

    def __init__(self) -> None:
        self._until_ms: dict[str, float] = {}
        self._failed: set[str] = set()
        """Those whose last answer was a failure; the others at least answer."""
        self._all_clear_ms = 0.0

    def observe(
        self, broker: str, latency_ms: float, now_ms: float, *, failed: bool = False
    ) -> None:
        """Learn how long a broker took to answer, or to fail."""
        if not failed:
            self._failed.discard(broker)
            if latency_ms < SLOW_FROM_MS[0]:
                return
        counted_ms = FAILURE_COUNTS_AS_MS if failed else latency_ms
        alone_ms = LEFT_ALONE_MS[bisect_right(SLOW_FROM_MS, counted_ms)]
        self._forget_past(now_ms)
        self._until_ms[broker] = max(self._until_ms.get(broker, 0), now_ms + alone_ms)
        self._all_clear_ms = max(self._until_ms.values())
        if failed:
            self._failed.add(broker)

    def is_available(self, broker: str, now_ms: float) -> bool:
        return now_ms >= self._until_ms.get(broker, 0)

    def choose(
        self,
        queues: Sequence[MessageQueue],
        turn: RoundRobin,
        now_ms: float,
        avoid: str | None = None,
    ) -> MessageQueue:
        """The next queue of the best kind there is: available, slow, failing, to be avoided."""
        if now_ms >= self._all_clear_ms:
            return turn.next(queues, avoid)
        self._forget_past(now_ms)
        avoided = set() if avoid is None else {avoid}
        for worse in (self._until_ms.keys(), self._failed):
            if queue := turn.next_beside(queues, worse | avoided):
                return queue
        return turn.next(queues, avoid)

    def _forget_past(self, now_ms: float) -> None:
        for broker in [name for name, until in self._until_ms.items() if until <= now_ms]:
            del self._until_ms[broker]
            self._failed.discard(broker)
