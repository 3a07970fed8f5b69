"""Effects on their way out, in order. Nothing passes a state that is not synced yet."""

from collections import deque

from .effects import CutLog, Effect, Mark, RestartLog, SaveState, Send, WriteLog
from .hard_state import HardState

WAITING_MAX = 10_000
"""Behind a disk that hangs, more messages than that are as good as lost."""


class Outbox:
    def __init__(self) -> None:
        self._waiting: deque[Effect] = deque()
        self._newest = 0
        self._synced = 0
        self._given_out = 0

    @property
    def blocked(self) -> bool:
        """Whether an effect put in now would have to wait for a sync."""
        return self._synced < self._newest

    def put(self, effect: Effect) -> None:
        if isinstance(effect, Send) and len(self._waiting) >= WAITING_MAX:
            return
        self._waiting.append(effect)

    def save(self, state: HardState) -> None:
        if self._waiting and isinstance(self._waiting[-1], SaveState):
            # Nothing depends on the one before: this one says it all.
            self._waiting.pop()
        else:
            self._newest += 1
        self._waiting.append(SaveState(self._newest, state))

    def pop(self) -> Effect | None:
        """The next effect to carry out, if any may be now."""
        if not self._waiting or self._synced < self._given_out:
            return None
        effect = self._waiting.popleft()
        if isinstance(effect, SaveState):
            self._given_out = effect.number
        return effect

    def saved(self, number: int) -> None:
        self._synced = max(self._synced, number)

    def drop_marks(self) -> None:
        """A leader that steps down begins no stretch."""
        self._waiting = deque(e for e in self._waiting if not isinstance(e, Mark))

    def drop_writes(self, log_end: int) -> int:
        """Give up all writes, because one was refused; where the log will end."""
        self._waiting = deque(e for e in self._waiting if not isinstance(e, WriteLog))
        for effect in self._waiting:
            if isinstance(effect, CutLog):
                log_end = min(log_end, effect.end)
            elif isinstance(effect, RestartLog):
                log_end = effect.start
        return log_end
