"""How far queues and groups have come.

Some bodies are maps by queue, which are not JSON: see `protocol.message_queue`.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from cometmq.protocol.admin_headers import (
    BrokerConsumeStatsFields,
    ConsumeStatsFields,
    GroupTopicFields,
)
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.headers import TopicFields
from cometmq.protocol.message_queue import MessageQueue, encode_body
from cometmq.protocol.topic_config import TopicConfig
from cometmq.transport.connection import Connection, Handlers, Refusal

from ..bodies import json_response
from ..context import Context
from ..stats import GROUP_GET_NUMS, TOPIC_PUT_NUMS

NO_TIME = -1


class QueueProgress(msgspec.Struct, rename="camel"):
    """Where a queue ends and how far a group has come in it."""

    broker_offset: int
    consumer_offset: int
    pull_offset: int
    """Up to where its messages have been handed out."""
    last_timestamp: int
    """Store time of the last message that was consumed."""


class ConsumeStats(msgspec.Struct):
    queues: dict[MessageQueue, QueueProgress]
    rate: float

    @property
    def lag(self) -> int:
        return sum(q.broker_offset - q.consumer_offset for q in self.queues.values())

    @property
    def in_flight(self) -> int:
        return sum(q.pull_offset - q.consumer_offset for q in self.queues.values())

    def encode(self) -> bytes:
        return encode_body({"consumeTps": self.rate, "offsetTable": self.queues})


class Progress:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._one_at_a_time = asyncio.Lock()

    def handlers(self) -> Handlers:
        return {
            RequestCode.GET_TOPIC_STATS_INFO: self.topic,
            RequestCode.GET_CONSUME_STATS: self.group,
            RequestCode.GET_BROKER_CONSUME_STATS: self.all_groups,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_span,
        }

    def topic(self, _: Connection, command: Command) -> Response:
        context = self._context
        topic = self._existing(command.fields(TopicFields).topic)
        name = topic.topic_name
        table: dict[MessageQueue, Any] = {}
        for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
            end = context.store.max_offset(name, queue_id)
            table[self._queue(name, queue_id)] = {
                "minOffset": context.store.min_offset(name, queue_id),
                "maxOffset": end,
                "lastUpdateTimestamp": context.store.store_time(name, queue_id, end - 1) or 0,
            }
        rate = self._rate(TOPIC_PUT_NUMS, name)
        return Response(body=encode_body({"offsetTable": table, "topicPutTps": rate}))

    def group(self, _: Connection, command: Command) -> Response:
        fields = command.fields(ConsumeStatsFields)
        group = fields.consumer_group
        named = [name for name in fields.topic_list.split(";") if name]
        if named:
            topics = [self._context.topics.get(name) for name in named]
        else:
            known = [fields.topic] if fields.topic else self._context.offsets.topics_of(group)
            topics = [*self._existing_of(group, known)]
        stats = ConsumeStats({}, 0.0)
        for topic in filter(None, topics):
            found = self._consume_stats(group, topic, topic.read_queue_nums)
            stats.queues |= found.queues
            stats.rate += found.rate
        return Response(body=stats.encode())

    async def all_groups(self, connection: Connection, command: Command) -> Response | None:
        ordered_only = command.fields(BrokerConsumeStatsFields).is_order
        async with self._one_at_a_time:
            return await self._all_groups(connection, ordered_only=ordered_only)

    async def _all_groups(self, connection: Connection, *, ordered_only: bool) -> Response | None:
        """None when the one who asked has left: nobody else wants what it takes so long to get."""
        context = self._context
        topics = context.offsets.topics_by_group()
        groups: list[dict[str, list[msgspec.Raw]]] = []
        lag = in_flight = 0
        for group in context.groups:
            found = [
                self._consume_stats(group.group_name, topic, topic.write_queue_nums)
                for topic in self._existing_of(group.group_name, topics.get(group.group_name, []))
                if topic.order or not ordered_only
            ]
            lag += sum(stats.lag for stats in found)
            in_flight += sum(stats.in_flight for stats in found)
            groups.append({group.group_name: [msgspec.Raw(stats.encode()) for stats in found]})
            await asyncio.sleep(0)  # With many groups it takes long; others want answers too.
            if not connection.is_open:
                return None
        return json_response(
            {
                "brokerAddr": str(context.address),
                "consumeStatsList": groups,
                "totalDiff": lag,
                "totalInflightDiff": in_flight,
            }
        )

    def time_span(self, _: Connection, command: Command) -> Response:
        """From when to when a topic's messages are, and where in that time a group is."""
        fields = command.fields(GroupTopicFields)
        topic = self._existing(fields.topic)
        spans = [
            self._span(fields.group, topic.topic_name, queue_id)
            for queue_id in range(topic.write_queue_nums)
        ]
        return json_response({"consumeTimeSpanSet": spans})

    # -- parts -----------------------------------------------------------------------------------

    def _existing(self, name: str) -> TopicConfig:
        topic = self._context.topics.get(name)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return topic

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._context.config.name, queue_id)

    def _rate(self, name: str, key: str) -> float:
        meter = self._context.stats.find(name, key)
        return meter.minute(self._context.clock.now_ms()).tps if meter is not None else 0.0

    def _may_consume(self, group: str, topic: str) -> bool:
        """Offsets may be left of topics that a group which is online does not want any more."""
        online = self._context.clients.consumer_group(group)
        return online is None or not online.subscriptions or topic in online.subscriptions

    def _existing_of(self, group: str, names: Iterable[str]) -> list[TopicConfig]:
        found = [self._context.topics.get(name) for name in names if self._may_consume(group, name)]
        return [topic for topic in found if topic is not None]

    def _consume_stats(self, group: str, topic: TopicConfig, queues: int) -> ConsumeStats:
        name = topic.topic_name
        table = {
            self._queue(name, queue_id): self._queue_progress(group, name, queue_id)
            for queue_id in range(queues)
        }
        return ConsumeStats(table, self._rate(GROUP_GET_NUMS, f"{name}@{group}"))

    def _queue_progress(self, group: str, topic: str, queue_id: int) -> QueueProgress:
        store, offsets = self._context.store, self._context.offsets
        consumed = offsets.get(group, topic, queue_id) or 0
        pulled = offsets.last_pulled(group, topic, queue_id) or 0
        time_ms = store.store_time(topic, queue_id, consumed - 1) or 0
        end = store.max_offset(topic, queue_id)
        return QueueProgress(end, consumed, max(consumed, pulled), time_ms)

    def _span(self, group: str, topic: str, queue_id: int) -> dict[str, Any]:
        store = self._context.store
        first = store.earliest_time(topic, queue_id)
        end = store.max_offset(topic, queue_id)
        offset = self._context.offsets.get(group, topic, queue_id) or 0
        waiting = store.store_time(topic, queue_id, offset)
        return {
            "messageQueue": self._queue(topic, queue_id),
            "minTimeStamp": first,
            "maxTimeStamp": store.store_time(topic, queue_id, end - 1) or NO_TIME,
            "consumeTimeStamp": store.store_time(topic, queue_id, offset - 1) or first,
            "delayTime": self._context.clock.now_ms() - waiting if waiting is not None else 0,
        }
