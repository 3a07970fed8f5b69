"""Requests that move the offsets of groups, or read them all.

A reset is kept until the group's next pull, which is sent to the new place; a pull that waits is
answered at once. `isForce` has no effect, as in RocketMQ since it keeps resets at the broker: an
operator's word holds in both directions.
"""

import logging

import msgspec

from cometmq.protocol.admin_headers import (
    CloneOffsetFields,
    CorrectionOffsetFields,
    ResetOffsetFields,
)
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.message_queue import MessageQueue, encode_body
from cometmq.protocol.scan import queue_key
from cometmq.protocol.topic_config import TopicConfig
from cometmq.transport.connection import Connection, Handlers, Refusal

from ..bodies import json_response
from ..context import Context
from ..delays import Delays

log = logging.getLogger(__name__)
_BEHIND = 2**63 - 1
"""Said of a queue in which a group is behind all others."""


class OffsetRequests:
    def __init__(self, context: Context, delays: Delays) -> None:
        self._context = context
        self._delays = delays

    def handlers(self) -> Handlers:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
            RequestCode.QUERY_CORRECTION_OFFSET: self.correction,
            RequestCode.GET_ALL_DELAY_OFFSET: self.delay_offsets,
        }

    def reset(self, connection: Connection, command: Command) -> Response:
        fields = command.fields(ResetOffsetFields)
        context = self._context
        topic = context.topics.get(fields.topic)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {fields.topic} does not exist")
        if context.groups.get(fields.group) is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {fields.group} does not exist"
            )
        targets = self._targets(fields, topic)
        for queue_id, offset in targets.items():
            context.offsets.reset(fields.group, fields.topic, queue_id, offset)
        context.offsets.save()
        context.waiting_pulls.arrived(queue_key(fields.topic, queue_id) for queue_id in targets)
        log.info("%s: offsets reset: %s: %s", connection.peer, fields, targets)
        table = {MessageQueue(fields.topic, context.config.name, q): o for q, o in targets.items()}
        return Response(body=encode_body({"offsetTable": table}))

    def _targets(self, fields: ResetOffsetFields, topic: TopicConfig) -> dict[int, int]:
        """Where the group is to go on in which queue."""
        if fields.queue_id < 0:
            return {q: self._at_time(fields, q) for q in range(topic.read_queue_nums)}
        if fields.queue_id >= topic.read_queue_nums:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"queue {fields.queue_id}: {fields.topic} has {topic.read_queue_nums} queues",
            )
        if fields.offset == -1:
            return {fields.queue_id: self._at_time(fields, fields.queue_id)}
        store = self._context.store
        low = store.min_offset(fields.topic, fields.queue_id)
        high = store.max_offset(fields.topic, fields.queue_id)
        if not low <= fields.offset <= high:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {fields.offset} not in consume queue range [{low}-{high}]",
            )
        return {fields.queue_id: fields.offset}

    def _at_time(self, fields: ResetOffsetFields, queue_id: int) -> int:
        store = self._context.store
        if fields.timestamp < 0:
            return store.max_offset(fields.topic, queue_id)
        return store.offset_by_time(fields.topic, queue_id, fields.timestamp)

    def clone(self, connection: Connection, command: Command) -> Response:
        """Let one group go on where another one is."""
        fields = command.fields(CloneOffsetFields)
        context = self._context
        online = context.clients.consumer_group(fields.src_group)
        wanted = online.subscriptions if online is not None and not fields.offline else {}
        topics = [fields.topic] if fields.topic else context.offsets.topics_of(fields.src_group)
        topics = [
            topic
            for topic in topics
            if context.topics.get(topic) is not None and (not wanted or topic in wanted)
        ]
        context.offsets.copy(fields.src_group, fields.dest_group, topics)
        context.offsets.save()
        log.info("%s: offsets copied: %s: %s", connection.peer, fields, topics)
        return Response()

    def correction(self, _: Connection, command: Command) -> Response:
        """The least offsets of all groups of a topic but some."""
        fields = command.fields(CorrectionOffsetFields)
        context = self._context
        left_out = fields.filter_groups.split(",")
        least: dict[int, int] = {}
        for group in context.offsets.groups_of(fields.topic):
            if group in left_out:
                continue
            for queue_id, offset in context.offsets.queues_of(group, fields.topic).items():
                if offset >= context.store.min_offset(fields.topic, queue_id):
                    least[queue_id] = min(offset, least.get(queue_id, offset))
        compared = context.offsets.queues_of(fields.compare_group, fields.topic)
        for queue_id, offset in compared.items():
            if least.get(queue_id, offset) > offset:
                least[queue_id] = _BEHIND
        return json_response({"correctionOffsets": {str(q): o for q, o in least.items()}})

    def delay_offsets(self, _: Connection, __: Command) -> Response:
        """How far the delivery of delayed messages is, level by level."""
        return json_response(msgspec.to_builtins(self._delays.content(), str_keys=True))
