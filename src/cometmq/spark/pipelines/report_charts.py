"""Charts as SVG that stands in a page: bars over time, lines over time. Pure.

Colours and fonts are the page's (classes `s0` to `s7`, `axis`, `grid`), so a chart follows light
and dark. What a bar stands for shows when the pointer is over it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

COLOURS: Final = 8
_WIDTH: Final = 960
_HEIGHT: Final = 260
_LEFT: Final = 64
_RIGHT: Final = 8
_TOP: Final = 12
_BOTTOM: Final = 28
_INSIDE_WIDTH: Final = _WIDTH - _LEFT - _RIGHT
_INSIDE_HEIGHT: Final = _HEIGHT - _TOP - _BOTTOM
LABELS_MAX: Final = 9
"""Along the time."""
_LINES: Final = 4
"""Across, about."""
_ENDS: Final = (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8, 10)
_BAR_WIDTH_MAX: Final = 48.0

Show = Callable[[float], str]


class Row(NamedTuple):
    """One colour of a chart."""

    name: str
    values: Sequence[float | None]


class Axis(NamedTuple):
    """The time, from left to right."""

    labels: Sequence[str]
    marks: Sequence[int]
    """Which of the labels are written."""


def stacked_bars(
    title: str, rows: Sequence[Row], axis: Axis, show: Show, *, base: int = 1000
) -> str:
    """One bar for each label, of as many pieces as there are rows. The scale has round numbers
    where `base` stands for the next unit: 1024 for bytes."""
    totals = [sum(row.values[at] or 0 for row in rows) for at in range(len(axis.labels))]
    top = _round_end(max(totals, default=0) or 1, base)
    step = _INSIDE_WIDTH / len(axis.labels)
    width = min(step * 0.86, _BAR_WIDTH_MAX)
    parts = [_scale(_ticks(top), lambda value: value / top, show), _times(axis)]
    for at, label in enumerate(axis.labels):
        x, y = _LEFT + step * at + (step - width) / 2, _HEIGHT - _BOTTOM + 0.0
        pieces = []
        for number, row in enumerate(rows):
            height = (row.values[at] or 0) / top * _INSIDE_HEIGHT
            y -= height
            if height:
                pieces.append(_rect(number, x, y, width, height))
        if pieces:
            parts.append(f"<g><title>{_told(label, rows, at, show)}</title>{''.join(pieces)}</g>")
    return _chart(title, parts)


def lines(title: str, rows: Sequence[Row], axis: Axis, show: Show) -> str:
    """A line for each row, on a scale of powers of ten: small values and large ones both show.
    Those below 0 lie at 0; what they are is told beside the pointer."""
    known = [value for row in rows for value in row.values if value is not None]
    powers = max(1, math.ceil(math.log10(max([0, *known]) + 1)))
    step = _INSIDE_WIDTH / len(axis.labels)

    def part(value: float) -> float:
        return min(1.0, math.log10(max(value, 0) + 1) / powers)

    ticks = [0.0, *(float(10**power) for power in range(powers + 1))]
    parts = [_scale(ticks, part, show), _times(axis)]
    for number, row in enumerate(rows):
        for first, values in _pieces(row.values):
            points = [
                (_LEFT + step * (first + at + 0.5), _y(part(value)))
                for at, value in enumerate(values)
            ]
            parts += [_line(number, points), *_dots(number, points)]
    parts += [
        f'<rect class="hover" x="{_LEFT + step * at:.1f}" y="{_TOP}" width="{step:.1f}" '
        f'height="{_INSIDE_HEIGHT}"><title>{_told(label, rows, at, show)}</title></rect>'
        for at, label in enumerate(axis.labels)
    ]
    return _chart(title, parts)


def legend(names: Sequence[str]) -> str:
    if not names:
        return ""
    items = [
        f'<li><span class="key s{number % COLOURS}"></span>{escape(name)}</li>'
        for number, name in enumerate(names)
    ]
    return f'<ul class="legend">{"".join(items)}</ul>'


def _chart(title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )


def _rect(number: int, x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect class="s{number % COLOURS}" x="{x:.1f}" y="{y:.2f}" width="{width:.1f}" '
        f'height="{height:.2f}"/>'
    )


def _line(number: int, points: Sequence[tuple[float, float]]) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="line s{number % COLOURS}" points="{path}"/>'


def _dots(number: int, points: Sequence[tuple[float, float]]) -> list[str]:
    return [
        f'<circle class="s{number % COLOURS}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>'
        for x, y in points
    ]


def _told(label: str, rows: Sequence[Row], at: int, show: Show) -> str:
    values = [(row.name, row.values[at]) for row in rows]
    told = [f"{name}: {show(value)}" for name, value in values if value is not None and value]
    return escape("\n".join([label, *(told or ["nothing"])]))


def _scale(ticks: Sequence[float], part: Callable[[float], float], show: Show) -> str:
    """Lines across, with what they stand for."""
    marks = []
    for tick in ticks:
        y = _y(part(tick))
        marks.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="axis" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{escape(show(tick))}</text>"
        )
    return "".join(marks)


def _times(axis: Axis) -> str:
    step = _INSIDE_WIDTH / len(axis.labels)
    return "".join(
        f'<text class="axis" x="{_LEFT + step * (at + 0.5):.1f}" y="{_HEIGHT - 8}" '
        f'text-anchor="middle">{escape(axis.labels[at])}</text>'
        for at in axis.marks
    )


def _pieces(values: Sequence[float | None]) -> Iterator[tuple[int, list[float]]]:
    """Runs of values without a gap, each with where it begins."""
    piece: list[float] = []
    for at, value in enumerate([*values, None]):
        if value is not None:
            piece.append(value)
        elif piece:
            yield at - len(piece), piece
            piece = []


def _y(part: float) -> float:
    return _TOP + _INSIDE_HEIGHT * (1 - part)


def _ticks(top: float) -> list[float]:
    return [top * number / _LINES for number in range(_LINES + 1)]


def _round_end(value: float, base: int) -> float:
    """The next number at which a scale may end: its quarters are read easily."""
    unit = 1.0
    while unit * base <= value:
        unit *= base
    power = unit * 10.0 ** math.floor(math.log10(value / unit))
    factor = next(factor for factor in _ENDS if value <= factor * power)
    return max(factor * power, float(_LINES))
