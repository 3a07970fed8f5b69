"""RocketMQ's grammar of filters, read into one condition.

    or          = and { OR and }
    and         = equality { AND equality }
    equality    = comparison { (= | <>) comparison | IS [NOT] NULL }
    comparison  = unary { (> | >= | < | <=) unary
                        | [NOT] BETWEEN unary AND unary
                        | [NOT] IN ( text {, text} )
                        | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text }
    unary       = (+ | - | NOT) unary | text | number | TRUE | FALSE | NULL | name | ( or )

As there, the first complete expression counts and what follows it is not read. Nesting,
closures upon closures and operands are bounded, so that no text exhausts the stack.
"""

from collections.abc import Callable
from math import inf
from typing import NamedTuple, ParamSpec, TypeVar

from ..subscription import EXPRESSION_CHARS_MAX
from . import expression
from .conversion import LONG_MAX
from .errors import IllegalFilter
from .expression import Condition, Constant, Operand, Property, Test, WrongOperand
from .tokens import FLOAT, INTEGER, NAME, TEXT, Token, Tokens, text_of

DEPTH_MAX = 64
"""Parentheses, signs and NOTs within one another, and conditions that are compared again."""
TERMS_MAX = 1024
"""Names and literals; those in the parentheses of IN are one set and do not count."""

_WORD_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}
_MAY_BE_NEGATED = expression.SEARCHES | {"BETWEEN", "IN"}
_COMPARISONS = expression.ORDERINGS | _MAY_BE_NEGATED | {"NOT"}
_DIGITS_MAX = len(str(LONG_MAX))

Args = ParamSpec("Args")
Built = TypeVar("Built", bound=Operand)


class Parsed(NamedTuple):
    test: Test
    names: frozenset[str]
    unread: str


def parse(text: str) -> Parsed:
    if len(text) > EXPRESSION_CHARS_MAX:
        reason = f"{len(text)} characters; {EXPRESSION_CHARS_MAX} are allowed"
        raise IllegalFilter(reason, EXPRESSION_CHARS_MAX)
    return Parser(text).parse()


class Parser:
    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)
        self._names: set[str] = set()
        self._depth = 0
        self._terms = 0

    def parse(self) -> Parsed:
        first = self._tokens.peek()
        condition = _built(first, expression.as_condition, self._or())
        return Parsed(condition.evaluate, frozenset(self._names), self._tokens.rest())

    def _or(self) -> Operand:
        return self._chain("OR", self._and, expression.any_of)

    def _and(self) -> Operand:
        return self._chain("AND", self._equality, expression.all_of)

    def _chain(
        self,
        word: str,
        read: Callable[[], Operand],
        join: Callable[[list[Condition]], Condition],
    ) -> Operand:
        """Any number of conditions as one: a long OR is no deeper than a short one."""
        first = self._tokens.peek()
        operand = read()
        if self._tokens.peek().kind != word:
            return operand
        conditions = [_built(first, expression.as_condition, operand)]
        while self._tokens.peek().kind == word:
            self._tokens.take()
            at = self._tokens.peek()
            conditions.append(_built(at, expression.as_condition, read()))
        return _built(first, join, conditions)

    def _equality(self) -> Operand:
        left = self._comparison()
        while (token := self._tokens.peek()).kind in {"=", "<>", "IS"}:
            self._tokens.take()
            if token.kind == "IS":
                left = self._nullness(token, left)
            else:
                left = _built(token, expression.equal, left, self._comparison())
                if token.kind == "<>":
                    left = _built(token, expression.opposite, left)
        return left

    def _nullness(self, word: Token, left: Operand) -> Condition:
        condition = _built(word, expression.is_null, left)
        token = self._tokens.take_any(frozenset({"NULL", "NOT"}), "NULL or NOT NULL")
        if token.kind == "NULL":
            return condition
        self._tokens.take_one("NULL")
        return _built(word, expression.opposite, condition)

    def _comparison(self) -> Operand:
        left = self._unary()
        while (token := self._tokens.peek()).kind in _COMPARISONS:
            self._tokens.take()
            left = self._compared(left, token)
        return left

    def _compared(self, left: Operand, token: Token) -> Condition:
        if token.kind in expression.ORDERINGS:
            return _built(token, expression.ordered, left, token.kind, self._unary())
        negated = token.kind == "NOT"
        if negated:
            expected = "BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH"
            token = self._tokens.take_any(_MAY_BE_NEGATED, expected)
        if token.kind == "BETWEEN":
            return self._between(left, token, negated)
        if token.kind == "IN":
            return _built(token, expression.member, left, self._texts(), negated=negated)
        part = self._text()
        return _built(token, expression.search, left, token.kind, part, negated=negated)

    def _between(self, value: Operand, word: Token, negated: bool) -> Condition:
        low = self._unary()
        self._tokens.take_one("AND", "the AND of BETWEEN")
        build = expression.not_between if negated else expression.between
        return _built(word, build, value, low, self._unary())

    def _texts(self) -> frozenset[str]:
        self._tokens.take_one("(")
        texts = [self._text()]
        while self._tokens.take_any(frozenset(",)"), ", or )").kind == ",":
            texts.append(self._text())
        return frozenset(texts)

    def _text(self) -> str:
        return text_of(self._tokens.take_one(TEXT, "a text in single quotes"))

    def _unary(self) -> Operand:
        token = self._tokens.take()
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise _too_deep(token)
        operand = self._unary_of(token)
        self._depth -= 1
        return operand

    def _unary_of(self, token: Token) -> Operand:
        if token.kind == "+":
            return self._unary()
        if token.kind == "-":
            return _built(token, expression.negative, self._unary())
        if token.kind == "NOT":
            condition = _built(token, expression.as_condition, self._unary())
            return _built(token, expression.opposite, condition)
        if token.kind == "(":
            operand = self._or()
            self._tokens.take_one(")")
            return operand
        return self._term(token)

    def _term(self, token: Token) -> Operand:
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise IllegalFilter(f"more than {TERMS_MAX} names and literals", token.at)
        if token.kind == NAME:
            self._names.add(token.text)
            return Property(token.text)
        if token.kind == TEXT:
            return Constant(text_of(token))
        if token.kind == INTEGER:
            return Constant(_integer(token))
        if token.kind == FLOAT:
            return Constant(_float(token))
        if token.kind in _WORD_CONSTANTS:
            return Constant(_WORD_CONSTANTS[token.kind])
        raise IllegalFilter(f"expected a name, a literal or (, found {token}", token.at)


def _built(
    token: Token,
    build: Callable[Args, Built],
    *args: Args.args,
    **kwargs: Args.kwargs,
) -> Built:
    """What `build` makes of its operands; the token tells where, should they not fit."""
    try:
        operand = build(*args, **kwargs)
    except WrongOperand as wrong:
        raise IllegalFilter(str(wrong), token.at) from None
    if operand.height > DEPTH_MAX:
        raise _too_deep(token)
    return operand


def _too_deep(token: Token) -> IllegalFilter:
    return IllegalFilter(f"more than {DEPTH_MAX} conditions within one another", token.at)


def _integer(token: Token) -> int:
    digits = token.text.rstrip("lL")
    if len(digits) > _DIGITS_MAX or int(digits) > LONG_MAX:
        raise IllegalFilter(f"{token} is greater than {LONG_MAX}", token.at)
    return int(digits)


def _float(token: Token) -> float:
    number = float(token.text)
    if number in {0.0, inf}:
        # RocketMQ takes no 0.0, either: it must not be below Java's Double.MIN_VALUE.
        raise IllegalFilter(f"{token} is not within 4.9E-324 and 1.8E308", token.at)
    return number
