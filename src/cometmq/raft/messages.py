"""What members tell one another.

Every message has the sender's epoch. `sent_ms` is the leader's clock and means nothing to others:
they send it back as `echo_ms`, and the leader sees who followed it when. Each kind has its name as
a tag, so that whoever carries messages can tell them apart.
"""

from msgspec import Struct

from .epoch_table import Stretch


class VoteRequest(Struct, frozen=True, tag=True, array_like=True):
    epoch: int
    """The epoch that the candidate wants to lead; with `trial`, would want to."""
    last_epoch: int
    end: int
    trial: bool
    """A pre-vote: would you vote for me? It binds nobody and changes nothing."""
    handed_over: bool = False
    """The leader asked for this election: a voter need not wait until the leader is silent."""


class VoteReply(Struct, frozen=True, tag=True, array_like=True):
    epoch: int
    """The epoch asked for if granted, the voter's own if not."""
    granted: bool
    trial: bool


class Append(Struct, frozen=True, tag=True, array_like=True):
    """Bytes of one stretch, whole records; none: a heartbeat, or a search for the common point."""

    epoch: int
    offset: int
    previous_epoch: int
    """The epoch of the byte before `offset`."""
    stretch: Stretch
    """The stretch that `data` belongs to."""
    data: bytes
    confirmed: int
    sent_ms: int


class Restart(Struct, frozen=True, tag=True, array_like=True):
    """The leader no longer has the bytes that a member needs: begin anew at its first offset."""

    epoch: int
    start: int
    stretch: Stretch
    """The stretch of the last byte before `start`."""
    sent_ms: int


class Accepted(Struct, frozen=True, tag=True, array_like=True):
    epoch: int
    agreed: int
    """Up to here the logs are known to agree."""
    stored: int
    """Up to here they agree and the member's is safe on its disk, as its flush mode says."""
    full: bool
    """The member has no room; it takes no bytes for now."""
    echo_ms: int


class Rejected(Struct, frozen=True, tag=True, array_like=True):
    epoch: int
    offset: int
    """The offset asked about."""
    newest_epoch: int
    """The member's newest epoch that is not newer than the one asked about…"""
    newest_end: int
    """…and where it ends in the member's log: the logs can agree up to here at most."""
    confirmed: int
    """Up to here the member's log is confirmed, so they agree at least up to here."""
    echo_ms: int


class TimeoutNow(Struct, frozen=True, tag=True, array_like=True):
    """The leader hands over: hold an election at once."""

    epoch: int


Message = VoteRequest | VoteReply | Append | Restart | Accepted | Rejected | TimeoutNow
