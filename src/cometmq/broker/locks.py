"""Which member of a group may consume a queue in order. Pure: the time is an argument.

A lock lives for 60 seconds after its holder last asked for it, so a consumer that died does not
keep a queue for ever; living ones ask again every 20 seconds.
"""

from collections.abc import Iterable

import msgspec

from cometmq.protocol.message_queue import MessageQueue

LOCK_MS = 60_000
LOCKS_MAX = 200_000
"""Of all groups together; no further queue is locked."""


class _Lock(msgspec.Struct):
    client_id: str
    renewed_ms: int


class QueueLocks:
    def __init__(self) -> None:
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int
    ) -> list[MessageQueue]:
        """Lock what is free or expired, renew what the client holds; what it holds now."""
        held = []
        table = self._groups.get(group, {})
        for queue in queues:
            lock = table.get(queue)
            if lock is None and self._count >= LOCKS_MAX:
                continue
            if lock is None or lock.client_id == client_id or _is_over(lock, now_ms):
                self._count += lock is None
                table[queue] = _Lock(client_id, now_ms)
                held.append(queue)
        if table:
            self._groups[group] = table
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        table = self._groups.get(group, {})
        for queue in queues:
            lock = table.get(queue)
            if lock is not None and lock.client_id == client_id:
                self._drop(group, queue)

    def is_held(self, group: str, now_ms: int) -> bool:
        """Whether anybody of the group consumes in order just now."""
        table = self._groups.get(group, {})
        return any(not _is_over(lock, now_ms) for lock in table.values())

    def expire(self, now_ms: int) -> None:
        """Forget locks that nobody renewed."""
        for group, table in list(self._groups.items()):
            for queue in [queue for queue, lock in table.items() if _is_over(lock, now_ms)]:
                self._drop(group, queue)

    def _drop(self, group: str, queue: MessageQueue) -> None:
        table = self._groups[group]
        del table[queue]
        self._count -= 1
        if not table:
            del self._groups[group]


def _is_over(lock: _Lock, now_ms: int) -> bool:
    return now_ms - lock.renewed_ms > LOCK_MS
