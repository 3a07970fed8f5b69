"""What a command shows: a value for programs, and the same as text and tables for people. Pure.

The name of a field says how people see it: `…_at` is a time in milliseconds since 1970, `…_bytes`
a size, `…_ratio` a share of one. Whatever could steer a terminal is shown escaped.
"""

import dataclasses
import datetime as dt
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

Row = Mapping[str, Any]
_GAP: Final = "  "
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclasses.dataclass(frozen=True)
class Table:
    columns: Sequence[str]
    """Which fields of the rows, in which order."""
    rows: Sequence[Row]
    heading: str = ""


@dataclasses.dataclass(frozen=True)
class View:
    value: Any
    """As JSON."""
    parts: Sequence["Table | str"] = ()
    """For people: lines and tables, one below the other."""
    exit_code: int = 0


def of_rows(rows: Sequence[Row], *columns: str, heading: str = "") -> View:
    return View(rows, [Table(columns, rows, heading)])


def of_fields(fields: Row, heading: str = "") -> View:
    return View(fields, [lines_of(fields, heading)])


def as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode() + "\n"


def as_text(view: View) -> str:
    pieces = [part if isinstance(part, str) else table_text(part) for part in view.parts]
    return "\n".join(piece for piece in pieces if piece)


def lines_of(fields: Row, heading: str = "") -> str:
    """A field a line."""
    width = max((len(name) for name in fields), default=0)
    lines = [f"{title(name):<{width}}{_GAP}{cell(name, v)}" for name, v in fields.items()]
    return "".join(f"{line.rstrip()}\n" for line in ([heading, *lines] if heading else lines))


def table_text(table: Table) -> str:
    heads = [title(name).upper() for name in table.columns]
    body = [[cell(name, row.get(name)) for name in table.columns] for row in table.rows]
    right = [
        all(_is_number(row.get(name)) for row in table.rows) and bool(table.rows)
        for name in table.columns
    ]
    widths = [max(map(width_of, column)) for column in zip(heads, *body, strict=True)]
    lines = [_GAP.join(map(_padded, cells, widths, right)) for cells in (heads, *body)]
    if table.heading:
        lines.insert(0, table.heading)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def title(name: str) -> str:
    for ending in ("_at", "_bytes", "_ratio"):
        name = name.removesuffix(ending)
    return name.replace("_", " ")


def cell(name: str, value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and name.endswith("_at"):
        return moment(value)
    if isinstance(value, int | float) and name.endswith("_bytes"):
        return size(value)
    if isinstance(value, float):
        return f"{value:.1%}" if name.endswith("_ratio") else f"{value:.1f}"
    if isinstance(value, list | tuple):
        return ", ".join(cell("", one) for one in value) or "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={cell('', one)}" for key, one in value.items()) or "-"
    return printable(str(value))


def moment(when_ms: float) -> str:
    """In UTC; 0 and below stand for never."""
    if when_ms <= 0:
        return "-"
    try:
        when = dt.datetime.fromtimestamp(when_ms / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return str(when_ms)
    return f"{when:%Y-%m-%d %H:%M:%S}.{when.microsecond // 1000:03}"


def size(count: float) -> str:
    for unit in _SIZES:
        if abs(count) < 1024 or unit == _SIZES[-1]:
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode()
        for one in text
    )


def width_of(text: str) -> int:
    """In columns of a terminal: Chinese signs take two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 1 + (unicodedata.east_asian_width(one) in "WF")
        for one in text
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _padded(text: str, width: int, right: bool) -> str:
    space = " " * (width - width_of(text))
    return space + text if right else text + space
