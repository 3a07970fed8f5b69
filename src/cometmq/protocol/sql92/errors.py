"""What is wrong with a filter's text, and where."""

from ..errors import ProtocolError

_SHOWN_CHARS_MAX = 32


class IllegalFilter(ProtocolError):
    """A text that is no SQL92 filter; `at` counts its characters from 0, the message from 1."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(f"SQL92 filter, at character {at + 1}: {reason}")
        self.at = at


def shown(text: str) -> str:
    """A piece of the filter for a message, short and printable whatever is in it."""
    return repr(text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "…")
