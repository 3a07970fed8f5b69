"""Properties' text as Java's numbers and booleans, and Java's order of them.

A text is a number exactly when Integer.valueOf, Long.valueOf or Double.valueOf takes it: `5_0` and
` 5` are no integers, ` 0x1p3d ` is a double. What is none raises Incomparable.
"""

import re
from collections.abc import Callable
from math import copysign, inf, isnan

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

Value = str | bool | int | float | None
"""What stands on a side of an operator. None is SQL's NULL: not there, or not known.

An `int` stands for Java's Integer up to INT_MAX on both sides of 0, and else for its Long:
-2**31 comes from a minus before 2**31, which is a Long.
"""

# None of these looks at a text's characters over and over, however long the text is.
_INTEGER = re.compile(r"([+-]?)(?=\d)0*+(\d{0,19})")
_SHORT_DIGITS = len(str(INT_MAX)) - 1
"""So many digits are within both bounds: most numbers need no closer look."""
_DECIMAL = re.compile(
    r"""
    ( [+-]? (?: \d++ (?:\.\d*+)? | \.\d++ ) (?: [eE][+-]?\d++ )? ) [fFdD]?
  | ( [+-]? (?: NaN | Infinity ) )
    """,
    re.VERBOSE | re.ASCII,
)
_HEXADECIMAL = re.compile(
    r"( [+-]? 0x (?=\.?[0-9a-f]) [0-9a-f]*+ (?:\.[0-9a-f]*+)? p[+-]?\d++ ) [fd]?",
    re.VERBOSE | re.ASCII | re.IGNORECASE,
)
_TRIMMED = "".join(map(chr, range(0x21)))
"""What Java's String.trim takes away."""


class Incomparable(Exception):
    """Two values that RocketMQ fails to compare: the filter as a whole is then not fulfilled."""


def to_int(text: str) -> int:
    """Integer.valueOf."""
    return _bounded(text, INT_MAX)


def to_long(text: str) -> int:
    """Long.valueOf."""
    return _bounded(text, LONG_MAX)


def integer_of(example: int) -> Callable[[str], int]:
    """How a text becomes an integer of the same Java class."""
    return to_int if abs(example) <= INT_MAX else to_long


def to_double(text: str) -> float:
    """Double.valueOf."""
    text = text.strip(_TRIMMED)
    if decimal := _DECIMAL.fullmatch(text):
        return float(decimal[1] or decimal[2])
    if hexadecimal := _HEXADECIMAL.fullmatch(text):
        return _from_hexadecimal(hexadecimal[1])
    raise Incomparable(text)


def to_bool(text: str) -> bool:
    """Boolean.valueOf: all that is not `true` is false."""
    return text.lower() == "true"


def compare(left: Value, right: Value) -> int:
    """Below, at or above 0 as `left` stands to `right`, neither of them None.

    Not symmetric, as in RocketMQ: a text can be compared with a boolean, not a boolean with a text,
    and what has nothing in common with the other side is less than it.
    """
    if isinstance(left, str):
        return _compare_text(left, right)
    if isinstance(right, str):
        if isinstance(left, bool):
            raise Incomparable(right)
        return -_compare_text(right, left)
    if isinstance(left, bool) != isinstance(right, bool):
        return -1
    assert left is not None
    assert right is not None
    if isinstance(left, float) or isinstance(right, float):
        return compare_doubles(float(left), float(right))
    return (left > right) - (left < right)


def compare_doubles(left: float, right: float) -> int:
    """Double.compareTo: -0.0 before 0.0, and NaN equal to itself behind all others."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_rank, right_rank = _rank(left), _rank(right)
    return (left_rank > right_rank) - (left_rank < right_rank)


def _compare_text(left: str, right: Value) -> int:
    if isinstance(right, str):
        return (left > right) - (left < right)
    if isinstance(right, bool):
        return to_bool(left) - right
    if isinstance(right, float):
        return compare_doubles(to_double(left), right)
    assert right is not None
    number = integer_of(right)(left)
    return (number > right) - (number < right)


def _rank(number: float) -> float:
    """Tells apart what Python's `<` and `>` do not."""
    return 2.0 if isnan(number) else copysign(1.0, number)


def _bounded(text: str, most: int) -> int:
    if len(text) <= _SHORT_DIGITS and text.isdecimal() and text.isascii():
        return int(text)
    parts = _INTEGER.fullmatch(text)
    # Java looks at UTF-16 units, none of which is a digit where a character takes two.
    if parts is None or not (text.isascii() or max(text) <= "\uffff"):
        raise Incomparable(text)
    number = int(parts[1] + (parts[2] or "0"))
    if not -most - 1 <= number <= most:
        raise Incomparable(text)
    return number


def _from_hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return -inf if text.startswith("-") else inf
