"""Where queues begin and end, and how far groups have come in them."""

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.headers import (
    QueryConsumerOffsetFields,
    QueueFields,
    SearchOffsetFields,
    UpdateConsumerOffsetFields,
)
from cometmq.store.reading import Boundary
from cometmq.transport.connection import Connection, Handlers, Refusal

from .context import Context

_IGNORED = "Offset has been previously reset"
"""Said with success, in RocketMQ's words: the offset stays where an operator has put it."""


class Positions:
    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> Handlers:
        return {
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_time,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all_offsets,
        }

    def max_offset(self, _: Connection, command: Command) -> Response:
        fields = command.fields(QueueFields)
        return _offset(self._context.store.max_offset(fields.topic, fields.queue_id))

    def min_offset(self, _: Connection, command: Command) -> Response:
        fields = command.fields(QueueFields)
        return _offset(self._context.store.min_offset(fields.topic, fields.queue_id))

    def search(self, _: Connection, command: Command) -> Response:
        fields = command.fields(SearchOffsetFields)
        upper = fields.boundary_type.lower() == Boundary.UPPER.value
        boundary = Boundary.UPPER if upper else Boundary.LOWER
        store = self._context.store
        return _offset(
            store.offset_by_time(fields.topic, fields.queue_id, fields.timestamp, boundary)
        )

    def earliest_time(self, _: Connection, command: Command) -> Response:
        fields = command.fields(QueueFields)
        time_ms = self._context.store.earliest_time(fields.topic, fields.queue_id)
        return Response(fields={"timestamp": str(time_ms)})

    def query(self, _: Connection, command: Command) -> Response:
        fields = command.fields(QueryConsumerOffsetFields)
        context = self._context
        offset = context.offsets.get(fields.consumer_group, fields.topic, fields.queue_id)
        if offset is not None:
            return _offset(offset)
        # A new group begins where the queue does, as long as nothing has been lost of it. RocketMQ
        # 5.5 says "not found" for an empty queue, and its clients then miss the first message.
        known = context.topics.get(fields.topic)
        begins_at_zero = context.store.min_offset(fields.topic, fields.queue_id) == 0
        if known is not None and begins_at_zero and fields.set_zero_if_not_found:
            return _offset(0)
        raise Refusal(
            ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first"
        )

    def update(self, _: Connection, command: Command) -> Response:
        fields = command.fields(UpdateConsumerOffsetFields)
        context = self._context
        if context.groups.get(fields.consumer_group) is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"Group {fields.consumer_group} not exist!",
            )
        topic = context.topics.get(fields.topic)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {fields.topic} not exist!")
        queues = max(topic.read_queue_nums, topic.write_queue_nums)
        if not 0 <= fields.queue_id < queues:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queue {fields.queue_id} of {fields.topic}: the topic has {queues} queues",
            )
        if fields.commit_offset < 0:
            return Response()  # Go and Node tell -1 of queues that they got nothing from.
        if context.offsets.is_reset(fields.consumer_group, fields.topic, fields.queue_id):
            return Response(remark=_IGNORED)
        if not context.offsets.commit(
            fields.consumer_group, fields.topic, fields.queue_id, fields.commit_offset
        ):
            raise Refusal(ResponseCode.SYSTEM_BUSY, "too many consumer offsets are kept already")
        return Response()

    def all_offsets(self, _: Connection, __: Command) -> Response:
        tables = msgspec.to_builtins(self._context.offsets.content(), str_keys=True)
        return Response(body=msgspec.json.encode(tables))


def _offset(offset: int) -> Response:
    return Response(fields={"offset": str(offset)})
