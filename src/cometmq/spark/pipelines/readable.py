"""Numbers as people read them. Pure."""

import datetime as dt
from typing import Final

DAY_MS: Final = 86_400_000
_SPANS: Final = ((DAY_MS, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
_BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def number(value: float) -> str:
    """1234567 as 1,234,567; small fractions with what counts of them."""
    if value == round(value):
        return f"{round(value):,}"
    return f"{value:,.1f}" if abs(value) >= 1 else f"{value:.2g}"


def short(value: float) -> str:
    """1234567 as 1.2 M, for the marks of a scale."""
    for power, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= power:
            return f"{value / power:.3g} {name}"
    return f"{value:g}"


def size(value: float) -> str:
    for name in _BYTES[:-1]:
        if abs(value) < 1024:
            return f"{value:.3g} {name}" if value < 1000 else f"{value:.0f} {name}"
        value /= 1024
    return f"{value:,.3g} {_BYTES[-1]}"


def span(milliseconds: float) -> str:
    for unit_ms, name in _SPANS:
        if abs(milliseconds) >= unit_ms:
            return f"{milliseconds / unit_ms:.3g} {name}"
    return f"{number(milliseconds)} ms"


def moment(milliseconds: int) -> str:
    return utc(milliseconds).strftime("%Y-%m-%d %H:%M:%S")


def short_moment(milliseconds: int) -> str:
    return utc(milliseconds).strftime("%m-%d %H:%M")


def counted(count: int, noun: str) -> str:
    """1 file, 2,000 files, 3 batches."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{plural if count != 1 else ''}"


def utc(milliseconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
