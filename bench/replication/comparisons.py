"""Which setups are compared, what is aimed at, and the lines and the table of it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from ..broker.cases import CPU, SPEED, Aim
from ..report import Figures, Line, line, median, shown
from .setups import SETUPS

Rounds = Mapping[str, Mapping[str, Sequence[Figures]]]
"""Figures by setup and case, one a round."""
_HALF: Final[Mapping[str, Aim]] = {CPU: Aim(most=0.5)}
_MOST: Final[Mapping[str, Aim]] = {SPEED: Aim(least=0.7)}
_HEAD: Final = "| | case | unit | first | second | ratio | aim |\n|---|---|---|---:|---:|---:|---:|"


class Comparison(msgspec.Struct, frozen=True):
    first: str
    second: str
    aims: Mapping[str, Aim]

    def title(self) -> str:
        return f"{SETUPS[self.first].name} : {SETUPS[self.second].name}"


COMPARISONS: Final = (
    Comparison("pair", "rocketmq_pair", _HALF),
    Comparison("raft", "rocketmq_dledger", _HALF),
    Comparison("raft", "alone_sync", _MOST),
    Comparison("raft_sync", "alone_sync", _MOST),
)


def _both(each: Comparison, rounds: Rounds) -> Iterator[tuple[str, str, float, float]]:
    """Case, unit and the two medians, as far as both were measured."""
    first, second = rounds.get(each.first, {}), rounds.get(each.second, {})
    for case in first:
        if case in second:
            for unit in (CPU, SPEED):
                yield case, unit, median(first[case], unit), median(second[case], unit)


def lines(rounds: Rounds) -> Iterator[Line]:
    for each in COMPARISONS:
        for case, unit, mine, other in _both(each, rounds):
            yield line(f"{each.first} {case}", mine, other, unit, SETUPS[each.second].name)


def markdown(rounds: Rounds) -> str:
    """The table of docs/replication.md. Bold ratios miss their aim."""
    rows = [_HEAD]
    for each in COMPARISONS:
        for case, unit, mine, other in _both(each, rounds):
            aim, ratio = each.aims.get(unit), f"{mine / other:.2f}"
            if aim is not None and not aim.is_met(mine / other):
                ratio = f"**{ratio}**"
            cells = [each.title(), case, unit, shown(mine), shown(other), ratio, str(aim or "")]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)
