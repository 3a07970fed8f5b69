"""The first chart of a report's page as a picture of its own: with its title, colours and legend.
Pure.
"""

import re
from typing import Final

_CHART: Final = re.compile(
    r"<h3>(?P<title>[^<]*)</h3><svg viewBox=\"0 0 (?P<width>\d+) (?P<height>\d+)\"[^>]*>"
    r"(?P<inside>.*?)</svg>",
    re.DOTALL,
)
_LEGEND: Final = re.compile(r'<span class="key (s\d)"></span>([^<]*)</li>')
_RULE: Final = re.compile(r"(?<!\w)\.(?:axis|grid|s\d)\{[^}]*\}")
"""Not those of lines, `.line.s0`: the chart has none."""
_FONT: Final = "text{font-family:system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
_MARGIN: Final = 20
_TOP: Final = 48
_BOTTOM: Final = 40
_KEY: Final = 130
"""From one name of the legend to the next."""


def chart(page: str) -> str:
    found = _CHART.search(page)
    if found is None:
        raise ValueError("the page has no chart: there was no message")
    width, height = int(found["width"]), int(found["height"])
    whole = f"{width + 2 * _MARGIN} {height + _TOP + _BOTTOM}"
    wide, high = whole.split()
    style = _FONT + "".join(_RULE.findall(page))
    keys = dict.fromkeys(_LEGEND.findall(page[found.end() :].partition("</ul>")[0]))
    names = "".join(_key(at, kind, name) for at, (kind, name) in enumerate(keys))
    drawn = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" '
        f'viewBox="0 0 {whole}" role="img">'
        f"<style>{style}</style>"
        '<rect width="100%" height="100%" rx="8" fill="var(--card)"/>'
        f'<text x="{_MARGIN}" y="32" font-size="17" font-weight="600" fill="var(--text)">'
        f"{found['title']}</text>"
        f'<g transform="translate({_MARGIN} {_TOP})">{found["inside"]}</g>'
        f'<g transform="translate({_MARGIN + 64} {_TOP + height + 16})">{names}</g></svg>\n'
    )
    return _with_values(drawn, page)


def _key(at: int, kind: str, name: str) -> str:
    return (
        f'<rect class="{kind}" x="{at * _KEY}" width="11" height="11" rx="3"/>'
        f'<text x="{at * _KEY + 18}" y="10" font-size="13" fill="var(--text)">{name}</text>'
    )


def _with_values(drawn: str, page: str) -> str:
    """The page's variables, of its light dress, put in: not every viewer of pictures has them."""
    root = page.partition(":root{")[2].partition("}")[0]
    for name, value in (one.split(":") for one in root.split(";")):
        drawn = drawn.replace(f"var({name})", value)
    return drawn
