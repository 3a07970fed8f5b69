"""What a filter's operators do with their operands, as closures made once per filter.

A condition is True, False or None (unknown), and the three go through AND, OR and NOT as in SQL.
The oddities are RocketMQ's: `1 <> a` holds where `a` is missing while `a <> 1` is unknown,
NOT CONTAINS is False there, and a property alone is never True.
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
from .errors import shown

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
        return f"property {shown(self.name)}"


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
        return shown(self.value) if isinstance(self.value, str) else str(self.value).upper()


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

_ORDER: dict[str, Callable[[int | float, int | float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
# NaN is greater than every number, and no number of a filter is 0.0, which has two signs.
_DOUBLE_ORDER: dict[str, Callable[[int | float, int | float], bool]] = {
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
    if _is_literal(operand) and isinstance(value := operand.value, bool | None):
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
    _check_equal(left, right)
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
    if _is_literal(low) and _is_literal(high) and compare(high.value, low.value) < 0:
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


def _is_literal(operand: Operand) -> TypeGuard[Constant]:
    return isinstance(operand, Constant) and operand.literal


def _check_equal(left: Operand, right: Operand) -> None:
    for operand in (left, right):
        if _is_literal(operand) and operand.value is None:
            raise WrongOperand("= and <> do not compare with NULL, IS NULL does")
    if not (_is_literal(left) and _is_literal(right)):
        return
    if isinstance(left.value, bool) and not isinstance(right.value, bool):
        raise WrongOperand(f"{left} cannot be compared with {right}")


def _check_ordered(operand: Operand, symbol: str) -> None:
    refused = _is_literal(operand) and not _is_number(operand.value)
    if refused or isinstance(operand, Condition):
        raise WrongOperand(f"{symbol} compares properties and numbers, not {operand}")


def _never_true(name: str) -> Test:
    return lambda get: None if get(name) is None else False


def _property_equals(name: str, value: str | int | float) -> Test:
    if isinstance(value, str):
        return _property_is(name, value)
    convert = to_bool if isinstance(value, bool) else _number_like(value)

    def test(get: Lookup) -> bool | None:
        text = get(name)
        return None if text is None else convert(text) == value

    return test


def _property_is(name: str, expected: str) -> Test:
    def test(get: Lookup) -> bool | None:
        text = get(name)
        return None if text is None else text == expected

    return test


def _property_ordered(name: str, symbol: str, number: int | float) -> Test:
    convert = _number_like(number)
    holds = (_DOUBLE_ORDER if isinstance(number, float) else _ORDER)[symbol]

    def test(get: Lookup) -> bool | None:
        text = get(name)
        return None if text is None else holds(convert(text), number)

    return test


def _number_like(example: int | float) -> Callable[[str], int | float]:
    """How a property's text becomes the kind of number that it is compared with."""
    return to_double if isinstance(example, float) else integer_of(example)


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
