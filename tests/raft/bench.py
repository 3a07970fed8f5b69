"""One core on the bench: say what happened, look at what it wants."""

import random
from collections.abc import Sequence
from typing import TypeVar

from cometmq.raft.core import Core
from cometmq.raft.effects import Effect, Mark, SaveState, Send, WriteLog
from cometmq.raft.epoch_table import Stretch
from cometmq.raft.hard_state import HardState, Recovered
from cometmq.raft.members import Members, group
from cometmq.raft.messages import Append, Message, VoteReply, VoteRequest
from cometmq.raft.settings import RaftSettings

ABC = group("a", "b", "c")
BASE = Stretch(0, 0, ABC)
SETTINGS = RaftSettings(chunk_bytes_max=10, window_bytes_max=30)
Kind = TypeVar("Kind")


class Zeros:
    """A log in which every byte is a record."""

    def read(self, start: int, end: int, bytes_max: int) -> bytes:
        return bytes(min(end - start, bytes_max))


def stretch(epoch: int, start: int, members: Members = ABC) -> Stretch:
    return Stretch(epoch, start, members)


class Bench:
    """Member `a` of `a`, `b` and `c`, with a log made of the given epochs: (epoch, start) …"""

    def __init__(
        self,
        *epochs: tuple[int, int],
        end: int = 0,
        start: int = 0,
        confirmed: int = 0,
        epoch: int | None = None,
        vote: str | None = None,
        members: Members = ABC,
        floor: int = 0,
    ) -> None:
        self.now_ms = 0
        self._saving = 0
        table = (Stretch(0, 0, members), *(stretch(e, at, members) for e, at in epochs))
        newest = epochs[-1][0] if epochs else 0
        state = HardState(newest if epoch is None else epoch, vote, floor, table)
        recovered = Recovered(state, start, end, confirmed)
        self.core = Core("a", members, recovered, Zeros(), SETTINGS, random.Random(1), 0)

    def later(self, delay_ms: int) -> "Bench":
        self.now_ms += delay_ms
        return self

    def hear(self, sender: str, message: Message) -> list[Effect]:
        self.core.receive(self.now_ms, sender, message)
        return self.effects()

    def tick(self) -> list[Effect]:
        self.now_ms = max(self.now_ms, self.core.wake_ms)
        self.core.tick(self.now_ms)
        return self.effects()

    def append(self, count: int) -> list[Effect]:
        self.core.appended(self.now_ms, self.core.log.end + count)
        return self.effects()

    def store(self, end: int, generation: int = 0) -> list[Effect]:
        self.core.stored(self.now_ms, end, generation)
        return self.effects()

    def save(self) -> list[Effect]:
        """Let all states be synced, one by one; what follows them."""
        effects = self.effects()
        while self._saving:
            number, self._saving = self._saving, 0
            self.core.saved(self.now_ms, number)
            effects += self.effects()
        return effects

    def effects(self) -> list[Effect]:
        effects = []
        while (effect := self.core.pop()) is not None:
            effects.append(effect)
            if isinstance(effect, SaveState):
                self._saving = effect.number
            if isinstance(effect, Mark):
                self.core.appended(self.now_ms, self.core.log.end + 1)
        return effects

    def elect(self) -> "Bench":
        """Make it the leader of the next epoch, with the mark of one byte written."""
        self.tick()
        self.hear("b", VoteReply(self.core.epoch + 1, True, True))
        self.save()
        self.hear("b", VoteReply(self.core.epoch, True, False))
        self.save()
        return self


def only(kind: type[Kind], effects: Sequence[Effect]) -> list[Kind]:
    return [effect for effect in effects if isinstance(effect, kind)]


def sent(kind: type[Kind], effects: Sequence[Effect]) -> list[Kind]:
    return [e.message for e in only(Send, effects) if isinstance(e.message, kind)]


def writes(effects: Sequence[Effect]) -> list[tuple[int, int]]:
    return [(e.offset, e.offset + len(e.data)) for e in only(WriteLog, effects)]


def saves(effects: Sequence[Effect]) -> list[HardState]:
    return [e.state for e in only(SaveState, effects)]


def ballot(epoch: int, last_epoch: int, end: int, *, trial: bool = False) -> VoteRequest:
    return VoteRequest(epoch, last_epoch, end, trial)


def append(
    epoch: int,
    offset: int,
    count: int,
    *,
    after: int,
    of: tuple[int, int],
    confirmed: int = 0,
    members: Members = ABC,
) -> Append:
    """`count` bytes of the stretch `of`, behind a byte of the epoch `after`."""
    of_stretch = stretch(*of, members)
    return Append(epoch, offset, after, of_stretch, bytes(count), confirmed, sent_ms=7)
