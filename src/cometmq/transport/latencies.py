"""How long requests take, by what was asked and what was answered, in RocketMQ's ranges."""

import enum
from bisect import bisect_left
from collections.abc import Iterator
from time import monotonic
from typing import Final, NamedTuple

from cometmq.histogram import Histogram
from cometmq.protocol.command import ONEWAY, Command

LATENCY_MS: Final = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
CODES_MAX: Final = 512
"""Pairs of request and answer that are told apart; peers may ask for what does not exist."""


_Table = dict[int, dict[int, Histogram]]


class Way(enum.Enum):
    ANSWERED = "answered"
    ONEWAY = "oneway"
    HELD = "held"
    """It waited until there was something to answer."""


class Latency(NamedTuple):
    way: Way
    request: int
    answer: int
    spread: Histogram


class Latencies:
    def __init__(self) -> None:
        # Dictionaries in dictionaries: a key of three would be made anew for every request.
        self._answered: _Table = {}
        self._oneway: _Table = {}
        self._held: _Table = {}
        self._count = 0

    def add(self, command: Command, answer: int) -> None:
        """A request was answered, or is over if nobody wants an answer."""
        if command.held:
            table = self._held
        elif command.flag & ONEWAY:
            table = self._oneway
        else:
            table = self._answered
        self._add(table, command.code, answer, command.received, 1)

    def add_alike(
        self, request: int, answer: int, received: float, count: int, *, oneway: bool
    ) -> None:
        """Several requests of one kind were answered, which came together."""
        self._add(self._oneway if oneway else self._answered, request, answer, received, count)

    def _add(self, table: _Table, request: int, answer: int, received: float, count: int) -> None:
        took_ms = (monotonic() - received) * 1000
        answers = table.get(request)
        spread = answers.get(answer) if answers is not None else None
        if spread is None:
            spread = self._new(table, request, answer)
        spread.counts[bisect_left(LATENCY_MS, took_ms)] += count
        spread.total += took_ms * count

    def _new(self, table: _Table, request: int, answer: int) -> Histogram:
        if self._count >= CODES_MAX:
            return Histogram(LATENCY_MS)
        self._count += 1
        spread = table.setdefault(request, {})[answer] = Histogram(LATENCY_MS)
        return spread

    def __iter__(self) -> Iterator[Latency]:
        tables = {Way.ANSWERED: self._answered, Way.ONEWAY: self._oneway, Way.HELD: self._held}
        for way, table in tables.items():
            for request, answers in table.items():
                for answer, spread in answers.items():
                    yield Latency(way, request, answer, spread)
