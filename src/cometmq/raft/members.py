"""Who belongs to a group: voters, whose majority decides, and learners, who only receive the log.

Ids are used once: a member that lost its disk comes back under a new one, because its old votes
and acknowledgements may still be on their way. Both tuples are sorted, so that two members with
the same people are equal.
"""

from collections.abc import Callable

from msgspec import Struct

from .errors import Refused

MEMBERS_MAX = 32


class Members(Struct, frozen=True):
    voters: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()

    @property
    def everybody(self) -> tuple[str, ...]:
        return self.voters + self.learners

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def is_majority(self, ids: set[str]) -> bool:
        return sum(voter in ids for voter in self.voters) >= self.majority

    def reached_by_majority(self, value_of: Callable[[str], int]) -> int:
        """The greatest number that the values of a majority of voters reach."""
        values = sorted(map(value_of, self.voters), reverse=True)
        return values[self.majority - 1]

    def with_learner(self, member: str) -> "Members":
        if member in self.everybody:
            raise Refused(f"{member} belongs to the group already")
        if len(self.everybody) >= MEMBERS_MAX:
            raise Refused(f"a group has at most {MEMBERS_MAX} members")
        return Members(self.voters, _sorted(*self.learners, member))

    def with_voter(self, member: str) -> "Members":
        if member not in self.learners:
            raise Refused(f"{member} is not a learner; only a learner becomes a voter")
        return Members(_sorted(*self.voters, member), _without(self.learners, member))

    def without(self, member: str) -> "Members":
        if member not in self.everybody:
            raise Refused(f"{member} does not belong to the group")
        if self.voters == (member,):
            raise Refused(f"{member} is the only voter")
        return Members(_without(self.voters, member), _without(self.learners, member))

    def is_one_step_from(self, other: "Members") -> bool:
        """Whether one voter at most came or went: then any majority of one meets any majority of
        the other."""
        return len(set(self.voters) ^ set(other.voters)) <= 1 and bool(self.voters)


def group(*voters: str) -> Members:
    """A group of voters, as a configuration file names them."""
    return Members(_sorted(*voters))


def _sorted(*ids: str) -> tuple[str, ...]:
    return tuple(sorted(ids))


def _without(ids: tuple[str, ...], member: str) -> tuple[str, ...]:
    return tuple(one for one in ids if one != member)
