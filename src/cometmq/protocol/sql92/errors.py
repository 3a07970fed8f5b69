"""What is wrong with a filter's text, and where."""

from ..errors import ProtocolError


class IllegalFilter(ProtocolError):
    """A text that is no SQL92 filter; `at` counts its characters from 0, the message from 1."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(f"SQL92 filter, at character {at + 1}: {reason}")
        self.at = at
