"""The entries of a queue as they are stored."""

from typing import Any

from cometmq.protocol.admin_headers import QueueEntriesFields
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.scan import queue_key
from cometmq.store.consume_queue import ConsumeQueue
from cometmq.transport.connection import Connection, Handlers, Refusal

from ..bodies import json_response
from ..context import Context

ENTRIES_MAX = 10_000


class QueueEntries:
    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> Handlers:
        return {RequestCode.QUERY_CONSUME_QUEUE: self.entries}

    def entries(self, _: Connection, command: Command) -> Response:
        fields = command.fields(QueueEntriesFields)
        queue = self._context.store.queues.get(queue_key(fields.topic, fields.queue_id))
        if queue is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"{fields.queue_id}@{fields.topic} is not exist!"
            )
        return json_response(
            {
                **self._subscription(fields),
                "maxQueueIndex": queue.max_offset,
                "minQueueIndex": queue.min_offset,
                "queueData": _entries(queue, fields.index, fields.count),
            }
        )

    def _subscription(self, fields: QueueEntriesFields) -> dict[str, Any]:
        group = fields.consumer_group
        if not group:
            return {}
        online = self._context.clients.consumer_group(group)
        found = online.subscriptions.get(fields.topic) if online is not None else None
        if found is None:
            return {"filterData": f"{group}@{fields.topic} is not online!"}
        # There are no compiled filters: "null" is how RocketMQ says so.
        return {"subscriptionData": found, "filterData": "null"}


def _entries(queue: ConsumeQueue, index: int, count: int) -> list[dict[str, Any]]:
    first = max(index, queue.min_offset)
    last = min(index + min(count, ENTRIES_MAX), queue.max_offset)
    found = (queue.entry(offset) for offset in range(first, last))
    return [
        {
            "physicOffset": entry.physical_offset,
            "physicSize": entry.size,
            "tagsCode": entry.tag_code,
            "eval": False,
        }
        for entry in found
        if entry is not None
    ]
