"""Offsets of queues as Spark keeps them: text by text, compared as JSON.

    {"orders": {"broker-a:0": 120, "broker-a:1": 97}, "payments": {…}}

Pure. Keys are sorted wherever offsets are made, since Spark compares them as text.
"""

import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cometmq.protocol.message_queue import MessageQueue

from .errors import BadOption

Offsets = dict[str, dict[str, int]]
"""By topic, then by `broker:queue`."""
ByQueue = dict[MessageQueue, int]

EARLIEST = -2
LATEST = -1
"""In offsets that a user writes, as in Spark's Kafka source."""


class QueueRange(NamedTuple):
    """Messages of one queue: from `start` up to, but without, `end`."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def to_json(offsets: Mapping[MessageQueue, int]) -> Offsets:
    told: Offsets = {}
    for queue, offset in offsets.items():
        told.setdefault(queue.topic, {})[queue_text(queue)] = offset
    return {topic: dict(sorted(told[topic].items())) for topic in sorted(told)}


def from_json(told: Mapping[str, Mapping[str, int]]) -> ByQueue:
    return {
        parse_queue(topic, text): offset
        for topic, queues in told.items()
        for text, offset in queues.items()
    }


def queue_text(queue: MessageQueue) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"


def parse_queue(topic: str, text: str) -> MessageQueue:
    name, _, number = text.rpartition(":")
    if not name or not number.isdigit():
        raise BadOption(f"{text!r} is no queue of {topic}: broker:number is, as in broker-a:0")
    return MessageQueue(topic, name, int(number))


def ranges_between(start: Mapping[MessageQueue, int], end: ByQueue) -> list[QueueRange]:
    """What lies between two offsets; nothing for a queue that is not in both."""
    return [
        QueueRange(queue, start[queue], stop)
        for queue, stop in sorted(end.items(), key=lambda item: order(item[0]))
        if queue in start and stop > start[queue]
    ]


def order(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


def limited(start: ByQueue, end: ByQueue, messages_max: int) -> ByQueue:
    """An end at most `messages_max` messages behind the start, each queue in proportion.

    Every queue with something to read advances, so that none waits for ever.
    """
    ranges = ranges_between(start, end)
    total = sum(part.size for part in ranges)
    if total <= messages_max:
        return end
    nearer = dict(end)
    for part in ranges:
        share = max(1, part.size * messages_max // total)
        nearer[part.queue] = part.start + min(share, part.size)
    return nearer


def split(
    ranges: Iterable[QueueRange], partitions_min: int, records_max: int | None
) -> list[QueueRange]:
    """The same ranges in at least so many parts, none with more than so many records.

    Parts of one queue are as equal as they can be.
    """
    whole = [part for part in ranges if part.size > 0]
    total = sum(part.size for part in whole)
    pieces: list[QueueRange] = []
    for part in whole:
        count = 1
        if partitions_min > len(whole):
            count = max(1, round(partitions_min * part.size / total))
        if records_max is not None:
            count = max(count, -(-part.size // records_max))
        pieces += _cut(part, min(count, part.size))
    return pieces


def _cut(part: QueueRange, count: int) -> list[QueueRange]:
    edges = [part.start + part.size * number // count for number in range(count + 1)]
    return [QueueRange(part.queue, begin, end) for begin, end in itertools.pairwise(edges)]
