"""What a benchmark prints: one JSON line a case on stdout, a table for people on stderr.

A figure is the median of its runs. `ratio` is ours / peer; whether more is better depends on the
unit (`cpu_us_per_msg` down, `msgs_per_s` up).
"""

import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence

import msgspec

Figures = Mapping[str, float]
"""What one run of a child process measured, by name."""


class Line(msgspec.Struct, frozen=True):
    case: str
    ours: float
    peer: float
    unit: str
    ratio: float
    peer_name: str


def line(case: str, ours: float, peer: float, unit: str, peer_name: str) -> Line:
    return Line(case, round(ours, 3), round(peer, 3), unit, round(ours / peer, 3), peer_name)


def median(runs: Sequence[Figures], name: str) -> float:
    return statistics.median(run[name] for run in runs)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def told(figures: Figures) -> str:
    """One run's figures, short enough for a line of progress."""
    return ", ".join(f"{name} {shown(value)}" for name, value in figures.items())


def shown(value: float) -> str:
    """Three digits that count, and thousands in groups."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def print_lines(lines: Iterable[Line]) -> None:
    for each in lines:
        print(msgspec.json.encode(each).decode(), flush=True)


def table(lines: Sequence[Line]) -> str:
    rows = [("case", "ours", "peer", "", "unit", "ratio"), *map(_cells, lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number in (1, 2, 5) else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def markdown(lines: Sequence[Line]) -> str:
    """Rows for the tables of docs/performance.md."""
    head = ["| Case | Ours | Peer | Unit | Ratio |", "|---|---:|---:|---|---:|"]
    rows = (
        f"| {case} | {ours} | {peer} ({name}) | {unit} | {ratio} |"
        for case, ours, peer, name, unit, ratio in map(_cells, lines)
    )
    return "\n".join([*head, *rows])


def _cells(each: Line) -> tuple[str, str, str, str, str, str]:
    ours, peer, ratio = shown(each.ours), shown(each.peer), shown(each.ratio)
    return each.case, ours, peer, each.peer_name, each.unit, ratio
