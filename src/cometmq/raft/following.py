"""How a member follows: it compares its log with the leader's, cuts what differs, writes what it
lacks, and tells what it has stored."""

from .effects import Confirmed, CutLog, RestartLog, WriteLog
from .messages import Accepted, Append, Rejected, Restart
from .replica import Replica


class Following:
    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._echo_ms = 0
        self._echo_epoch = 0

    def on_append(self, leader: str, message: Append) -> None:
        log = self._replica.log
        self._hear(message.sent_ms)
        if not log.agrees(message.offset, message.previous_epoch):
            self._reject(leader, message)
            return
        log.verify(message.offset)
        if message.data and not self._replica.full:
            self._take(message)
        self._replica.confirm(message.confirmed)
        # Bytes are acknowledged when they are stored. Everything else is answered now.
        if not message.data or self._replica.full or log.stored >= log.verified:
            self._accept(leader)

    def on_restart(self, leader: str, message: Restart) -> None:
        replica = self._replica
        self._hear(message.sent_ms)
        if not replica.log.agrees(message.start, message.stretch.epoch):
            replica.log.restart(message.start, message.stretch)
            # The state first: it says that the old bytes are void, should they survive a crash.
            replica.save()
            replica.outbox.put(RestartLog(message.start, replica.log.generation))
            replica.outbox.put(Confirmed(message.start))
        replica.log.verify(message.start)
        self._accept(leader)

    def on_stored(self) -> None:
        leader = self._replica.leader
        if leader is not None:
            self._accept(leader)

    def refuse_old_leader(self, sender: str) -> None:
        """Let a leader of an older epoch know that its time is over."""
        epoch = self._replica.epoch
        self._replica.send(sender, Rejected(epoch, 0, 0, 0, 0, 0))

    def _hear(self, sent_ms: int) -> None:
        replica = self._replica
        replica.heard_ms = replica.now_ms
        if self._echo_epoch != replica.epoch:
            self._echo_epoch, self._echo_ms = replica.epoch, sent_ms
        self._echo_ms = max(self._echo_ms, sent_ms)

    def _take(self, message: Append) -> None:
        log = self._replica.log
        end = message.offset + len(message.data)
        same = log.same_up_to(message.offset, end, message.stretch.epoch)
        if same < end:
            if same < log.end:
                self._cut(same)
            self._write(message, same)
        log.verify(end)

    def _cut(self, end: int) -> None:
        replica = self._replica
        replica.log.cut(end)
        replica.outbox.put(CutLog(end, replica.log.generation))
        replica.save()

    def _write(self, message: Append, offset: int) -> None:
        replica = self._replica
        data = message.data[offset - message.offset :]
        if replica.log.write(message.stretch, len(data)):
            replica.save()
        replica.outbox.put(WriteLog(offset, data))

    def _accept(self, leader: str) -> None:
        replica, log = self._replica, self._replica.log
        self._replica.send(
            leader,
            Accepted(replica.epoch, log.verified, log.acknowledged, replica.full, self._echo_ms),
        )

    def _reject(self, leader: str, message: Append) -> None:
        replica, log = self._replica, self._replica.log
        epoch, end = log.table.newest_up_to(message.previous_epoch, log.end)
        replica.send(
            leader,
            Rejected(replica.epoch, message.offset, epoch, end, log.confirmed, self._echo_ms),
        )
