"""What a member must find again after a crash, whatever the log looks like."""

from msgspec import Struct

from .epoch_table import Stretch


class HardState(Struct, frozen=True):
    epoch: int
    """The newest epoch heard of."""
    vote: str | None
    """Whom this member chose in that epoch."""
    floor: int
    """Bytes before this offset are void. A member that starts anew in the middle of the log sets
    it together with the new table: if it dies before its old log is gone, it knows at the start."""
    stretches: tuple[Stretch, ...]
    """The epoch table; never shorter than what the log has bytes of."""


class Recovered(Struct, frozen=True):
    """What a member begins with: files that were verified, cut at the first bad record, synced."""

    state: HardState | None
    """None where there is no file yet."""
    start: int
    end: int
    confirmed: int
    """A lower bound, saved now and then; never beyond what was synced."""
