"""How a report looks, in light and in dark."""

from typing import Final

_COLOURS: Final = (
    "#2f6fde", "#e0822b", "#2e9e6b", "#c94f7c", "#8a63d2", "#17a2b8", "#b0892f", "#7a8699",
)  # fmt: skip
"""Apart from each other for most eyes, and readable on both grounds."""

_SERIES: Final = "".join(
    f".s{number}{{fill:{colour};background:{colour}}}.line.s{number}{{stroke:{colour};fill:none}}"
    for number, colour in enumerate(_COLOURS)
)

STYLE: Final = (
    """
:root{--ground:#f6f7f9;--card:#fff;--text:#1c2430;--dim:#5d6b7e;--line:#e2e6ec;--strong:#2f6fde}
@media(prefers-color-scheme:dark){:root{--ground:#12161c;--card:#1b212a;--text:#e4e9f0;
--dim:#94a2b5;--line:#2d3644;--strong:#6ea0ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1120px;margin:0 auto;padding:24px 20px 64px}
h1{font-size:26px;margin:8px 0 0}h2{font-size:19px;margin:0 0 8px}
h3{font-size:15px;margin:16px 0 4px}
p{margin:4px 0 12px;color:var(--dim)}code{font-size:.9em}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:18px 20px;
margin-top:16px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;padding:0;
background:none;border:0}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:10px;
padding:14px 16px}
.tiles b{display:block;font-size:24px;font-weight:650;font-variant-numeric:tabular-nums}
.tiles span{color:var(--dim);font-size:13px}
svg{display:block;width:100%;height:auto;margin:4px 0}
.axis{fill:var(--dim);font-size:12px}.grid{stroke:var(--line);stroke-width:1}
.line{stroke-width:2;stroke-linejoin:round}.hover{fill:transparent}
.hover:hover{fill:var(--text);fill-opacity:.06}g:hover rect{opacity:.8}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;margin:8px 0 0;padding:0;
font-size:13px}
.key{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th{color:var(--dim);font-weight:500;font-size:13px}
th,td{padding:6px 10px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left;padding-left:0}
.texts th,.texts td{text-align:left}
tbody tr:last-child td{border-bottom:0}
.bar{display:inline-block;width:110px;height:9px;border-radius:5px;background:var(--line);
overflow:hidden;vertical-align:middle}
.bar i{display:block;height:100%;background:var(--strong)}
.tag{display:inline-block;border:1px solid var(--line);border-radius:12px;padding:1px 9px;
margin:2px 0;font-size:13px}
.empty{border:1px dashed var(--line);border-radius:8px;padding:18px;text-align:center;margin:8px 0}
details{margin-top:10px}summary{cursor:pointer;color:var(--strong)}
"""
    + _SERIES
)
