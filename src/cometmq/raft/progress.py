"""One member as the leader sees it: how far its log agrees, and how it is being fed.

A leader first searches for the point up to which the logs agree, then streams ahead of the answers
within a window of bytes. It goes back to searching when the member says that something is missing.
`next` is where the next bytes begin; `stored` what the member has safe and in common with us.
"""

from enum import Enum

from .messages import Accepted, Rejected
from .replica_log import ReplicaLog

NEVER_MS = -(1 << 62)


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

    def on_accepted(self, message: Accepted) -> None:
        self.echo_ms = max(self.echo_ms, message.echo_ms)
        self.stored = max(self.stored, message.stored)
        self.full = message.full
        if message.full:
            # What was sent ahead was not taken.
            self.next = message.agreed
        elif self.mode is not Mode.STREAM:
            self.mode, self.next = Mode.STREAM, message.agreed
        else:
            self.next = max(self.next, message.agreed)

    def on_rejected(self, message: Rejected) -> None:
        self.echo_ms = max(self.echo_ms, message.echo_ms)
        if self._is_outdated(message):
            return
        _, own_end = self._log.table.newest_up_to(message.newest_epoch, self._log.end)
        common_at_most = min(own_end, message.newest_end)
        point = max(common_at_most, min(message.confirmed, self._log.end))
        # The same question again has time until the next heartbeat.
        self._asked = self.mode is Mode.SEARCH and point == self.next
        self.mode, self.next = Mode.SEARCH, point
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
