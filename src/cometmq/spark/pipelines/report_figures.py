"""The figures of a report, as they are printed, drawn and written as JSON. Pure.

Times are milliseconds since 1970, sizes are bytes of bodies as consumers get them.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

BUCKETS_MAX: Final = 120
_SECOND_MS: Final = 1000
_STEPS_S: Final = (1, 10, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)
"""A bar stands for one of these spans, the shortest that gives no more than `BUCKETS_MAX` bars."""


class Spread(msgspec.Struct, frozen=True):
    """How values lie: half of them are not above `p50`, all but one of a hundred not above `p99`.
    Of many values the percentiles are near ones."""

    count: int
    p50: float
    p90: float
    p99: float
    max: float


class TagCount(msgspec.Struct, frozen=True):
    tag: str
    """Empty: messages without one."""
    messages: int


class TopicFigures(msgspec.Struct, frozen=True):
    topic: str
    messages: int
    bytes: int
    queues: int
    """With messages in this time."""
    first_ms: int
    last_ms: int
    size: Spread
    stored_after_ms: Spread
    """From birth to store. A message that was to be delivered later counts with its delay."""
    tags: list[TagCount]
    """The most frequent ones."""
    share_of_tags: int
    """How many messages those are."""


class Series(msgspec.Struct, frozen=True):
    """One value for each bucket."""

    topic: str
    messages: list[int]
    bytes: list[int]


class Timeline(msgspec.Struct, frozen=True):
    start_ms: int
    bucket_ms: int
    buckets: int
    series: list[Series]
    stored_after_p50_ms: list[float | None]
    stored_after_p99_ms: list[float | None]

    def begin_ms(self, number: int) -> int:
        return self.start_ms + number * self.bucket_ms


class QueueLag(msgspec.Struct, frozen=True):
    topic: str
    broker: str
    """Empty where only files were read and they do not tell."""
    queue: int
    end: int
    consumed: int
    consumed_to_ms: int = 0
    """When the last message that was consumed had been stored; 0 when nobody tells."""

    @property
    def lag(self) -> int:
        return max(0, self.end - self.consumed)


class GroupFigures(msgspec.Struct, frozen=True):
    group: str
    lag: int
    queues: list[QueueLag]
    consume_tps: float | None
    """None where only files were read."""
    dead_letters: int | None
    retries: int = 0
    """Messages that came to it once more in this time, of any topic; one counts as often as it
    came."""


class SendTrace(msgspec.Struct, frozen=True):
    """What producers that trace say of a topic."""

    topic: str
    sends: int
    failed: int
    cost_ms: Spread


class ConsumeTrace(msgspec.Struct, frozen=True):
    """What consumers that trace say."""

    group: str
    consumptions: int
    failed: int
    cost_ms: Spread | None
    waited_ms: Spread | None
    """From store to the first attempt to consume; None when no such message was read."""


class Report(msgspec.Struct, frozen=True):
    source: str
    """A NameServer's address or a store's path."""
    made_ms: int
    since_ms: int | None
    until_ms: int | None
    topics: list[TopicFigures]
    timeline: Timeline | None
    """None when there is no message."""
    groups: list[GroupFigures]
    sends: list[SendTrace]
    consumptions: list[ConsumeTrace]
    notes: list[str] = []
    """What could not be told, and why."""

    @property
    def messages(self) -> int:
        return sum(topic.messages for topic in self.topics)

    @property
    def bytes(self) -> int:
        return sum(topic.bytes for topic in self.topics)

    @property
    def lag(self) -> int:
        return sum(group.lag for group in self.groups)


def bucket_ms(first_ms: int, last_ms: int) -> int:
    """How much time a bar stands for, that no more than `BUCKETS_MAX` cover all messages."""
    for step_s in _STEPS_S:
        step = step_s * _SECOND_MS
        if last_ms // step - first_ms // step < BUCKETS_MAX:
            return step
    longest = _STEPS_S[-1] * _SECOND_MS
    return longest * -(-(last_ms // longest - first_ms // longest + 1) // BUCKETS_MAX)


def spread(count: int, values: Sequence[float]) -> Spread:
    """Of the 50th, 90th and 99th percentile and the largest value."""
    return Spread(count, *(float(value) for value in values))
