"""One member as the leader sees it: how far its log agrees, and how it is being fed.

A leader first searches for the point up to which the logs agree, then streams ahead of the answers
within a window of bytes. It goes back to searching when the member says that something is missing.
`next` is where the next bytes begin; `stored` what the member has safe and in common with us.

Small chunks wait while others are under way: what a busy leader gets meanwhile goes in one, and a
member handles it in one go. A chunk or an answer that is lost holds them up until a heartbeat asks.
"""

from collections import deque
from enum import Enum
from typing import Final

from .messages import Accepted, Rejected
from .replica_log import ReplicaLog

NEVER_MS = -(1 << 62)
CHUNKS_AHEAD: Final = 2
"""Small chunks under way at once: one that is being stored, and one that will be next."""


class Mode(Enum):
    SEARCH = "search"
    STREAM = "stream"
    RESTART = "restart"
    """What the member needs is deleted here; it has to begin anew at our first byte."""


class Progress:
    def __init__(self, log: ReplicaLog) -> None:
        self._log = log
        self.mode = Mode.SEARCH
        self.next = log.end
        self.stored = 0
        self.full = False
        self.echo_ms = NEVER_MS
        self._asked = False
        self._under_way: deque[int] = deque()
        """Where chunks end that the member has not answered yet."""

    def on_accepted(self, message: Accepted) -> None:
        self.echo_ms = max(self.echo_ms, message.echo_ms)
        self.stored = max(self.stored, message.stored)
        self.full = message.full
        if message.full:
            # What was sent ahead was not taken.
            self._go_to(message.agreed)
        elif self.mode is not Mode.STREAM:
            self.mode = Mode.STREAM
            self._go_to(message.agreed)
        else:
            self.next = max(self.next, message.agreed)
            while self._under_way and self._under_way[0] <= message.agreed:
                self._under_way.popleft()

    def sent(self, end: int) -> None:
        """A chunk that ends there is under way."""
        self.next = end
        self._under_way.append(end)

    def may_send(self, bytes_left: int, chunk_bytes_max: int) -> bool:
        """Whether a chunk of what is left should go now; a small one may get larger meanwhile."""
        return len(self._under_way) < CHUNKS_AHEAD or bytes_left >= chunk_bytes_max

    def _go_to(self, offset: int) -> None:
        self.next = offset
        self._under_way.clear()

    def on_rejected(self, message: Rejected) -> None:
        self.echo_ms = max(self.echo_ms, message.echo_ms)
        if self._is_outdated(message):
            return
        _, own_end = self._log.table.newest_up_to(message.newest_epoch, self._log.end)
        common_at_most = min(own_end, message.newest_end)
        point = max(common_at_most, min(message.confirmed, self._log.end))
        # The same question again has time until the next heartbeat.
        self._asked = self.mode is Mode.SEARCH and point == self.next
        self.mode = Mode.SEARCH
        self._go_to(point)
        # Less than it had stored: it lost its disk. To count less is always safe.
        self.stored = min(self.stored, self.next)

    def window_left(self, window_bytes_max: int) -> int:
        return self.stored + window_bytes_max - self.next

    def may_ask(self) -> bool:
        """Whether a search, or a restart, is due and not under way; it is repeated with every
        heartbeat until it is answered."""
        if self._asked:
            return False
        self._asked = True
        return True

    def look_at_start(self) -> None:
        """What retention deleted cannot be sent."""
        if self.next < self._log.start:
            if self.mode is not Mode.RESTART:
                self._asked = False
            self.mode = Mode.RESTART

    def _is_outdated(self, message: Rejected) -> bool:
        """Answers overtake one another. While searching, only the last question counts."""
        if self.mode is Mode.STREAM:
            return message.offset <= self.stored and message.newest_end >= self.stored
        return message.offset != self.next
