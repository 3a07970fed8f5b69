"""How far queues and groups have come, as brokers tell it in maps by queue."""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from cometmq.protocol.command import Command
from cometmq.protocol.errors import ProtocolError
from cometmq.protocol.message_queue import MessageQueue, by_queue, decode_queue_maps

from ..errors import BadAnswer

T = TypeVar("T")


class QueueStats(msgspec.Struct, frozen=True, rename="camel"):
    """What a queue has: messages from `min_offset` up to but not including `max_offset`."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int = 0
    """When its last message was stored; 0 when there is none."""

    @property
    def messages(self) -> int:
        return self.max_offset - self.min_offset


class TopicStats(msgspec.Struct, frozen=True):
    queues: dict[MessageQueue, QueueStats]
    put_tps: float
    """Messages a second that come in, over the last minute; 0 from brokers before 5.0."""

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues.values())

    @property
    def last_update_timestamp(self) -> int:
        return max((queue.last_update_timestamp for queue in self.queues.values()), default=0)


class QueueProgress(msgspec.Struct, frozen=True, rename="camel"):
    """Where a queue ends and how far a group has come in it."""

    broker_offset: int
    consumer_offset: int
    pull_offset: int = 0
    """Up to where its messages were handed out; 0 from brokers that do not tell."""
    last_timestamp: int = 0
    """When the last message that was consumed had been stored; 0 when there is none."""

    @property
    def lag(self) -> int:
        """Messages that are not consumed yet."""
        return self.broker_offset - self.consumer_offset

    @property
    def in_flight(self) -> int:
        """Messages that are handed out and not consumed yet."""
        return max(0, self.pull_offset - self.consumer_offset)


class GroupProgress(msgspec.Struct, frozen=True):
    queues: dict[MessageQueue, QueueProgress]
    consume_tps: float

    @property
    def lag(self) -> int:
        return sum(queue.lag for queue in self.queues.values())

    @property
    def in_flight(self) -> int:
        return sum(queue.in_flight for queue in self.queues.values())

    @property
    def topics(self) -> list[str]:
        return sorted({queue.topic for queue in self.queues})


class BrokerProgress(msgspec.Struct, frozen=True):
    """All groups of a broker."""

    groups: dict[str, GroupProgress]
    lag: int
    in_flight: int


class _TopicStatsBody(msgspec.Struct, rename="camel"):
    offset_table: dict[str, QueueStats] = {}
    topic_put_tps: float = 0.0


class _ConsumeStatsBody(msgspec.Struct, rename="camel"):
    offset_table: dict[str, QueueProgress] = {}
    consume_tps: float = 0.0


class _BrokerConsumeStatsBody(msgspec.Struct, rename="camel"):
    consume_stats_list: list[dict[str, list[_ConsumeStatsBody]]] = []
    total_diff: int = 0
    total_inflight_diff: int = 0


def topic_stats(answers: Iterable[Command]) -> TopicStats:
    bodies = [decoded_maps(answer, _TopicStatsBody, "topic's stats") for answer in answers]
    queues = {q: s for body in bodies for q, s in queues_in(body.offset_table).items()}
    return TopicStats(_in_order(queues), sum(body.topic_put_tps for body in bodies))


def group_progress(answers: Iterable[Command]) -> GroupProgress:
    return _joined(decoded_maps(answer, _ConsumeStatsBody, "group's stats") for answer in answers)


def broker_progress(answer: Command) -> BrokerProgress:
    body = decoded_maps(answer, _BrokerConsumeStatsBody, "broker's stats")
    groups = {
        group: _joined(stats)
        for listed in body.consume_stats_list
        for group, stats in sorted(listed.items())
    }
    return BrokerProgress(groups, body.total_diff, body.total_inflight_diff)


def decoded_maps(answer: Command, kind: type[T], what: str) -> T:
    try:
        return decode_queue_maps(answer.body, kind, what)
    except ProtocolError as error:
        raise BadAnswer(str(error)) from error


def queues_in(table: dict[str, T]) -> dict[MessageQueue, T]:
    try:
        return by_queue(table)
    except ProtocolError as error:
        raise BadAnswer(str(error)) from error


def _joined(bodies: Iterable[_ConsumeStatsBody]) -> GroupProgress:
    queues: dict[MessageQueue, QueueProgress] = {}
    tps = 0.0
    for body in bodies:
        queues |= queues_in(body.offset_table)
        tps += body.consume_tps
    return GroupProgress(_in_order(queues), tps)


def _in_order(table: dict[MessageQueue, T]) -> dict[MessageQueue, T]:
    return {queue: table[queue] for queue in sorted(table, key=_place)}


def _place(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id
