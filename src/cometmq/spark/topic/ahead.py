"""Reading a range ahead: several pulls under way, each message exactly once, in order.

A range is asked for in pieces, and a piece may bring less than was asked for: brokers have limits
of their own. What is left of it is asked for again before anything behind it is taken. How large
pieces are follows from what came.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

MESSAGES_MAX: Final = 1024
"""Messages asked for at a time."""
BYTES_AHEAD: Final = 4 << 20
"""Of answers under way, about."""
PULLS_MAX: Final = 32
_GROW_AFTER: Final = 16
"""So many pieces that came whole in a row: larger ones may do, too."""

T = TypeVar("T")


class Piece(NamedTuple, Generic[T]):
    """What was asked for, from `start` up to, but without, `stop`."""

    start: int
    stop: int
    answer: asyncio.Future[T]


class Ahead(Generic[T]):
    """`current` is to be read next, up to `limit`; `took` says how far it went.

    Pieces follow one another without a gap, the last one up to what was asked for. Only the first
    may begin behind `position`, between `took` and `current`, which is all that asks: where that
    fails, it is asked again, and nothing is passed over.
    """

    def __init__(self, start: int, stop: int, ask: Callable[[int, int], asyncio.Future[T]]) -> None:
        """`ask` is given an offset and how many messages are wanted from there on."""
        self.position = start
        self._stop = stop
        self._ask = ask
        self._asked = start
        self._pieces: deque[Piece[T]] = deque()
        self._piece_size = MESSAGES_MAX
        self._whole_in_row = 0
        self._pulls_max = 1
        """The first answer tells how much an answer brings."""

    @property
    def is_done(self) -> bool:
        return self.position >= self._stop

    @property
    def limit(self) -> int:
        """Up to where the current answer is used: another one brings what is behind."""
        return self._pieces[1].start if len(self._pieces) > 1 else self._stop

    def current(self) -> Piece[T]:
        if self._pieces and self._pieces[0].start > self.position:
            self._pieces.appendleft(self._piece(self.position, self._pieces[0].start))
        while self._asked < self._stop and len(self._pieces) < self._pulls_max:
            stop = min(self._stop, self._asked + self._piece_size)
            self._pieces.append(self._piece(self._asked, stop))
            self._asked = stop
        assert self._pieces[0].start == self.position
        return self._pieces[0]

    def took(self, reached: int, answer_bytes: int) -> None:
        """The current answer has all there is before `reached`. With a filter that is often far
        more than was asked for."""
        upto = min(reached, self.limit)
        piece = self._pieces.popleft()
        assert self.position == piece.start < upto
        self.position = upto
        if reached != piece.stop:
            self._piece_size, self._whole_in_row = reached - piece.start, 0
        else:
            self._came_whole()
        if not self._pieces:
            self._asked = upto
        self._pulls_max = max(2, min(PULLS_MAX, BYTES_AHEAD // max(1, answer_bytes)))

    def pass_over(self, count: int) -> None:
        """So many messages were read in another way; nothing is under way."""
        assert not self._pieces
        self.position = self._asked = self.position + count

    def forget(self) -> None:
        """What is under way will not come; begin again behind what was taken."""
        for piece in self._pieces:
            piece.answer.cancel()
        self._pieces.clear()
        self._asked = self.position
        self._pulls_max = 1

    def give_up(self) -> None:
        """Leave out what is not taken yet."""
        self.forget()
        self.position = self._asked = self._stop

    def _piece(self, start: int, stop: int) -> Piece[T]:
        return Piece(start, stop, self._ask(start, min(stop - start, MESSAGES_MAX)))

    def _came_whole(self) -> None:
        self._whole_in_row += 1
        if self._whole_in_row >= _GROW_AFTER and self._piece_size < MESSAGES_MAX:
            self._piece_size, self._whole_in_row = min(MESSAGES_MAX, self._piece_size * 2), 0
