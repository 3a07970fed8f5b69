"""Prometheus's text format 0.0.4: families of samples in, text out. Pure.

# HELP name what it is
# TYPE name counter
name{label="value"} 1
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from cometmq.histogram import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, str]
Kind = Literal["counter", "gauge", "histogram"]
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


class Family(NamedTuple):
    name: str
    kind: Kind
    meaning: str
    samples: list[tuple[Labels, float | Histogram]]


def gauge(name: str, meaning: str, value: float, **labels: str) -> Family:
    """A family of one sample."""
    return Family(name, "gauge", meaning, [(labels, value)])


def counter(name: str, meaning: str, value: float, **labels: str) -> Family:
    return Family(name, "counter", meaning, [(labels, value)])


def flag(yes: bool) -> str:
    """Yes or no as a label has it."""
    return "true" if yes else "false"


def encode(found: Iterable[tuple[Family, Labels]]) -> bytes:
    """The whole page. The labels beside a family are for all its samples; where several servers
    have the same family, their samples stand together."""
    by_name: dict[str, list[tuple[Family, Labels]]] = {}
    for family, common in found:
        by_name.setdefault(family.name, []).append((family, common))
    return "".join(line for same in by_name.values() for line in _lines(same)).encode()


def _lines(same: Sequence[tuple[Family, Labels]]) -> Iterator[str]:
    family = same[0][0]
    yield f"# HELP {family.name} {family.meaning.translate(_HELP_ESCAPES)}\n"
    yield f"# TYPE {family.name} {family.kind}\n"
    for one, common in same:
        for labels, value in one.samples:
            everything = _labels({**common, **labels})
            if isinstance(value, Histogram):
                yield from _histogram_lines(family.name, everything, value)
            else:
                yield f"{family.name}{_braces(everything)} {_number(value)}\n"


def _histogram_lines(name: str, labels: str, histogram: Histogram) -> Iterator[str]:
    comma = "," if labels else ""
    below = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        below += count
        yield f'{name}_bucket{{{labels}{comma}le="{_number(bound)}"}} {below}\n'
    yield f"{name}_sum{_braces(labels)} {_number(histogram.total)}\n"
    yield f"{name}_count{_braces(labels)} {below}\n"


def _labels(labels: Labels) -> str:
    return ",".join(
        # Names of clients may hold what UTF-8 cannot say.
        f'{name}="{value.translate(_ESCAPES).encode(errors="replace").decode()}"'
        for name, value in labels.items()
    )


def _braces(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)
