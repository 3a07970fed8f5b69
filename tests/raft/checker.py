"""What must hold at every step, whatever happens.

The checker sees all disks at once and remembers the one true log: the bytes that any member was
ever told are confirmed.
"""

from collections.abc import Mapping
from itertools import combinations

from cometmq.raft.effects import Role
from cometmq.raft.messages import Accepted, Message, Rejected, VoteReply

from .records import borders, walk
from .sim_node import Node

QUORUM_US = 2_100_000
"""After so long without answers of a majority a leader must have stepped down."""


class Violation(AssertionError):
    pass


class Checker:
    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self.truth = bytearray()
        self._truth_epoch = 0
        self._leaders: dict[int, str] = {}
        self._complete: set[int] = set()
        self._votes: dict[tuple[str, int], str] = {}
        self._heard_us: dict[tuple[str, str, int], int] = {}
        self._led_us: dict[tuple[str, int], int] = {}
        self.acknowledged = 0
        self.elections = 0

    def on_step(self, node: Node) -> None:
        core, state = node.core, node.disk.state
        # Nothing leaves a member before its state is synced: until then nobody is led by it, and
        # the only voter of a group may have elected itself, crash, and know nothing of it.
        is_saved = state is not None and state.epoch == core.epoch
        if core.role is Role.LEADER and is_saved:
            self._one_leader_an_epoch(node)
            if core.epoch not in self._complete and core.log.end == node.disk.end:
                self._complete.add(core.epoch)
                self._leader_has_everything(node)

    def on_message(self, sender: str, to: str, message: Message) -> None:
        if isinstance(message, VoteReply) and message.granted and not message.trial:
            chosen = self._votes.setdefault((sender, message.epoch), to)
            self._check(chosen == to, f"{sender} votes twice in epoch {message.epoch}")
            state = self._nodes[sender].disk.state
            kept = state is not None and (state.epoch, state.vote) == (message.epoch, to)
            self._check(kept, f"{sender} tells a vote that a crash would take back")

    def on_delivery(self, sender: str, to: str, message: Message, now_us: int) -> None:
        if isinstance(message, Accepted | Rejected):
            self._heard_us[to, sender, message.epoch] = now_us

    def on_started(self, node: Node) -> None:
        """What a member finds after a crash gives every byte its epoch."""
        log, disk = node.core.log, node.disk
        if log.start == disk.start:
            start = disk.start
            for end, epoch in walk(disk.data, start, start, disk.end):
                told = log.table.at(start).epoch
                self._check(told == epoch, f"{node.id}: epoch {epoch}, not {told}, wrote {start}")
                start = end

    def on_confirmed(self, node: Node, before: int) -> None:
        offset, disk = node.confirmed_told, node.disk
        self._check(offset >= before, f"{node.id} takes back what is confirmed")
        self._check(offset <= disk.durable, f"{node.id} confirms what it has not stored")
        start = max(before, disk.start)
        known = min(offset, len(self.truth))
        self._check(
            disk.slice(start, known) == self.truth[start:known],
            f"{node.id} has other bytes than those confirmed before {known}",
        )
        if offset > len(self.truth):
            self._extend(node, offset)

    def on_acknowledged(self, node: Node, start: int, data: bytes) -> None:
        end = start + len(data)
        self._check(
            self.truth[start:end] == data, f"{node.id} acknowledges what is not confirmed: {start}"
        )
        self.acknowledged = max(self.acknowledged, end)

    def _nobody_else_has_a_lease(self, node: Node, end: int) -> None:
        for other in self._nodes.values():
            if other is not node and other.leads and other.core.lease_ends_ms > other.now_ms:
                raise Violation(f"{node.id} confirms {end} while {other.id} has a lease")

    def logs_match(self) -> None:
        """Two logs with the same epoch at a byte are the same up to there."""
        for one, other in combinations(self._nodes.values(), 2):
            if one.member is not None and other.member is not None:
                self._match(one, other)

    def leaders_are_followed(self, now_us: int) -> None:
        for node in self._nodes.values():
            if not node.is_up or not node.leads:
                continue
            epoch, voters = node.core.epoch, node.core.members.voters
            since_us = self._led_us.setdefault((node.id, epoch), now_us)
            recent = [
                voter
                for voter in voters
                if voter == node.id
                or max(since_us, self._heard_us.get((node.id, voter, epoch), 0))
                > now_us - QUORUM_US
            ]
            self._check(len(recent) > len(voters) / 2, f"{node.id} leads, but hears only {recent}")

    def converged(self, leader: Node, nodes: list[Node]) -> bool:
        """Whether all have what the leader has, all of it confirmed."""
        end = leader.disk.end
        return all(
            node.disk.end == end == node.disk.durable == node.confirmed_told for node in nodes
        )

    def _extend(self, node: Node, offset: int) -> None:
        known = len(self.truth)
        start = max(known, node.disk.start)
        self._check(start == known, f"{node.id} confirms up to {offset}, but lacks {known}")
        data = node.disk.slice(known, offset)
        for _ in borders(data, known, known, offset):
            pass
        self._majority_has_stored(node, known, data)
        self._nobody_else_has_a_lease(node, offset)
        self.truth += data
        self._truth_epoch = max(self._truth_epoch, node.core.epoch)

    def _majority_has_stored(self, node: Node, start: int, data: bytes) -> None:
        end = start + len(data)
        having = {
            other.id
            for other in self._nodes.values()
            if (disk := other.disk).durable >= end
            and disk.slice(max(start, disk.start), end) == data[max(disk.start - start, 0) :]
        }
        # News of a confirmation may be overtaken by the next change of members.
        stretches = [s for s in node.core.log.table.stretches if s.start >= end]
        stretches += [node.core.log.table.before(end)]
        self._check(
            any(len(having & set(v)) > len(v) / 2 for v in (s.members.voters for s in stretches)),
            f"{node.id} confirms {start}–{end}, which only {having} have",
        )

    def _one_leader_an_epoch(self, node: Node) -> None:
        epoch = node.core.epoch
        leader = self._leaders.setdefault(epoch, node.id)
        self._check(leader == node.id, f"{leader} and {node.id} both lead epoch {epoch}")

    def _leader_has_everything(self, node: Node) -> None:
        self.elections += 1
        if node.core.epoch < self._truth_epoch:
            return
        start, end = node.disk.start, len(self.truth)
        self._check(
            node.disk.slice(start, end) == self.truth[start:end],
            f"{node.id} leads epoch {node.core.epoch} without all that is confirmed",
        )

    def _match(self, one: Node, other: Node) -> None:
        logs = one.core.log, other.core.log
        if any(n.has_writes_under_way for n in (one, other)):
            return
        start = max(one.disk.start, other.disk.start)
        common = min(one.disk.end, other.disk.end)
        while common > start:
            epochs = [log.table.before(common).epoch for log in logs]
            if epochs[0] == epochs[1]:
                break
            later = logs[epochs[1] > epochs[0]]
            common = min(later.table.before(common).start, common - 1)
        if common > start:
            self._check(
                one.disk.slice(start, common) == other.disk.slice(start, common),
                f"{one.id} and {other.id} differ before {common}, in one epoch",
            )

    def _check(self, condition: bool, what: str) -> None:
        if not condition:
            raise Violation(what)
