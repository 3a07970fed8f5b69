"""The entries of one second in memory, by millisecond, oldest first.

They are read from the log backwards and some at a time, because a second may have millions. Of
those only the first ones are kept; when they are gone, the second is read again from there on.
"""

import heapq
from collections import deque

from .timed import RecallKey

ENTRIES_MAX = 200_000
"""Kept of one second; up to twice as many for a moment."""

Key = tuple[int, int]
"""Millisecond of the second, and position in the timer log: the order of delivery."""
START: Key = (0, 0)


class DueSlot:
    def __init__(self, second: int, newest: int, start: Key = START) -> None:
        """`newest` is where its entries are read from, back to the oldest; those before `start`
        have been delivered."""
        self.second = second
        self.unread = newest
        """The next entry to read; negative when all are read."""
        self.recalled: set[RecallKey] = set()
        self._start = start
        self._left_out: Key | None = None
        """The first of those that there was no room for."""
        self._positions: dict[int, deque[int]] = {}
        self._order: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_read(self) -> bool:
        return self.unread < 0

    def add_older(self, millisecond: int, position: int) -> None:
        """An entry that stands in the log before all of the same millisecond."""
        if (millisecond, position) >= self._start and self._has_room_for(millisecond, position):
            self._of(millisecond).appendleft(position)
            self._grown()

    def add_newer(self, millisecond: int, position: int) -> None:
        """An entry that stands behind all; it may be due before some that wait to be read."""
        if self._has_room_for(millisecond, position):
            self._of(millisecond).append(position)
            self._grown()

    def _has_room_for(self, millisecond: int, position: int) -> bool:
        return self._left_out is None or (millisecond, position) < self._left_out

    def _of(self, millisecond: int) -> deque[int]:
        positions = self._positions.get(millisecond)
        if positions is None:
            positions = self._positions[millisecond] = deque()
            heapq.heappush(self._order, millisecond)
        return positions

    def _grown(self) -> None:
        self._count += 1
        if self._count >= 2 * ENTRIES_MAX:
            self._leave_out(self._count - ENTRIES_MAX)

    def _leave_out(self, count: int) -> None:
        """Drop those that are delivered last."""
        for millisecond in sorted(self._positions, reverse=True):
            positions = self._positions[millisecond]
            while positions and count:
                self._left_out = (millisecond, positions.pop())
                self._count -= 1
                count -= 1
            if not count:
                return

    def head(self) -> Key | None:
        """What is delivered next; None when nothing is left here."""
        while self._order:
            millisecond = self._order[0]
            positions = self._positions[millisecond]
            if positions:
                return millisecond, positions[0]
            heapq.heappop(self._order)
            del self._positions[millisecond]
        return None

    def pop(self) -> None:
        """The head is delivered."""
        self._positions[self._order[0]].popleft()
        self._count -= 1

    def rest(self, newest: int) -> "DueSlot | None":
        """What there was no room for, to be read anew; None when that is nothing."""
        if self._left_out is None:
            return None
        return DueSlot(self.second, newest, self._left_out)
