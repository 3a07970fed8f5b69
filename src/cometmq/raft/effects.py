"""What the core wants done. The order is the contract:

1. Effects are carried out one by one, in the order in which the core gives them out.
2. Behind `SaveState` the core gives out nothing more until it is told that the state is synced. So
   no message leaves before the epoch and the vote that it speaks for are on disk, and no byte is
   written before its stretch is in the saved table: a byte whose epoch is unknown, or wrong after
   a crash, could win an election that it must lose.
3. `WriteLog` and `Mark` are in the file (not yet synced) when the next effect is looked at. Syncing
   is the driver's business; it reports what is stored, together with the generation of the last
   cut before the sync began. What was synced before a cut says nothing about the bytes after it.
4. `CutLog` and `RestartLog` are durable when they return. The table is saved after a cut: a table
   with too many stretches is harmless, one with too few would give old bytes a wrong epoch.
5. `Confirmed` and `RoleChanged` are news. Whoever waits for an append to be confirmed gives up when
   the role changes: the offset may be confirmed later with other bytes.
"""

from enum import Enum

from msgspec import Struct

from .epoch_table import Stretch
from .hard_state import HardState
from .messages import Message


class Role(Enum):
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


class SaveState(Struct, frozen=True):
    number: int
    state: HardState


class WriteLog(Struct, frozen=True):
    offset: int
    data: bytes


class Mark(Struct, frozen=True):
    """Write a record at the log's end that stands for the beginning of a stretch."""

    stretch: Stretch


class CutLog(Struct, frozen=True):
    end: int
    generation: int


class RestartLog(Struct, frozen=True):
    """Delete all of the log and go on at `start`."""

    start: int
    generation: int


class Send(Struct, frozen=True):
    to: str
    message: Message


class Confirmed(Struct, frozen=True):
    offset: int


class RoleChanged(Struct, frozen=True):
    role: Role
    epoch: int
    leader: str | None


Effect = SaveState | WriteLog | Mark | CutLog | RestartLog | Send | Confirmed | RoleChanged
