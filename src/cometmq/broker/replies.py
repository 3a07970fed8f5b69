"""Request–reply: an answer is handed to the client that asked, over its own connection.

The client that asks sends an ordinary message with its id in it; whoever consumes that message
sends the answer here. The asker is known as a producer, by its heartbeats.
"""

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Request, Response
from cometmq.protocol.headers import SendFields, SendFieldsLong
from cometmq.protocol.properties import property_value, with_property
from cometmq.transport.connection import Connection, Handlers, Refusal
from cometmq.transport.errors import TransportError

from .context import Context
from .sends import AnyFields, Sends

ASKER = b"REPLY_TO_CLIENT"
PUSHED_AT = b"PUSH_REPLY_TIME"
PUSH_TIMEOUT_S = 3.0


class Replies:
    def __init__(self, context: Context, sends: Sends) -> None:
        self._context = context
        self._sends = sends

    def handlers(self) -> Handlers:
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply_long,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    async def reply(self, connection: Connection, command: Command) -> Response | None:
        return await self._reply(connection, command, command.fields(SendFields))

    async def reply_long(self, connection: Connection, command: Command) -> Response | None:
        return await self._reply(connection, command, command.fields(SendFieldsLong))

    async def _reply(
        self, connection: Connection, command: Command, fields: AnyFields
    ) -> Response | None:
        await self._push(connection, command, fields)
        if self._context.config.store_replies:
            return self._sends.store(connection, command, fields)
        answer = {"msgId": "0", "queueId": str(max(fields.queue_id, 0)), "queueOffset": "0"}
        return Response(fields=answer)

    async def _push(self, connection: Connection, command: Command, fields: AnyFields) -> None:
        asker = (property_value(fields.properties.encode(), ASKER) or b"").decode()
        if not asker:
            raise _failed(f"the reply does not say to whom: it has no {ASKER.decode()}")
        member = self._context.clients.producer(asker)
        if member is None:
            raise _failed(f"the client {asker} is not connected to this broker")
        request = Request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            self._push_fields(connection, fields),
            command.body,
        )
        try:
            answer = await member.connection.request(request, PUSH_TIMEOUT_S)
        except TransportError as error:
            raise _failed(str(error)) from None
        if answer.code != ResponseCode.SUCCESS:
            raise _failed(f"the client {asker} answered {answer.code}: {answer.remark}")

    def _push_fields(self, connection: Connection, fields: AnyFields) -> dict[str, str]:
        now_ms = self._context.clock.now_ms()
        properties = with_property(fields.properties.encode(), PUSHED_AT, b"%d" % now_ms)
        return {
            "producerGroup": fields.producer_group,
            "topic": fields.topic,
            "defaultTopic": fields.default_topic,
            "defaultTopicQueueNums": str(fields.default_topic_queue_nums),
            "queueId": str(fields.queue_id),
            "sysFlag": str(fields.sys_flag),
            "bornTimestamp": str(fields.born_timestamp),
            "flag": str(fields.flag),
            "properties": properties.decode(),
            "reconsumeTimes": str(fields.reconsume_times),
            "unitMode": "false",
            "bornHost": str(connection.peer),
            "storeHost": str(self._context.address),
            "storeTimestamp": str(now_ms),
        }


def _failed(reason: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, f"push reply message to client failed: {reason}")
