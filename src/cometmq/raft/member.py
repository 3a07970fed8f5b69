"""A member: the core, with its effects carried out in order through the ports.

No I/O and no waiting in here: ports begin what takes time, and its end comes back as an input. One
sync of the log is under way at a time and covers all that was written before it began, so appends
that come meanwhile share the next one.
"""

from .core import Core
from .effects import (
    Confirmed,
    CutLog,
    Effect,
    Mark,
    RestartLog,
    RoleChanged,
    SaveState,
    Send,
    WriteLog,
)
from .members import Members
from .messages import Message
from .ports import Audience, Files, Network, NoRoom


class Member:
    def __init__(self, core: Core, files: Files, network: Network, audience: Audience) -> None:
        self.core = core
        self._files = files
        self._network = network
        self._audience = audience
        self._now_ms = 0
        self._generation = 0
        self._syncing = False
        self._sync_asked_to = files.end

    def start(self, now_ms: int) -> None:
        """Finish what a crash interrupted."""
        self._now_ms = now_ms
        self._settle()

    def tick(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self.core.tick(now_ms)
        self._settle()

    def receive(self, now_ms: int, sender: str, message: Message) -> None:
        self._now_ms = now_ms
        self.core.receive(now_ms, sender, message)
        self._settle()

    def appended(self, now_ms: int) -> None:
        """Records were written at the log's end, as `may_append` allowed."""
        self._now_ms = now_ms
        self.core.appended(now_ms, self._files.end)
        self._settle()

    def synced(self, now_ms: int, end: int, generation: int) -> None:
        self._now_ms = now_ms
        self._syncing = False
        self.core.stored(now_ms, end, generation)
        self._settle()

    def saved(self, now_ms: int, number: int) -> None:
        self._now_ms = now_ms
        self.core.saved(now_ms, number)
        self._settle()

    def no_room(self, now_ms: int) -> None:
        """Records of a leader found no room."""
        self._now_ms = now_ms
        self.core.refused(now_ms, self._files.end)
        self._settle()

    def room_again(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self.core.room_again()
        self._settle()

    def trimmed(self, now_ms: int, start: int) -> None:
        self._now_ms = now_ms
        self.core.trimmed(start)
        self._settle()

    def transfer(self, now_ms: int, to: str) -> None:
        self._now_ms = now_ms
        self.core.transfer(now_ms, to)
        self._settle()

    def change(self, now_ms: int, members: Members) -> None:
        self._now_ms = now_ms
        self.core.change(now_ms, members)
        self._settle()

    def _settle(self) -> None:
        while (effect := self.core.pop()) is not None:
            try:
                self._carry_out(effect)
            except NoRoom:
                self.core.refused(self._now_ms, self._files.end)
        self._sync()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._network.send(effect.to, effect.message)
            case WriteLog():
                self._files.write(effect.offset, effect.data)
            case SaveState():
                self._files.save(effect.state, effect.number)
            case Confirmed():
                self._audience.confirmed(effect.offset)
            case RoleChanged():
                self._audience.role_changed(effect)
            case Mark():
                self.core.appended(self._now_ms, self._files.mark(effect.stretch))
            case CutLog():
                # A write before it may have been refused.
                self._files.cut(min(effect.end, self._files.end))
                self._after_cut(effect.generation)
            case RestartLog():
                self._files.restart(effect.start)
                self._after_cut(effect.generation)

    def _after_cut(self, generation: int) -> None:
        self._generation = generation
        # What a sync under way brings is not counted any more: sync again.
        self._sync_asked_to = 0

    def _sync(self) -> None:
        end = self._files.end
        if not self._syncing and end > self._sync_asked_to:
            self._syncing = True
            self._sync_asked_to = end
            self._files.sync(end, self._generation)
