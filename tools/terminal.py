"""What was typed and printed at a terminal, as a picture in SVG. Pure.

The ground is dark and belongs to the picture, so it reads the same on light and dark pages. Every
line is stretched to a whole number of columns: tables stay in line in whatever font there is.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

_COLUMN: Final = 8.4
_LINE: Final = 20
_MARGIN: Final = 18
_BAR: Final = 32
_COLUMNS_MIN: Final = 72
_COLUMNS_MAX: Final = 120
"""Longer lines go on in the next one, as in a terminal."""
_PROMPT: Final = "$ "
_DOTS: Final = ("#ff6159", "#ffbd2e", "#28c941")
_STYLE: Final = (
    "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "fill:#c9d1d9}.typed{fill:#fff;font-weight:600}.prompt{fill:#7ee787}.title{fill:#8b949e}"
)


class Exchange(NamedTuple):
    """A command and what it printed."""

    command: str
    output: str


def picture(title: str, exchanges: Sequence[Exchange]) -> str:
    lines = [line for exchange in exchanges for line in _lines(exchange)]
    columns = max(_COLUMNS_MIN, *(len(text) for _, text in lines))
    width, height = 2 * _MARGIN + columns * _COLUMN, _BAR + _LINE * len(lines) + _MARGIN
    drawn = [_text(kind, text, number) for number, (kind, text) in enumerate(lines) if text]
    dots = [
        f'<circle cx="{_MARGIN + 4 + 18 * at}" cy="16" r="5.5" fill="{colour}"/>'
        for at, colour in enumerate(_DOTS)
    ]
    told = escape(title, quote=False)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" role="img">',
        f"<title>{told}</title><style>{_STYLE}</style>",
        '<rect width="100%" height="100%" rx="8" fill="#161b22"/>',
        *dots,
        f'<text class="title" x="{width / 2:.0f}" y="21" text-anchor="middle">{told}</text>',
        *drawn,
        "</svg>\n",
    ])  # fmt: skip


def _lines(exchange: Exchange) -> Iterator[tuple[str, str]]:
    yield "typed", _PROMPT + exchange.command
    for line in exchange.output.rstrip("\n").splitlines():
        for begin in range(0, len(line) or 1, _COLUMNS_MAX):
            yield "said", line[begin : begin + _COLUMNS_MAX].rstrip()


def _text(kind: str, line: str, number: int) -> str:
    x, y = float(_MARGIN), _BAR + _LINE * number + 15
    if kind == "said":
        return _span("", line, x, y)
    typed = line.removeprefix(_PROMPT)
    behind = x + len(_PROMPT) * _COLUMN
    return _span("prompt", _PROMPT.rstrip(), x, y) + _span("typed", typed, behind, y)


def _span(kind: str, text: str, x: float, y: int) -> str:
    # Blanks that do not break are not folded by any viewer.
    shown = escape(text, quote=False).replace(" ", "\u00a0")
    kept = f'textLength="{len(text) * _COLUMN:.1f}" lengthAdjust="spacingAndGlyphs"'
    marked = f'class="{kind}" ' if kind else ""
    return f'<text {marked}x="{x:.1f}" y="{y}" {kept}>{shown}</text>'
