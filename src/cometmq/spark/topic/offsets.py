"""Offsets of queues as Spark keeps them: text by text, compared as JSON.

    {"@began": {"orders": {"broker-b:0": 0}},
     "orders": {"broker-a:0": 120, "broker-a:1": 97, "broker-b:0": 12}, "payments": {…}}

Pure. Keys are sorted wherever offsets are made, since Spark compares them as text. A batch's end
tells also where the queues began that were new in it: Spark writes it down before it runs the
batch, so a batch that is run again begins where it began, whatever a broker would say by then.
"""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cometmq.protocol.message_queue import MessageQueue

from ..errors import BadOption

Offsets = dict[str, dict[str, int]]
"""By topic, then by `broker:queue`."""
ByQueue = dict[MessageQueue, int]

EARLIEST = -2
LATEST = -1
"""In offsets that a user writes, as in Spark's Kafka source."""
_BEGAN = "@began"
"""No topic can have such a name."""


class QueueRange(NamedTuple):
    """Messages of one queue: from `start` up to, but without, `end`."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def begins_in(self, other: "QueueRange") -> bool:
        """Or right behind it."""
        return self.queue == other.queue and other.start <= self.start <= other.end

    def behind(self, other: "QueueRange | None") -> "QueueRange":
        """What of it is behind another one, if that is where it begins."""
        if other is None or not self.begins_in(other):
            return self
        return self._replace(start=min(self.end, other.end))

    def joined(self, other: "QueueRange | None") -> "QueueRange":
        """Together with another one, if it begins there."""
        if other is None or not self.begins_in(other):
            return self
        return QueueRange(self.queue, other.start, max(self.end, other.end))


class Progress(NamedTuple):
    """How far a stream has come, and where the queues that came with this batch began."""

    ends: ByQueue
    began: ByQueue
    has_begun: bool = True

    def to_json(self) -> dict[str, Any]:
        began = {_BEGAN: to_json(self.began)} if self.began or not self.ends else {}
        return {**began, **to_json(self.ends)} if self.has_begun else {}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "Progress":
        """An offset without anything is that of a stream before its first batch."""
        ends = {topic: queues for topic, queues in told.items() if topic != _BEGAN}
        return cls(from_json(ends), from_json(told.get(_BEGAN, {})), has_begun=bool(told))


def to_json(offsets: Mapping[MessageQueue, int]) -> Offsets:
    told: Offsets = {}
    for queue, offset in sorted(offsets.items(), key=lambda item: order(item[0])):
        told.setdefault(queue.topic, {})[queue_text(queue)] = offset
    return told


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


def limited(
    start: ByQueue,
    end: ByQueue,
    messages_max: int | None,
    bytes_max: int | None = None,
    message_bytes: Mapping[MessageQueue, int] | None = None,
) -> ByQueue:
    """An end with at most so many messages and bytes behind the start, each queue in proportion.

    `message_bytes` is what a message of a queue has on average. Every queue with something to read
    advances, so that none waits for ever: only where the first message of each is too much already,
    it is more.
    """
    ranges = ranges_between(start, end)
    sizes = message_bytes or {}
    total = sum(part.size for part in ranges)
    first_bytes = sum(sizes.get(part.queue, 0) for part in ranges)
    total_bytes = sum(part.size * sizes.get(part.queue, 0) for part in ranges)
    nearer = dict(end)
    for part in ranges:
        share = part.size
        if messages_max is not None and total > messages_max:
            share = min(share, _share(part.size, messages_max, len(ranges), total))
        if bytes_max is not None and total_bytes > bytes_max:
            share = min(share, _share(part.size, bytes_max, first_bytes, total_bytes))
        nearer[part.queue] = part.start + share
    return nearer


def _share(size: int, limit: int, first: int, total: int) -> int:
    """One message of a queue, and of its others the part that the limit leaves when the `first` of
    all queues are taken."""
    return 1 + (size - 1) * max(limit - first, 0) // max(total - first, 1)


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
            count = -(-partitions_min * part.size // total)
        if records_max is not None:
            count = max(count, -(-part.size // records_max))
        pieces += _cut(part, min(count, part.size))
    return pieces


def _cut(part: QueueRange, count: int) -> list[QueueRange]:
    edges = [part.start + part.size * number // count for number in range(count + 1)]
    return [QueueRange(part.queue, begin, end) for begin, end in itertools.pairwise(edges)]
