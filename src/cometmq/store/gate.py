"""Who else has a say in what is deleted: one who still needs messages that are old.

The store knows nothing of reasons. It asks for one physical offset, and tells when it goes its own
way, or cannot. All calls come one at a time, from whatever thread keeps house just then.
"""

from typing import Protocol


class Gate(Protocol):
    @property
    def is_ready(self) -> bool:
        """Whether it knows already; before that nothing is deleted."""

    def keep_from(self) -> int | None:
        """Records at this physical offset and behind it are needed; None: none is."""

    def released(self) -> None:
        """Of the files that were due none is needed."""

    def held(self, start: int, end: int) -> None:
        """Files of these physical offsets are due and stay, since they are needed."""

    def overruled(self, start: int, end: int) -> None:
        """A file goes though it is needed: there is no space. It is still there."""


class OpenGate:
    """Nobody needs anything."""

    is_ready = True

    def keep_from(self) -> int | None:
        return None

    def released(self) -> None:
        pass

    def held(self, start: int, end: int) -> None:
        pass

    def overruled(self, start: int, end: int) -> None:
        pass
