"""Which epoch each byte of the log was written in, and which members the group had then.

The log is a row of stretches. A leader begins one when it is elected and one for each change of
members; a stretch goes up to the start of the next. Invariants: starts and epochs never decrease,
and behind the first stretch starts strictly increase. The first stretch is the base: it says who
the members are before there is a byte, and stays when everything behind it is cut.

Two logs that have the same epoch at a byte agree in all bytes up to it (log matching): an epoch has
one leader, and a leader only appends.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from msgspec import Struct

from .errors import require
from .members import Members


class Stretch(Struct, frozen=True):
    epoch: int
    start: int
    members: Members


class EpochTable:
    def __init__(self, stretches: Iterable[Stretch]) -> None:
        self._stretches = list(stretches)
        self._starts = [stretch.start for stretch in self._stretches]
        require(bool(self._stretches), "an epoch table has at least its base")

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        return tuple(self._stretches)

    @property
    def last(self) -> Stretch:
        return self._stretches[-1]

    def begin(self, stretch: Stretch) -> None:
        """Let a stretch begin where the log ends."""
        last = self.last
        follows = stretch.start > last.start or (
            stretch.start == last.start and len(self._stretches) == 1
        )
        require(follows and stretch.epoch >= last.epoch, f"{stretch} cannot follow {last}")
        self._stretches.append(stretch)
        self._starts.append(stretch.start)

    def at(self, offset: int) -> Stretch:
        """The stretch of the byte at `offset`."""
        if offset >= self._starts[-1]:
            return self._stretches[-1]
        return self._stretches[max(bisect_right(self._starts, offset) - 1, 0)]

    def before(self, offset: int) -> Stretch:
        """The stretch of the last byte before `offset`; the base where there is none."""
        if offset > self._starts[-1]:
            return self._stretches[-1]
        return self._stretches[max(bisect_left(self._starts, offset) - 1, 0)]

    def end_of_stretch(self, offset: int, log_end: int) -> int:
        """Where the stretch of the byte at `offset` ends."""
        following = bisect_right(self._starts, offset)
        return min(self._starts[following], log_end) if following < len(self._starts) else log_end

    def end_of_epoch(self, offset: int, log_end: int) -> int:
        """Where the epoch of the byte at `offset` ends."""
        return self._first_after(self.at(offset).epoch, log_end)

    def newest_up_to(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The newest epoch that is not newer than the given one, and where it ends."""
        known = [stretch.epoch for stretch in self._stretches if stretch.epoch <= epoch]
        if not known:
            # Forgotten with its bytes: it ended before the base at the latest.
            return 0, min(self._starts[0], log_end)
        return known[-1], self._first_after(known[-1], log_end)

    def cut(self, log_end: int) -> bool:
        """Forget the stretches that have no byte before `log_end`; whether there were any."""
        kept = max(bisect_left(self._starts, log_end), 1)
        was_longer = kept < len(self._starts)
        del self._stretches[kept:], self._starts[kept:]
        return was_longer

    def forget_before(self, log_start: int) -> None:
        """Forget stretches whose bytes are deleted, but not the one before the first byte."""
        gone = max(bisect_left(self._starts, log_start) - 1, 0)
        del self._stretches[:gone], self._starts[:gone]

    def _first_after(self, epoch: int, log_end: int) -> int:
        newer = (stretch.start for stretch in self._stretches if stretch.epoch > epoch)
        return min(next(newer, log_end), log_end)
