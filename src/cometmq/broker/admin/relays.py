"""Requests that only clients can answer: the broker asks them over the connections they opened.

What a client answers is passed on as it is. One that does not answer in time is said so, and keeps
nobody else waiting.
"""

import asyncio
import logging

import msgspec

from cometmq.protocol.admin_headers import (
    ConsumeDirectlyFields,
    ConsumerStatusFields,
    RelayFields,
)
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Request, Response
from cometmq.protocol.errors import ProtocolError
from cometmq.protocol.message_id import parse_offset_id
from cometmq.protocol.message_queue import decode_queue_numbers, encode_queue_map
from cometmq.transport.connection import Connection, Handlers, Refusal
from cometmq.transport.errors import RequestTimeout, TransportError

from ..clients import ConsumerGroup, Member
from ..context import Context

log = logging.getLogger(__name__)
ANSWER_TIMEOUT_S = 10.0
STATUS_TIMEOUT_S = 5.0
_ANSWERS_REQUESTS = 62
"""Clients from this version on (V3_1_8_SNAPSHOT) answer such requests."""


class Relays:
    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> Handlers:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.consumer_status,
        }

    async def running_info(self, _: Connection, command: Command) -> Response:
        """What a consumer is doing."""
        fields = command.fields(RelayFields)
        member = self._member(fields.consumer_group, fields.client_id)
        request = Request(command.code, command.text_fields(), command.body)
        return await _relay(fields.consumer_group, member, request)

    async def consume_directly(self, _: Connection, command: Command) -> Response:
        """Hand a message of this broker to one consumer, outside of the order of its queue."""
        fields = command.fields(ConsumeDirectlyFields)
        member = self._member(fields.consumer_group, fields.client_id)
        topic = self._context.topics.get(fields.topic)
        group = self._context.groups.get(fields.consumer_group)
        asked = {**command.text_fields(), "brokerName": self._context.config.name}
        if topic is not None:
            asked["topicSysFlag"] = str(topic.topic_sys_flag)
        if group is not None:
            asked["groupSysFlag"] = str(group.group_sys_flag)
        request = Request(command.code, asked, self._record(fields.msg_id))
        return await _relay(fields.consumer_group, member, request)

    async def consumer_status(self, _: Connection, command: Command) -> Response:
        """Where the members of a group say that they are in a topic's queues."""
        fields = command.fields(ConsumerStatusFields)
        group = self._context.clients.consumer_group(fields.group)
        if group is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{fields.group}]",
            )
        request = Request(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            {"topic": fields.topic, "group": fields.group},
        )
        asked = _asked(group, fields.client_addr)
        answers = await asyncio.gather(*(_status(member, request) for member in asked))
        told = {
            member.client_id: msgspec.Raw(encode_queue_map(decode_queue_numbers(answer)))
            for member, answer in zip(asked, answers, strict=True)
            if answer is not None
        }
        body = msgspec.json.encode({"consumerTable": told, "messageQueueTable": {}})
        return Response(body=body)

    def _member(self, group: str, client_id: str) -> Member:
        online = self._context.clients.consumer_group(group)
        member = online.find(client_id) if online is not None else None
        if member is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        if member.version < _ANSWERS_REQUESTS:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{member.version}> too low to finish, please "
                "upgrade it to V3_1_8_SNAPSHOT",
            )
        return member

    def _record(self, message_id: str) -> bytes:
        try:
            _, offset = parse_offset_id(message_id)
        except ProtocolError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        record = self._context.store.record_at(offset)
        if record is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        return bytes(record)


def _asked(group: ConsumerGroup, client_id: str) -> list[Member]:
    return [m for m in group.members.values() if not client_id or m.client_id == client_id]


async def _relay(group: str, member: Member, request: Request) -> Response:
    who = f"consumer <{group}> <{member.client_id}>"
    try:
        answer = await member.connection.request(request, ANSWER_TIMEOUT_S)
    except RequestTimeout as error:
        raise Refusal(ResponseCode.CONSUME_MSG_TIMEOUT, f"{who} Timeout: {error}") from None
    except TransportError as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"invoke {who} Exception: {error}") from None
    return Response(answer.code, answer.remark, answer.text_fields(), answer.body)


async def _status(member: Member, request: Request) -> bytes | None:
    try:
        answer = await member.connection.request(request, STATUS_TIMEOUT_S)
    except TransportError as error:
        log.warning("no consumer status from %s: %s", member.client_id, error)
        return None
    return answer.body if answer.code == ResponseCode.SUCCESS else None
