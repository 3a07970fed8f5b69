"""The messages of one queue that were pulled and are not done yet, by their offsets.

Pure. Messages come in ascending order and are done in any; what may be committed is the offset
of the first one that is not done. Nothing behind an unfinished message is ever committed.
"""

from collections import deque
from collections.abc import Sequence

from ..received import ReceivedMessage


class Window:
    def __init__(self, start: int) -> None:
        self._next = start
        self._order: deque[int] = deque()
        self._done: set[int] = set()
        self.count = 0
        self.bytes = 0

    def add(self, messages: Sequence[ReceivedMessage], next_offset: int) -> None:
        """Take messages in; reading goes on at `next_offset`, which may lie behind a gap."""
        self._order.extend([message.queue_offset for message in messages])
        self.count += len(messages)
        self.bytes += sum([len(message.stored_body) for message in messages])
        self._next = max(self._next, next_offset)

    def finish(self, messages: Sequence[ReceivedMessage]) -> None:
        order, done = self._order, self._done
        for message in messages:
            done.add(message.queue_offset)
            self.bytes -= len(message.stored_body)
        self.count -= len(messages)
        while order and order[0] in done:
            done.remove(order.popleft())

    @property
    def next_offset(self) -> int:
        """Where to read on."""
        return self._next

    @property
    def commit_offset(self) -> int:
        """Everything below is done."""
        return self._order[0] if self._order else self._next

    @property
    def span(self) -> int:
        """From the first message that is not done to the last one pulled."""
        return self._next - self._order[0] if self._order else 0
