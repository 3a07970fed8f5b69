"""What a leader does in its epoch: it begins stretches, feeds the others, confirms what a majority
has stored, and watches whether a majority still follows it.

Only offsets that reach into its own epoch are confirmed: older bytes on a majority can still be
replaced by a leader that never saw them, bytes under a record of our own epoch cannot.
"""

from .effects import Mark
from .epoch_table import Stretch
from .errors import Refused
from .members import Members
from .messages import Accepted, Append, Rejected, Restart, TimeoutNow
from .progress import NEVER_MS, Mode, Progress
from .replica import Replica
from .transfer import Transfer


class Leadership:
    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._log = replica.log
        self._log.verified = self._log.end
        self.marking = False
        """A stretch is begun, its first record not written yet: nothing may be appended."""
        self.transfer: Transfer | None = None
        self.progress: dict[str, Progress] = {}
        self.beat_ms = replica.now_ms
        self._elected_ms = replica.now_ms
        self._asked_to_hand_over = False
        self._meet_members()
        self._begin_stretch(self._log.members)

    # -- time ------------------------------------------------------------------------------------

    def tick(self) -> None:
        now_ms = self._replica.now_ms
        if self.transfer is not None and now_ms >= self.transfer.ends_ms:
            self.transfer = None
        if now_ms >= self.beat_ms:
            self.beat_ms = now_ms + self._replica.settings.heartbeat_ms
            self._leave_full_disk()
            for member in self.progress:
                self._remind(member)

    @property
    def is_lost(self) -> bool:
        """Whether no majority has followed for too long."""
        followed_ms = max(self._followed_ms(), self._elected_ms)
        return self._replica.now_ms > followed_ms + self._replica.settings.check_quorum_ms

    def lease_ends_ms(self) -> int:
        """Until then there is no other leader, and what is confirmed here is all there is."""
        if self._asked_to_hand_over or not self._reaches_own_epoch(self._log.confirmed):
            return NEVER_MS
        return self._followed_ms() + self._replica.settings.lease_ms

    def _followed_ms(self) -> int:
        """When a majority was last known to follow, by the clock that sent the heartbeats."""
        return self._log.members.reached_by_majority(self._echo_of)

    def _echo_of(self, voter: str) -> int:
        if voter == self._replica.id:
            return self._replica.now_ms
        return self.progress[voter].echo_ms if voter in self.progress else NEVER_MS

    # -- the log ---------------------------------------------------------------------------------

    @property
    def may_append(self) -> bool:
        ahead = self._log.end - self._log.confirmed
        room = ahead < self._replica.settings.unconfirmed_bytes_max and not self._replica.full
        return room and not self.marking and self.transfer is None

    def appended(self, end: int) -> None:
        self._log.end = self._log.verified = end
        if self.marking:
            self.marking = False
            self._meet_members()
        self.feed_all()

    def on_stored(self) -> None:
        self._confirm()

    def end(self) -> None:
        """Take back a stretch that was begun and has no record yet."""
        if self.marking:
            self._replica.outbox.drop_marks()
            self._log.table.cut(self._log.end)
            self._replica.save()

    def _begin_stretch(self, members: Members) -> None:
        stretch = Stretch(self._replica.epoch, self._log.end, members)
        self.marking = True
        self._replica.begin(stretch)
        self._replica.outbox.put(Mark(stretch))

    def _confirm(self) -> None:
        offset = self._log.members.reached_by_majority(self._stored_of)
        if self._reaches_own_epoch(offset):
            self._replica.confirm(offset)

    def _stored_of(self, voter: str) -> int:
        return self._log.stored if voter == self._replica.id else self.progress[voter].stored

    def _reaches_own_epoch(self, offset: int) -> bool:
        return self._log.table.before(offset).epoch == self._replica.epoch

    # -- the others ------------------------------------------------------------------------------

    def on_accepted(self, member: str, message: Accepted) -> None:
        if member in self.progress:
            self.progress[member].on_accepted(message)
            self._confirm()
            self._feed(member)
            self._hand_over()

    def on_rejected(self, member: str, message: Rejected) -> None:
        if member in self.progress:
            self.progress[member].on_rejected(message)
            self._feed(member)

    def feed_all(self) -> None:
        for member in self.progress:
            self._feed(member)

    def _feed(self, member: str) -> None:
        """Send what the member lacks, as far as its window goes.

        Bytes are read when they are sent, so nothing is sent that would wait for a state."""
        progress = self.progress[member]
        progress.look_at_start()
        if self._replica.outbox.blocked or progress.full:
            return
        if progress.mode is not Mode.STREAM:
            if progress.may_ask():
                self._remind(member)
            return
        while self._send_chunk(member, progress):
            pass

    def _send_chunk(self, member: str, progress: Progress) -> bool:
        """Send the next bytes, if there are any to be sent now."""
        start, settings = progress.next, self._replica.settings
        left = min(self._log.end - start, progress.window_left(settings.window_bytes_max))
        if left <= 0 or not progress.may_send(left, settings.chunk_bytes_max):
            return False
        end = self._log.table.end_of_stretch(start, self._log.end)
        data = self._replica.reader.read(start, end, min(left, settings.chunk_bytes_max))
        if not data:  # Retention has just deleted them.
            return False
        progress.sent(start + len(data))
        self._replica.send(member, self._append(start, data))
        return True

    def _remind(self, member: str) -> None:
        """A heartbeat. It also asks what is unanswered, and finds out whether bytes got lost."""
        progress = self.progress[member]
        progress.look_at_start()
        if progress.mode is Mode.RESTART:
            start = self._log.start
            stretch = self._log.table.before(start)
            message = Restart(self._replica.epoch, start, stretch, self._replica.now_ms)
            self._replica.send(member, message)
        else:
            self._replica.send(member, self._append(progress.next, b""))

    def _append(self, offset: int, data: bytes) -> Append:
        log, replica = self._log, self._replica
        previous = log.table.before(offset).epoch
        stretch = log.table.at(offset)
        return Append(replica.epoch, offset, previous, stretch, data, log.confirmed, replica.now_ms)

    # -- members ---------------------------------------------------------------------------------

    def change(self, members: Members) -> None:
        """Begin a stretch with one member more or less."""
        self._refuse_change(members)
        self._begin_stretch(members)

    def is_caught_up(self, member: str) -> bool:
        progress = self.progress.get(member)
        if progress is None or progress.mode is not Mode.STREAM:
            return False
        return self._log.end - progress.stored <= self._replica.settings.catch_up_bytes

    def _refuse_change(self, members: Members) -> None:
        present = self._log.members
        if self.marking or self.transfer is not None:
            raise Refused("another change is under way")
        if not self.is_settled:
            raise Refused("the last change, or the leader's first record, is not confirmed yet")
        if not members.is_one_step_from(present):
            raise Refused("members come and go one at a time")
        if self._replica.id not in members.voters:
            raise Refused("the leader has to hand over before it leaves")
        if not self._is_followed_by(members):
            raise Refused("no majority of these members answers")
        for voter in set(members.voters) - set(present.voters):
            if not self.is_caught_up(voter):
                raise Refused(f"{voter} has not caught up yet")

    def _is_followed_by(self, members: Members) -> bool:
        echo_ms = members.reached_by_majority(self._echo_of)
        return echo_ms + self._replica.settings.check_quorum_ms >= self._replica.now_ms

    @property
    def is_settled(self) -> bool:
        """Whether the newest stretch, which is of our epoch, is confirmed."""
        return self._log.confirmed > self._log.table.last.start

    def _meet_members(self) -> None:
        others = [m for m in self._log.members.everybody if m != self._replica.id]
        known = self.progress
        self.progress = {m: known[m] if m in known else Progress(self._log) for m in others}

    # -- handing over ----------------------------------------------------------------------------

    def hand_over_to(self, member: str) -> None:
        if member not in self._log.members.voters or member == self._replica.id:
            raise Refused(f"{member} is not another voter of this group")
        if self.marking or self.transfer is not None:
            raise Refused("another change is under way")
        ends_ms = self._replica.now_ms + self._replica.settings.transfer_ms
        self.transfer = Transfer(member, ends_ms)
        self._hand_over()

    def _hand_over(self) -> None:
        if self.transfer is None or self.progress[self.transfer.to].stored < self._log.end:
            return
        # The election that follows breaks the promises that a lease relies on.
        self._asked_to_hand_over = True
        self._replica.send(self.transfer.to, TimeoutNow(self._replica.epoch))

    def _leave_full_disk(self) -> None:
        """A leader that has no room lets one lead that has."""
        if not self._replica.full or self.transfer is not None or self.marking:
            return
        others = [m for m in self._log.members.voters if m in self.progress]
        fit = [m for m in others if not self.progress[m].full]
        if fit:
            self.hand_over_to(max(fit, key=lambda member: self.progress[member].stored))
