"""A compiled filter: decides from a message's properties whether a consumer wants it.

It is immutable and keeps nothing between two messages, so that one serves many consumers.
A comparison that RocketMQ fails at (a text that is no number) makes the message unwanted.
"""

from collections.abc import Mapping

from ..properties import decode_properties, property_value
from .conversion import Incomparable
from .expression import Test
from .parser import parse

_NAMES_LOOKED_UP_MAX = 8
"""With more names than these one pass over all the properties costs less than a search for each."""


class Filter:
    __slots__ = ("_encoded_names", "_test", "names", "text", "unread")

    def __init__(self, text: str, test: Test, names: frozenset[str], unread: str) -> None:
        self.text = text
        self.names = names
        """The properties that the filter looks at."""
        self.unread = unread
        """What follows the expression, ignored as RocketMQ ignores it: most likely a mistake."""
        self._test = test
        self._encoded_names = [(name, name.encode("ascii")) for name in sorted(names)]

    def matches(self, properties: Mapping[str, str]) -> bool:
        try:
            return self._test(properties.get) is True
        except Incomparable:
            return False

    def matches_encoded(self, properties: bytes) -> bool:
        """The same for properties as records hold them; only those in `names` are decoded."""
        if len(self._encoded_names) > _NAMES_LOOKED_UP_MAX:
            return self.matches(decode_properties(properties))
        found = {}
        for name, encoded_name in self._encoded_names:
            value = property_value(properties, encoded_name)
            if value is not None:
                found[name] = value.decode(errors="replace")
        return self.matches(found)


def compile(text: str) -> Filter:  # noqa: A001 - called as sql92.compile
    """The filter that a text describes. IllegalFilter says where it describes none."""
    return Filter(text, *parse(text))
