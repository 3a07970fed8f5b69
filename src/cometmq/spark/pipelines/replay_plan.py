"""What a replay sends, in which steps, and where to. Pure.

A replay is cut into steps, one after the other. Each has a piece of every source queue, in order,
and all messages of a source queue go to one target queue: so they stand there in the order in which
they stood. A message's unique id follows from the replay, its step, its source queue and its number
among those; who runs a step again gives the same messages the same ids.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from cometmq.protocol.message_queue import MessageQueue

from ..errors import BadOption
from ..topic.offsets import parse_queue, queue_text

STEP_ROWS: Final = 200_000
"""Messages of a step, about."""
STEP_S: Final = 30.0
"""Of a replay with a rate: about so long does a step take."""


class SourceQueue(msgspec.Struct, frozen=True):
    """Messages of one queue, from offset `start` up to but not including `end`; and where to."""

    topic: str
    broker: str
    """Empty where the source does not tell."""
    queue: int
    start: int
    end: int
    rows: int
    """Fewer than offsets, where a filter chooses."""
    bytes: int
    to: str = ""
    """Topic, and broker:queue."""

    def piece(self, step: int, steps: int) -> tuple[int, int]:
        """The offsets of a step."""
        size = self.end - self.start
        return self.start + size * step // steps, self.start + size * (step + 1) // steps

    @property
    def target(self) -> MessageQueue:
        topic, _, queue = self.to.partition(" ")
        return parse_queue(topic, queue)


class Plan(msgspec.Struct, frozen=True):
    id: str
    """Made anew for each replay; all its unique ids follow from it."""
    asked: str
    """A mark of what was asked for: who goes on asks for the same."""
    queues: list[SourceQueue]
    steps: int
    first_physical: int = 0
    end_physical: int = 0
    """Of a store's log, which is cut by these."""
    since_ms: int | None = None
    until_ms: int | None = None
    """The times by which messages were chosen. Who goes on chooses by the same ones: else a message
    would have another number than before."""

    @property
    def rows(self) -> int:
        return sum(queue.rows for queue in self.queues)

    @property
    def bytes(self) -> int:
        return sum(queue.bytes for queue in self.queues)

    @property
    def topics(self) -> list[str]:
        """Where messages go."""
        return sorted({queue.target.topic for queue in self.queues})

    def physical_piece(self, step: int) -> tuple[int, int]:
        size = self.end_physical - self.first_physical
        return (
            self.first_physical + size * step // self.steps,
            self.first_physical + size * (step + 1) // self.steps,
        )


def steps_for(rows: int, rate: float | None) -> int:
    size = STEP_ROWS if rate is None else min(STEP_ROWS, max(1, int(rate * STEP_S)))
    return max(1, -(-rows // size))


def mark(asked: object) -> str:
    return hashlib.sha256(msgspec.json.encode(asked, order="deterministic")).hexdigest()[:16]


def with_targets(
    queues: Sequence[SourceQueue],
    targets: Mapping[str, Sequence[MessageQueue]],
    to: str,
    *,
    keep_queues: bool,
) -> list[SourceQueue]:
    """Each with where it goes: to queues of its topic in turn, or to that of its own number.
    `targets` has the queues of each topic in their order."""
    counts: dict[str, int] = {}
    placed = []
    for queue in queues:
        topic = to or queue.topic
        number = counts[topic] = counts.get(topic, -1) + 1
        there = targets[topic]
        target = _same(queue, there) if keep_queues else there[number % len(there)]
        placed.append(msgspec.structs.replace(queue, to=f"{topic} {queue_text(target)}"))
    return placed


def _same(queue: SourceQueue, targets: Sequence[MessageQueue]) -> MessageQueue:
    same = [target for target in targets if target.queue_id == queue.queue]
    if not same:
        most = max(target.queue_id for target in targets)
        raise BadOption(
            f"topic {targets[0].topic} has no queue {queue.queue} (0 to {most} are there): give it "
            "more queues, or do not ask for the same ones"
        )
    near = [target for target in same if target.broker_name == queue.broker]
    return (near or same)[0]
