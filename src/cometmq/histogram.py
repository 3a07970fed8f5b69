"""How values are spread: a count for each range, and their sum. Plain numbers, added to in place;
the text that others read is made when they ask.
"""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    __slots__ = ("bounds", "counts", "total")

    def __init__(
        self, bounds: Sequence[float], counts: list[int] | None = None, total: float = 0
    ) -> None:
        """`bounds` are the upper ends of the ranges, themselves included; one more is open. With
        `counts`, of values that somebody else has counted."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1) if counts is None else counts
        self.total = total

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times
