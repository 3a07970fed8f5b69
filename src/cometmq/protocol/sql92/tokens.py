"""The words of a filter: keywords, names, literals and symbols, one after the other.

Words are cut off only when the parser asks for them. RocketMQ does not read on behind a
complete expression, so what follows there need not even consist of words.
"""

import re
from typing import NamedTuple

from .errors import IllegalFilter, shown

_SEARCH_WORDS = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})
KEYWORDS = _SEARCH_WORDS | {"NOT", "AND", "OR", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE"}
NAME = "name"
TEXT = "text"
INTEGER = "integer"
FLOAT = "float"
END = "end"

# A line comment needs its line end: in `a > --5` stand two minus signs.
_BETWEEN_WORDS = re.compile(
    r"(?: [ \t\n\r\f] | --[^\n\r]*+(?:\r\n?|\n) | /\*.*?\*/ )*", re.VERBOSE | re.DOTALL
)
_WORD = re.compile(
    rf"""
    (?P<{FLOAT}>    \d+\.\d*(?:e[+-]?\d+)? | \.\d+(?:e[+-]?\d+)? | \d+e[+-]?\d+ )
  | (?P<{INTEGER}>  0 | [1-9]\d*l? )
  | (?P<{TEXT}>     '[^']*(?:''[^']*)*' )
  | (?P<{NAME}>     [a-z_$][a-z0-9_$]* )
  | (?P<symbol>     <> | >= | <= | [=<>(),+-] )
    """,
    re.VERBOSE | re.ASCII | re.IGNORECASE,
)


class Token(NamedTuple):
    kind: str
    """A keyword in capitals, a symbol, or one of the kinds above."""
    text: str
    at: int

    def __str__(self) -> str:
        return "the end" if self.kind == END else shown(self.text)


class Tokens:
    """A filter's words in order, with one of them looked at before it is taken."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._ahead: Token | None = None

    def peek(self) -> Token:
        if self._ahead is None:
            self._ahead = self._cut()
        return self._ahead

    def take(self) -> Token:
        token = self.peek()
        self._ahead = None
        return token

    def take_any(self, kinds: frozenset[str], expected: str) -> Token:
        token = self.take()
        if token.kind not in kinds:
            raise IllegalFilter(f"expected {expected}, found {token}", token.at)
        return token

    def take_one(self, kind: str, expected: str | None = None) -> Token:
        return self.take_any(frozenset((kind,)), expected or kind)

    def rest(self) -> str:
        """The text from the next word on."""
        return self._text[self.peek().at :]

    def _cut(self) -> Token:
        space = _BETWEEN_WORDS.match(self._text, self._at)
        assert space is not None  # it matches nothing, too
        at = space.end()
        if at == len(self._text):
            return Token(END, "", at)
        word = _WORD.match(self._text, at)
        if word is None:
            raise IllegalFilter(_not_a_word(self._text, at), at)
        self._at = word.end()
        return Token(_kind(word), word.group(), at)


def text_of(token: Token) -> str:
    """What a text literal stands for: without its quotes, doubled ones made one."""
    return token.text[1:-1].replace("''", "'")


def _kind(word: re.Match[str]) -> str:
    text = word.group()
    if word.lastgroup == NAME and text.upper() in KEYWORDS:
        return text.upper()
    return text if word.lastgroup == "symbol" else str(word.lastgroup)


def _not_a_word(text: str, at: int) -> str:
    if text[at] == "'":
        return "a text without its closing quote"
    if text.startswith("/*", at):
        return "a comment without its end"
    return f"{shown(text[at])} does not belong into a filter"
