"""Messages by key, by unique id, and by where they are."""

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.headers import QueryMessageFields, ViewMessageFields
from cometmq.protocol.java import tag_key
from cometmq.protocol.message import StoredMessage
from cometmq.transport.connection import Connection, Handlers, Refusal

from .context import Context

RESULTS_MAX = 64
UNIQUE_RESULTS_MAX = 32
ANSWER_BYTES_MAX = 8 * 1024 * 1024


class Queries:
    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> Handlers:
        return {
            RequestCode.QUERY_MESSAGE: self.by_key,
            RequestCode.VIEW_MESSAGE_BY_ID: self.by_offset,
        }

    def by_key(self, _: Connection, command: Command) -> Response:
        fields = command.fields(QueryMessageFields)
        store = self._context.store
        limit = UNIQUE_RESULTS_MAX if fields.by_unique_key else max(1, fields.max_num)
        messages = store.query(
            fields.topic,
            tag_key(fields.key) if fields.index_type == "T" else fields.key,
            begin_ms=fields.begin_timestamp,
            end_ms=fields.end_timestamp,
            count_max=min(limit, RESULTS_MAX),
        )
        answer_fields = {
            "indexLastUpdateTimestamp": str(store.last_timestamp),
            "indexLastUpdatePhyoffset": str(store.dispatched.value),
        }
        if not messages:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                answer_fields,
            )
        return Response(fields=answer_fields, body=self._records(messages))

    def _records(self, messages: list[StoredMessage]) -> list[memoryview]:
        """As many of the newest messages, as they are stored, as an answer may hold; the oldest
        of them first, as RocketMQ answers."""
        records: list[memoryview] = []
        size = 0
        for message in messages:
            record = self._context.store.record_at(message.physical_offset)
            if record is not None and (not records or size + len(record) <= ANSWER_BYTES_MAX):
                records.append(record)
                size += len(record)
        return records[::-1]

    def by_offset(self, _: Connection, command: Command) -> Response:
        offset = command.fields(ViewMessageFields).offset
        record = self._context.store.record_at(offset)
        if record is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        return Response(body=[record])
