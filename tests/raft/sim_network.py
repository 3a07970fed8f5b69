"""A network that loses, delays, doubles and reorders, and can be cut in one direction or both."""

import random
from collections.abc import Callable

from cometmq.raft.messages import Message

Deliver = Callable[[str, str, Message], None]
Schedule = Callable[..., None]


class SimNetwork:
    def __init__(self, chance: random.Random, after: Schedule, deliver: Deliver) -> None:
        self._chance = chance
        self._after = after
        self._deliver = deliver
        self.cut: set[tuple[str, str]] = set()
        self.lost = self.doubled = self.late = 0.0

    def get_rough(self) -> None:
        """Bad weather of some kind, for all links alike."""
        self.lost = self._chance.choice((0.0, 0.02, 0.1, 0.3))
        self.doubled = self._chance.choice((0.0, 0.02, 0.1))
        self.late = self._chance.choice((0.0, 0.02, 0.2))

    def get_calm(self) -> None:
        self.cut.clear()
        self.lost = self.doubled = self.late = 0.0

    def send(self, sender: str, to: str, message: Message) -> None:
        copies = 1 + (self._chance.random() < self.doubled)
        for _ in range(copies):
            if (sender, to) not in self.cut and self._chance.random() >= self.lost:
                self._after(self._delay_us(), self._deliver, sender, to, message)

    def _delay_us(self) -> int:
        if self._chance.random() < self.late:
            return self._chance.randint(5_000, 1_500_000)
        return self._chance.randint(100, 4_000)


def between(one_side: list[str], other_side: list[str]) -> set[tuple[str, str]]:
    """All links between two sides, in both directions."""
    links = {(one, other) for one in one_side for other in other_side}
    return links | {(other, one) for one, other in links}
