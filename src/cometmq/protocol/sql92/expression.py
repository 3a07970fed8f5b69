"""What a filter's operators do with their operands, as closures made once per filter.

A condition is True, False or None (unknown), and the three go through AND, OR and NOT as in SQL.
The oddities are RocketMQ's: `1 <> a` holds where `a` is missing while `a <> 1` is unknown,
NOT CONTAINS is False there, and a property alone is never True. Nothing here knows about text positions.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from .conversion import (
    Value,
    compare,
    compare_doubles,
    integer_of,
    to_bool,
    to_double,
)

Lookup = Callable[[str], str | None]
"""The value of the property of that name."""
Evaluate = Callable[[Lookup], Value]
Test = Callable[[Lookup], bool | None]


class WrongOperand(Exception):
    """An operator that RocketMQ refuses to apply to that operand; says why."""


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    height = 0

    def evaluate(self, get: Lookup) -> Value:
        return get(self.name)

    def __str__(self) -> str:
        return f"property {self.name}"


@dataclass(frozen=True, slots=True)
class Constant:
    value: Value
    literal: bool = True
    """False for what a minus gives: RocketMQ checks the types of literals only."""
    height = 0

    def evaluate(self, get: Lookup) -> Value:  # noqa: ARG002 - as the other operands have it
        return self.value

    def __str__(self) -> str:
        if self.value is None:
            return "NULL"
        return str(self.value).upper() if isinstance(self.value, bool) else ascii(self.value)


@dataclass(frozen=True, slots=True)
class Condition:
    evaluate: Test
    height: int
    """How many closures call one another below this one."""

    def __str__(self) -> str:
        return "a condition"


@dataclass(frozen=True, slots=True)
class Negation:
    """A minus before a condition: always unknown, but what fails in the condition still fails."""

    condition: Condition

    @property
    def height(self) -> int:
        return self.condition.height + 1

    def evaluate(self, get: Lookup) -> Value:
        self.condition.evaluate(get)
        return None

    def __str__(self) -> str:
        return "a condition after a minus"


Operand = Property | Constant | Condition | Negation

_ORDER: dict[str, Callable[[int, int], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
# NaN is greater than every number, and no number of a filter is 0.0, which has two signs.
_DOUBLE_ORDER: dict[str, Callable[[float, float], bool]] = {
    ">": lambda value, number: not value <= number,
    ">=": lambda value, number: not value < number,
    "<": operator.lt,
    "<=": operator.le,
}
_MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}
ORDERINGS = frozenset(_ORDER)

_SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
SEARCHES = frozenset(_SEARCHES)


def as_condition(operand: Operand) -> Condition:
    """What stands where a condition must be: at the top, beside AND and OR, behind NOT."""
    if isinstance(operand, Condition):
        return operand
    if isinstance(operand, Property):
        return Condition(_never_true(operand.name), 1)
    if isinstance(operand, Constant) and operand.literal:
        value = operand.value
        if value is None or isinstance(value, bool):
            return Condition(lambda _: value, 1)
    raise WrongOperand(f"expected a condition, found {operand}")


def all_of(conditions: Sequence[Condition]) -> Condition:
    """AND: what stands behind a False one is not looked at, and cannot fail."""
    tests = [condition.evaluate for condition in conditions]

    def test(get: Lookup) -> bool | None:
        answer: bool | None = True
        for each in tests:
            met = each(get)
            if met is False:
                return False
            if met is None:
                answer = None
        return answer

    return _above(test, *conditions)


def any_of(conditions: Sequence[Condition]) -> Condition:
    """OR: what stands behind a True one is not looked at, and cannot fail."""
    tests = [condition.evaluate for condition in conditions]

    def test(get: Lookup) -> bool | None:
        answer: bool | None = False
        for each in tests:
            met = each(get)
            if met:
                return True
            if met is None:
                answer = None
        return answer

    return _above(test, *conditions)


def opposite(condition: Condition) -> Condition:
    """NOT."""
    evaluate = condition.evaluate

    def test(get: Lookup) -> bool | None:
        met = evaluate(get)
        return None if met is None else not met

    return _above(test, condition)


def negative(operand: Operand) -> Operand:
    """A minus; properties are text, so that only literals have a negative."""
    if isinstance(operand, Condition):
        return Negation(operand)
    if isinstance(operand, Negation):
        return operand
    if isinstance(operand, Constant) and _is_number(operand.value):
        return Constant(-operand.value, literal=False)
    return Constant(None, literal=False)


def is_null(operand: Operand) -> Condition:
    evaluate = operand.evaluate
    return _above(lambda get: evaluate(get) is None, operand)


def equal(left: Operand, right: Operand) -> Condition:
    for operand in (left, right):
        if isinstance(operand, Constant) and operand.literal and operand.value is None:
            raise WrongOperand("= and <> do not compare with NULL, IS NULL does")
    if _is_boolean_literal(left) and isinstance(right, Constant) and right.literal:
        if not isinstance(right.value, bool):
            raise WrongOperand(f"{left} cannot be compared with {right}")
    if isinstance(left, Property) and isinstance(right, Constant) and right.value is not None:
        return Condition(_property_equals(left.name, right.value), 1)
    return _above(_equal_values(left.evaluate, right.evaluate), left, right)


def ordered(left: Operand, symbol: str, right: Operand) -> Condition:
    for operand in (left, right):
        _check_ordered(operand, symbol)
    if isinstance(left, Property) and isinstance(right, Constant) and _is_number(right.value):
        return Condition(_property_ordered(left.name, symbol, right.value), 1)
    if isinstance(right, Property) and isinstance(left, Constant) and _is_number(left.value):
        return Condition(_property_ordered(right.name, _MIRRORED[symbol], left.value), 1)
    return _above(_ordered_values(left.evaluate, symbol, right.evaluate), left, right)


def between(value: Operand, low: Operand, high: Operand) -> Condition:
    met = all_of([ordered(value, ">=", low), ordered(value, "<=", high)])
    if isinstance(low, Constant) and isinstance(high, Constant) and low.literal and high.literal:
        if compare(high.value, low.value) < 0:
            raise WrongOperand(f"BETWEEN {low} AND {high}: the smaller one comes first")
    return met


def not_between(value: Operand, low: Operand, high: Operand) -> Condition:
    return any_of([ordered(value, "<", low), ordered(value, ">", high)])


def member(operand: Operand, texts: frozenset[str], *, negated: bool) -> Condition:
    """IN and NOT IN."""
    if not isinstance(operand, Property):
        raise WrongOperand(f"IN needs a property before it, not {operand}")
    name = operand.name

    def test(get: Lookup) -> bool | None:
        text = get(name)
        return None if text is None else (text in texts) is not negated

    return Condition(test, 1)


def search(operand: Operand, word: str, part: str, *, negated: bool) -> Condition:
    """CONTAINS, STARTSWITH, ENDSWITH and their NOT: False without a text, and for an empty part."""
    if not part:
        return Condition(lambda _: False, 1)
    evaluate, found = operand.evaluate, _SEARCHES[word]

    def test(get: Lookup) -> bool:
        text = evaluate(get)
        return isinstance(text, str) and found(text, part) is not negated

    return _above(test, operand)


def _above(test: Test, *operands: Operand) -> Condition:
    return Condition(test, 1 + max(operand.height for operand in operands))


def _is_number(value: Value) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_boolean_literal(operand: Operand) -> bool:
    return isinstance(operand, Constant) and operand.literal and isinstance(operand.value, bool)


def _check_ordered(operand: Operand, symbol: str) -> None:
    wrong = isinstance(operand, Condition) or (
        isinstance(operand, Constant) and operand.literal and not _is_number(operand.value)
    )
    if wrong:
        raise WrongOperand(f"{symbol} compares properties and numbers, not {operand}")


def _never_true(name: str) -> Test:
    return lambda get: None if get(name) is None else False


def _converter(example: str | float) -> Callable[[str], str | float]:
    """How a property's text becomes what it is compared with."""
    if isinstance(example, str):
        return str
    if isinstance(example, bool):
        return to_bool
    return to_double if isinstance(example, float) else integer_of(example)


def _property_equals(name: str, value: str | float) -> Test:
    convert = _converter(value)

    def text_test(get: Lookup) -> bool | None:
        text = get(name)
        return None if text is None else text == value

    def test(get: Lookup) -> bool | None:
        text = get(name)
        return None if text is None else convert(text) == value

    return text_test if isinstance(value, str) else test


def _property_ordered(name: str, symbol: str, number: float) -> Test:
    convert = _converter(number)
    holds = _DOUBLE_ORDER[symbol] if isinstance(number, float) else _ORDER[symbol]

    def test(get: Lookup) -> bool | None:
        text = get(name)
        return None if text is None else holds(convert(text), number)

    return test


def _equal_values(left: Evaluate, right: Evaluate) -> Test:
    def test(get: Lookup) -> bool | None:
        first, second = left(get), right(get)
        if first is None:
            return True if second is None else None
        return second is not None and compare(first, second) == 0

    return test


def _ordered_values(left: Evaluate, symbol: str, right: Evaluate) -> Test:
    holds = _ORDER[symbol]

    def test(get: Lookup) -> bool | None:
        first = left(get)
        second = None if first is None else right(get)
        if first is None or second is None:
            return None
        if isinstance(first, str) and isinstance(second, str):
            return holds(compare_doubles(to_double(first), to_double(second)), 0)
        return holds(compare(first, second), 0)

    return test
