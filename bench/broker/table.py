"""What the rounds gave: lines for programs, a table for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ..report import Figures, Line, line, median, shown
from .cases import CASES, CPU, OWN_AIM, Aim, Case
from .sides import NAMES, OURS, PEER, PURE

Rounds = Mapping[str, Mapping[str, Sequence[Figures]]]
"""Figures by side and case, one a round."""
PLAIN_AIMS: Final = {("async_512", CPU): Aim(most=0.45)}
_HEAD: Final = (
    "| case | unit | ours | RocketMQ 5.5.0 | ratio | aim | plain Python | ratio |\n"
    "|---|---|---:|---:|---:|---:|---:|---:|"
)


def lines(rounds: Rounds) -> Iterator[Line]:
    for name in CASES:
        yield from case_lines(name, rounds)


def case_lines(name: str, rounds: Rounds) -> Iterator[Line]:
    case = CASES[name]
    for unit in case.units:
        mine, peer = _value(rounds, OURS, name, unit), _value(rounds, PEER, name, unit)
        plain = _value(rounds, PURE, name, unit)
        if mine is not None and peer:
            yield line(name, mine, peer, unit, NAMES[PEER])
        if plain is not None and peer:
            yield line(f"{name} (plain Python)", plain, peer, unit, NAMES[PEER])
    own = own_ratio(name, rounds)
    if own is not None:
        yield line(f"{name} (its own small case)", *own, CPU, NAMES[OURS])


def own_ratio(name: str, rounds: Rounds) -> tuple[float, float] | None:
    """What a message costs in a large case and in a small one, both ours."""
    if name == "growth":
        large, small = (_value(rounds, OURS, name, unit) for unit in ("last_gib", "first_gib"))
    elif CASES[name].small:
        large = _value(rounds, OURS, name, CPU)
        small = _value(rounds, OURS, CASES[name].small, CPU)
    else:
        return None
    return (large, small) if large is not None and small else None


def markdown(rounds: Rounds) -> str:
    """The table of docs/performance.md."""
    rows = [_HEAD]
    for name, case in CASES.items():
        rows += _rows(name, case, rounds)
    own = [(name, own_ratio(name, rounds)) for name in CASES]
    rows += [
        f"| {name}, to its own small case | {CPU} | {shown(found[0])} | {shown(found[1])} (ours) "
        f"| {found[0] / found[1]:.2f} | {_judged(OWN_AIM, found[0] / found[1])} | | |"
        for name, found in own
        if found is not None
    ]
    return "\n".join(rows)


def _rows(name: str, case: Case, rounds: Rounds) -> Iterator[str]:
    for unit in case.units:
        mine, peer = _value(rounds, OURS, name, unit), _value(rounds, PEER, name, unit)
        if mine is None:
            continue
        plain = _value(rounds, PURE, name, unit)
        cells = [
            name, unit, shown(mine), _shown(peer), _ratio(mine, peer, case.aims.get(unit)),
            str(case.aims.get(unit, "")), _shown(plain),
            _ratio(plain, peer, PLAIN_AIMS.get((name, unit))),
        ]  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def _shown(value: float | None) -> str:
    return "" if value is None else shown(value)


def _ratio(value: float | None, peer: float | None, aim: Aim | None) -> str:
    if value is None or not peer:
        return ""
    ratio = value / peer
    return f"{ratio:.2f}" if aim is None or aim.is_met(ratio) else f"**{ratio:.2f}**"


def _judged(aim: Aim, ratio: float) -> str:
    return str(aim) if aim.is_met(ratio) else f"{aim}, missed"


def _value(rounds: Rounds, side: str, name: str, unit: str) -> float | None:
    runs = rounds.get(side, {}).get(name, ())
    return median(runs, unit) if runs and unit in runs[0] else None
