"""One attempt to become leader: a trial without consequences, or an election."""

from .messages import VoteReply, VoteRequest
from .replica import Replica


class Campaign:
    def __init__(self, replica: Replica, *, trial: bool, handed_over: bool = False) -> None:
        self._replica = replica
        self.trial = trial
        self.epoch = replica.epoch + 1 if trial else replica.epoch
        self._handed_over = handed_over
        self._granted = {replica.id}
        settings = replica.settings
        self.ends_ms = replica.by_chance(settings.campaign_min_ms, settings.campaign_max_ms)

    def ask(self) -> None:
        replica = self._replica
        last_epoch, end = replica.log.last_epoch, replica.log.end
        request = VoteRequest(self.epoch, last_epoch, end, self.trial, self._handed_over)
        for voter in replica.log.members.voters:
            if voter != replica.id:
                replica.send(voter, request)

    def count(self, voter: str, reply: VoteReply) -> None:
        if reply.granted and reply.trial == self.trial and reply.epoch == self.epoch:
            self._granted.add(voter)

    @property
    def is_won(self) -> bool:
        return self._replica.log.members.is_majority(self._granted)
