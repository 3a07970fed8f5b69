"""The tables in docs/compatibility.md that test runs write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

DOCUMENT = Path(__file__).parent.parent / "docs" / "compatibility.md"


def write_table(name: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Put a table between the markers of that name."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, found_begin, rest = DOCUMENT.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise ValueError(f"{DOCUMENT.name} has no place for the table {name}")
    lines = [_line(columns), "|---" * len(columns) + "|", *map(_line, rows)]
    DOCUMENT.write_text(before + "\n".join([begin, "", *lines, "", end]) + after)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
