"""A picture of the figures for docs/performance.md: bars in an SVG, drawn without a library.

The longer bar of each case has the whole width: cases differ by a factor of a thousand, and what
counts is how ours compares to the peer's.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

from ..report import Line, shown
from .sides import NAMES, OURS

WIDTH, LABEL_WIDTH, VALUE_WIDTH = 760, 230, 90
BAR, GAP, TOP = 14, 12, 44
COLOURS: Final = ("#2b7a78", "#c96f4a")
UNIT_NAMES: Final = {
    "cpu_us_per_msg": "CPU-µs of the broker a message (less is better)",
    "msgs_per_s": "messages a second (more is better)",
    "p50_us": "median latency, µs (less is better)",
    "p99_us": "latency, 99th percentile, µs (less is better)",
    "mib": "memory without mapped files, MiB (less is better)",
    "s": "seconds (less is better)",
}


def picture(unit: str, lines: Sequence[Line]) -> str:
    """All cases of one unit, ours above the peer's."""
    chosen = [line for line in lines if line.unit == unit and line.peer_name != NAMES[OURS]]
    height = TOP + len(chosen) * (2 * BAR + GAP)
    body = [
        _text(0, 16, UNIT_NAMES[unit], "bold"),
        *_legend(chosen),
        *(part for number, line in enumerate(chosen) for part in _bars(number, line)),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
            *body,
            "</svg>\n",
        ]
    )


def _legend(chosen: Sequence[Line]) -> Iterator[str]:
    peers = " / ".join(dict.fromkeys(line.peer_name for line in chosen))
    for number, name in enumerate(("CometMQ", peers)):
        at = LABEL_WIDTH + number * 120
        yield f'<rect x="{at}" y="24" width="10" height="10" fill="{COLOURS[number]}"/>'
        yield _text(at + 14, 33, name)


def _bars(number: int, line: Line) -> Iterable[str]:
    top, largest = TOP + number * (2 * BAR + GAP), max(line.ours, line.peer)
    yield _text(0, top + BAR + 4, line.case)
    for which, value in enumerate((line.ours, line.peer)):
        y = top + which * BAR
        width = round((WIDTH - LABEL_WIDTH - VALUE_WIDTH) * value / largest, 1)
        yield (
            f'<rect x="{LABEL_WIDTH}" y="{y}" width="{width}" height="{BAR - 2}" '
            f'fill="{COLOURS[which]}"/>'
        )
        yield _text(LABEL_WIDTH + width + 5, y + BAR - 4, shown(value))


def _text(x: float, y: float, text: str, weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" font-weight="{weight}" fill="#222">{escape(text)}</text>'
