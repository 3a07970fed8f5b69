"""Whether a member gives its vote. What it promises is saved before it is said: see effects.py."""

from .messages import VoteReply, VoteRequest
from .replica import Replica


def would_vote(replica: Replica, request: VoteRequest) -> bool:
    """The answer to a trial: yes to whoever could win and is needed."""
    return (
        request.epoch > replica.epoch
        and not is_bound(replica, request)
        and _may_be_chosen(replica, request)
    )


def is_bound(replica: Replica, request: VoteRequest) -> bool:
    """Whether this member hears a leader and will not help to replace it."""
    return replica.hears_a_leader and not request.handed_over


def decide(replica: Replica, candidate: str, request: VoteRequest) -> bool:
    """Give the vote of the present epoch, or not."""
    assert request.epoch == replica.epoch
    granted = _has_vote_for(replica, candidate) and _may_be_chosen(replica, request)
    if granted and replica.vote is None:
        replica.vote = candidate
        replica.save()
    return granted


def answer(replica: Replica, candidate: str, request: VoteRequest, granted: bool) -> None:
    epoch = request.epoch if granted else replica.epoch
    replica.send(candidate, VoteReply(epoch, granted, request.trial))


def _has_vote_for(replica: Replica, candidate: str) -> bool:
    return replica.vote in (None, candidate)


def _may_be_chosen(replica: Replica, request: VoteRequest) -> bool:
    # Without members this is a newcomer, or one that lost its disk and may have voted before.
    knows_the_group = bool(replica.log.members.voters)
    return knows_the_group and replica.log.is_behind(request.last_epoch, request.end)
