"""What is asked of a member of a Raft group, and what it tells."""

import msgspec

from .headers import Fields


class MemberFields(Fields, rename="camel"):
    member: str = ""
    """An id, `n1`; to be added, with its address: `n3-host:port`."""


class MemberStatus(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    address: str
    """Where the others reach it."""
    votes: bool
    """A learner only receives the log, until it has caught up."""
    stored: int
    """Up to where it has the log, as far as the leader knows."""


class GroupStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The group as the one sees it who was asked."""

    group: str
    member: str
    """Who was asked."""
    leader: str
    """Nobody: empty."""
    serves: bool
    """Whether it takes messages."""
    epoch: int
    confirmed: int
    log_end: int
    members: list[MemberStatus]
