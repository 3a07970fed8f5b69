"""Errors that one could make in the core, each in a line or two.

They test the simulation: a mutant that it does not notice within its seeds is a hole in it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cometmq.raft import voting
from cometmq.raft.core import Core
from cometmq.raft.effects import CutLog, Effect, WriteLog
from cometmq.raft.epoch_table import EpochTable
from cometmq.raft.errors import Refused
from cometmq.raft.following import Following
from cometmq.raft.hard_state import HardState
from cometmq.raft.leadership import Leadership
from cometmq.raft.members import Members
from cometmq.raft.messages import Append, VoteRequest
from cometmq.raft.outbox import Outbox
from cometmq.raft.replica import Replica
from cometmq.raft.replica_log import ReplicaLog

from .simulation import HUNT_EVERY

MANY = range(1000)
"""Of the rare ones some begin close to where they are caught today; the bound holds anywhere."""
HUNTS = range(0, 2000, HUNT_EVERY)
"""For errors that show only when several leaders in a row die at the wrong moment."""


@dataclass(frozen=True)
class Mutant:
    name: str
    where: Any
    what: str
    instead: Any
    seeds: range = range(150)


def _do_not_wait(self: Outbox) -> Effect | None:
    return self._waiting.popleft() if self._waiting else None


def _confirm_on_two(self: Members, value_of: Callable[[str], int]) -> int:
    return sorted(map(value_of, self.voters), reverse=True)[: min(2, len(self.voters))][-1]


def _agree_always(self: ReplicaLog, offset: int, previous_epoch: int) -> bool:
    return offset <= self.end


def _reach_any_epoch(self: Leadership, offset: int) -> bool:
    return True


def _keep_divergent_tail(self: ReplicaLog, offset: int, end: int, epoch: int) -> int:
    return min(max(self.end, offset), end)


def _acknowledge_unsynced(self: ReplicaLog) -> int:
    return self.verified


def _always_a_vote_left(replica: Replica, candidate: str) -> bool:
    return True


def _any_log_will_do(replica: Replica, request: VoteRequest) -> bool:
    return True


def _any_step(self: Leadership, members: Members) -> None:
    if self.marking or self.transfer is not None or self._replica.id not in members.voters:
        raise Refused("not now")


def _any_time(self: Leadership) -> bool:
    return True


def _count_old_syncs(self: ReplicaLog, end: int, generation: int) -> bool:
    end = min(end, self.end)
    if end <= self.stored:
        return False
    self.stored = end
    return True


def _cut_without_saving(self: Following, end: int) -> None:
    replica = self._replica
    replica.log.cut(end)
    replica.outbox.put(CutLog(end, replica.log.generation))


def _write_without_saving_epoch(self: Following, message: Append, offset: int) -> None:
    replica = self._replica
    data = message.data[offset - message.offset :]
    replica.log.write(message.stretch, len(data))
    replica.outbox.put(WriteLog(offset, data))


def _trust_leader_beyond_verified(self: ReplicaLog, offset: int) -> bool:
    offset = min(offset, self.stored)
    if offset <= self.confirmed:
        return False
    self.confirmed = offset
    return True


def _never_bound(replica: Replica, request: VoteRequest) -> bool:
    return False


def _never_lost(self: Leadership) -> bool:
    return False


def _forget_vote_in_state(self: Replica) -> None:
    log = self.log
    self.outbox.save(HardState(self.epoch, None, log.floor, log.table.stretches))


def _forget_floor(self: Core) -> None:
    pass


def _cut_by_whatever_comes(self: ReplicaLog, offset: int, end: int, epoch: int) -> int:
    """Whatever comes is taken for the log's end: late messages cut what newer ones brought."""
    return offset


def _keep_verified(self: Replica, epoch: int, vote: str | None) -> None:
    self.epoch, self.vote, self.leader = epoch, vote, None
    self.save()


def _members_of_confirmed(self: ReplicaLog) -> Members:
    return self.table.before(self.confirmed).members


def _keep_stretches(self: EpochTable, log_end: int) -> bool:
    return False


MUTANTS = (
    Mutant("messages do not wait for the state's sync", Outbox, "pop", _do_not_wait),
    Mutant("the vote is not saved", Replica, "save", _forget_vote_in_state),
    Mutant("two are a majority of five", Members, "reached_by_majority", _confirm_on_two),
    Mutant("the epoch before an append is not compared", ReplicaLog, "agrees", _agree_always),
    Mutant(
        "bytes of older epochs are confirmed", Leadership, "_reaches_own_epoch", _reach_any_epoch,
        HUNTS,
    ),
    Mutant("divergent tails stay", ReplicaLog, "same_up_to", _keep_divergent_tail),
    Mutant("late appends cut newer bytes", ReplicaLog, "same_up_to", _cut_by_whatever_comes),
    Mutant(
        "bytes are acknowledged before they are synced", ReplicaLog, "acknowledged",
        property(_acknowledge_unsynced),
    ),
    Mutant("a member votes twice in an epoch", voting, "_has_vote_for", _always_a_vote_left),
    Mutant("votes go to outdated logs", voting, "_may_be_chosen", _any_log_will_do),
    Mutant("members change two at a time", Leadership, "_refuse_change", _any_step, MANY),
    Mutant("members change before the last change is safe", Leadership, "is_settled",
           property(_any_time), range(270, 1270)),
    Mutant("a sync before a cut counts after it", ReplicaLog, "store", _count_old_syncs, MANY),
    Mutant("the table is not saved after a cut", Following, "_cut", _cut_without_saving, HUNTS),
    Mutant("bytes come before their epoch", Following, "_write", _write_without_saving_epoch),
    Mutant(
        "followers confirm what they did not compare", ReplicaLog, "confirm",
        _trust_leader_beyond_verified,
    ),
    Mutant(
        "what agreed with the last leader agrees with the next", Replica, "enter", _keep_verified
    ),
    Mutant("members that hear a leader elect another", voting, "is_bound", _never_bound, MANY),
    Mutant("a leader without followers stays", Leadership, "is_lost", property(_never_lost)),
    Mutant(
        "a restart is forgotten in a crash", Core, "_finish_restart", _forget_floor,
        range(130, 1130),
    ),
    Mutant(
        "members take force when confirmed", ReplicaLog, "members", property(_members_of_confirmed)
    ),
    Mutant("a cut leaves its stretches", EpochTable, "cut", _keep_stretches),
)  # fmt: skip
