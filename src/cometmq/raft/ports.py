"""What the driver of a member has to bring: files, a network, and somebody to tell.

The simulation brings simulated ones, a broker real ones; `Member` is the same for both. Times that
go into a member are milliseconds of a clock that never goes back.
"""

from typing import Protocol

from .effects import RoleChanged
from .epoch_table import Stretch
from .hard_state import HardState
from .messages import Message
from .replica import LogReader


class NoRoom(Exception):
    """The disk is full. Nothing of the record or chunk was written."""


class Files(LogReader, Protocol):
    @property
    def end(self) -> int:
        """Where the log ends in the file."""
        ...

    def write(self, offset: int, data: bytes) -> None:
        """Put the leader's bytes at the log's end; raises NoRoom."""
        ...

    def mark(self, stretch: Stretch) -> int:
        """Write a record that stands for the beginning of a stretch, names its epoch and is not
        dispatched to any queue; return the log's new end. Raises NoRoom."""
        ...

    def cut(self, end: int) -> None:
        """Delete the log behind `end`. Durable on return, never to come back."""
        ...

    def restart(self, start: int) -> None:
        """Delete all of the log and begin at `start`. Durable on return."""
        ...

    def sync(self, end: int, generation: int) -> None:
        """Begin to make the log durable up to `end`; then call `Member.synced` with both. With
        asynchronous flush, at once. A failed sync is the member's end: it must not live on."""
        ...

    def save(self, state: HardState, number: int) -> None:
        """Begin to replace the state's file by a new one; when that is synced, call
        `Member.saved`. A failure is the member's end."""
        ...


class Network(Protocol):
    def send(self, to: str, message: Message) -> None:
        """Send if possible, without waiting. What is lost is sent again by the core. `data` of an
        Append is valid during this call only."""
        ...


class Audience(Protocol):
    def role_changed(self, news: RoleChanged) -> None:
        """A leader came, went or changed. Appends that wait to be confirmed fail now."""
        ...

    def confirmed(self, offset: int) -> None:
        """Records before `offset` may be acknowledged, dispatched, served, and deleted when they
        are old enough. Saved now and then, for `Recovered`."""
        ...
