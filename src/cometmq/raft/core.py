"""The Raft core of one member: inputs in, effects out, no I/O, no clock of its own.

Every input brings the time. After each input, `pop` gives out the effects one by one, in the order
and under the conditions that effects.py states. Properties (`may_append`, `confirmed` …) hold for
the moment: whoever reads them acts in the same turn.
"""

import random

from . import voting
from .campaign import Campaign
from .effects import Effect, RestartLog, Role, RoleChanged
from .errors import NotLeader, Refused, require
from .following import Following
from .hard_state import Recovered
from .leadership import Leadership
from .members import Members
from .messages import (
    Accepted,
    Append,
    Message,
    Rejected,
    Restart,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from .progress import NEVER_MS
from .replica import LogReader, Replica
from .replica_log import ReplicaLog
from .settings import RaftSettings

FAR_MS = 1 << 62


class Core:
    def __init__(
        self,
        member: str,
        bootstrap: Members,
        recovered: Recovered,
        reader: LogReader,
        settings: RaftSettings,
        chance: random.Random,
        now_ms: int,
    ) -> None:
        """`bootstrap`: the members of a new group, the same for all of them; nobody for a member
        that joins an existing group. The log, once it has a byte, says it better."""
        log = ReplicaLog(recovered, bootstrap)
        self._replica = Replica(member, settings, chance, reader, log, now_ms)
        self._following = Following(self._replica)
        self._campaign: Campaign | None = None
        self._leadership: Leadership | None = None
        self._patience_ends_ms = 0
        if recovered.state is not None:
            self._replica.epoch, self._replica.vote = recovered.state.epoch, recovered.state.vote
        self._finish_restart()
        self._finish_cut()
        self._be_patient()
        self._told = self._situation()

    # -- what holds now --------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self._replica.epoch

    @property
    def leader(self) -> str | None:
        return self._replica.leader

    @property
    def role(self) -> Role:
        if self._leadership is not None:
            return Role.LEADER
        return Role.FOLLOWER if self._campaign is None else Role.CANDIDATE

    @property
    def log(self) -> ReplicaLog:
        return self._replica.log

    @property
    def confirmed(self) -> int:
        """Bytes before this offset are the same on all members for good. The driver acts on what
        the effects tell, which may be a little less."""
        return self._replica.log.confirmed

    @property
    def members(self) -> Members:
        return self._replica.log.members

    @property
    def is_settled(self) -> bool:
        """Whether this member leads, and what its group's members are is confirmed."""
        return self._leadership is not None and self._leadership.is_settled

    @property
    def may_append(self) -> bool:
        """Whether the driver may write records at the log's end, and tell `appended` of them."""
        return self._leadership is not None and self._leadership.may_append

    @property
    def is_full(self) -> bool:
        """Whether this member found no room, and was not told that there is some again."""
        return self._replica.full

    def stored_by(self, member: str) -> int:
        """How much of the log a member has stored, as far as a leader knows."""
        if member == self._replica.id:
            return self.log.stored
        progress = self._leadership.progress if self._leadership is not None else {}
        return progress[member].stored if member in progress else 0

    @property
    def lease_ends_ms(self) -> int:
        """Until then a read of what is confirmed here sees all that was ever acknowledged."""
        return NEVER_MS if self._leadership is None else self._leadership.lease_ends_ms()

    @property
    def wake_ms(self) -> int:
        """When `tick` is due, if nothing happens before."""
        if self._leadership is not None:
            return self._leadership.beat_ms
        if self._campaign is not None:
            return self._campaign.ends_ms
        return self._patience_ends_ms if self._may_campaign else FAR_MS

    # -- inputs ----------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        self._replica.now_ms = now_ms
        if self._leadership is not None:
            if self._leadership.is_lost:
                self._follow()
            else:
                self._leadership.tick()
        elif self._campaign is not None:
            if now_ms >= self._campaign.ends_ms:
                self._try_to_lead()
        elif now_ms >= self._patience_ends_ms:
            self._try_to_lead()
        self._tell_situation()

    def receive(self, now_ms: int, sender: str, message: Message) -> None:
        self._replica.now_ms = now_ms
        match message:
            case VoteRequest():
                self._on_vote_request(sender, message)
            case VoteReply():
                self._on_vote_reply(sender, message)
            case Append() | Restart():
                self._on_leader(sender, message)
            case Accepted() | Rejected():
                self._on_follower(sender, message)
            case TimeoutNow():
                self._on_timeout_now(sender, message)
        self._tell_situation()

    def appended(self, now_ms: int, end: int) -> None:
        """The driver wrote records, or a mark: the log ends at `end` now."""
        self._replica.now_ms = now_ms
        require(self._leadership is not None, "only a leader appends")
        require(end > self.log.end, f"the log ends at {self.log.end} already, not at {end}")
        self._leading().appended(end)

    def stored(self, now_ms: int, end: int, generation: int) -> None:
        """The log is safe on disk up to `end`, with cuts up to `generation` done before."""
        self._replica.now_ms = now_ms
        if not self.log.store(end, generation):
            return
        if self._leadership is not None:
            self._leadership.on_stored()
        else:
            self._following.on_stored()

    def saved(self, now_ms: int, number: int) -> None:
        """The state of this number is synced."""
        self._replica.now_ms = now_ms
        self._replica.outbox.saved(number)
        if self._leadership is not None:
            self._leadership.feed_all()

    def refused(self, now_ms: int, end: int) -> None:
        """There was no room for a write; the file ends at `end`. Until `room_again` this member
        takes no bytes and does not want to lead."""
        self._replica.now_ms = now_ms
        self._replica.full = True
        if self._leadership is None or self._leadership.marking:
            # A campaign under way has claimed a longer log than there is now.
            self._follow()
        if self._leadership is None:
            self.log.shrink(self._replica.outbox.drop_writes(end))
            self._replica.save()
        self._tell_situation()

    def room_again(self) -> None:
        self._replica.full = False

    def trimmed(self, start: int) -> None:
        """Retention deleted the bytes before `start`, all of them confirmed."""
        self.log.trim(start)

    def transfer(self, now_ms: int, to: str) -> None:
        """Hand over to another voter; `may_append` is false until that has worked or failed."""
        self._replica.now_ms = now_ms
        self._leading().hand_over_to(to)

    def change(self, now_ms: int, members: Members) -> None:
        """Let one member come, go, or become a voter. Done when confirmed reaches beyond the
        stretch that begins with it."""
        self._replica.now_ms = now_ms
        if members == self.members:
            raise Refused("these are the members already")
        self._leading().change(members)

    def pop(self) -> Effect | None:
        return self._replica.outbox.pop()

    # -- elections -------------------------------------------------------------------------------

    def _try_to_lead(self) -> None:
        if not self._may_campaign:
            self._campaign = None
            self._be_patient()
            return
        self._replica.leader = None
        self._run(Campaign(self._replica, trial=True))

    def _elect(self, *, handed_over: bool = False) -> None:
        self._replica.enter(self._replica.epoch + 1, vote=self._replica.id)
        self._run(Campaign(self._replica, trial=False, handed_over=handed_over))

    def _run(self, campaign: Campaign) -> None:
        self._campaign = campaign
        campaign.ask()
        self._look_at_votes()

    def _look_at_votes(self) -> None:
        if self._campaign is None or not self._campaign.is_won:
            return
        if self._campaign.trial:
            self._elect()
        else:
            self._lead()

    def _on_vote_request(self, sender: str, request: VoteRequest) -> None:
        replica = self._replica
        granted = False
        if request.trial:
            granted = voting.would_vote(replica, request)
        elif request.epoch >= replica.epoch and not voting.is_bound(replica, request):
            if request.epoch > replica.epoch:
                self._enter(request.epoch)
            granted = voting.decide(replica, sender, request)
            if granted:
                self._be_patient()
        voting.answer(replica, sender, request, granted)

    def _on_vote_reply(self, sender: str, reply: VoteReply) -> None:
        if not reply.granted and reply.epoch > self.epoch:
            self._enter(reply.epoch)
            settings = self._replica.settings
            self._be_patient(settings.campaign_min_ms, settings.campaign_max_ms)
        elif self._campaign is not None:
            self._campaign.count(sender, reply)
            self._look_at_votes()

    def _on_timeout_now(self, sender: str, message: TimeoutNow) -> None:
        is_meant = message.epoch == self.epoch and sender == self.leader
        if is_meant and self._may_campaign:
            self._elect(handed_over=True)

    # -- roles -----------------------------------------------------------------------------------

    def _on_leader(self, sender: str, message: Append | Restart) -> None:
        if message.epoch < self.epoch:
            self._following.refuse_old_leader(sender)
            return
        if message.epoch > self.epoch:
            self._enter(message.epoch)
        require(self._leadership is None, f"{sender} leads epoch {self.epoch} as well")
        self._campaign = None
        self._replica.leader = sender
        self._be_patient()
        # Before anything is confirmed: nobody who waits for our bytes may take others for them.
        self._tell_situation()
        if isinstance(message, Append):
            self._following.on_append(sender, message)
        else:
            self._following.on_restart(sender, message)

    def _on_follower(self, sender: str, message: Accepted | Rejected) -> None:
        if message.epoch > self.epoch:
            self._enter(message.epoch)
        elif self._leadership is not None and message.epoch == self.epoch:
            if isinstance(message, Accepted):
                self._leadership.on_accepted(sender, message)
            else:
                self._leadership.on_rejected(sender, message)

    def _enter(self, epoch: int) -> None:
        self._follow()
        self._replica.enter(epoch, vote=None)

    def _follow(self) -> None:
        if self._leadership is not None:
            self._leadership.end()
            self._leadership = None
            self._replica.leader = None
        self._campaign = None
        self._be_patient()

    def _lead(self) -> None:
        self._campaign = None
        self._replica.leader = self._replica.id
        self._leadership = Leadership(self._replica)
        self._leadership.tick()

    def _leading(self) -> Leadership:
        if self._leadership is None:
            raise NotLeader(f"the leader is {self.leader or 'not known'}")
        return self._leadership

    # -- helpers of the above --------------------------------------------------------------------

    @property
    def _may_campaign(self) -> bool:
        return self._replica.is_voter and not self._replica.full

    def _be_patient(self, low_ms: int = 0, high_ms: int = 0) -> None:
        settings = self._replica.settings
        low_ms, high_ms = low_ms or settings.election_min_ms, high_ms or settings.election_max_ms
        self._patience_ends_ms = self._replica.by_chance(low_ms, high_ms)

    def _finish_restart(self) -> None:
        """Delete a log that was given up before the last crash."""
        log = self.log
        if log.floor > log.start:
            log.restart(log.floor, log.table.before(log.floor))
            self._replica.outbox.put(RestartLog(log.start, log.generation))

    def _finish_cut(self) -> None:
        """Forget stretches whose bytes a crash took. On disk too, before there are other bytes at
        their offsets."""
        if self.log.table.cut(self.log.end):
            self._replica.save()

    def _situation(self) -> RoleChanged:
        return RoleChanged(self.role, self.epoch, self.leader)

    def _tell_situation(self) -> None:
        now = self._situation()
        if now != self._told:
            self._told = now
            self._replica.outbox.put(now)
