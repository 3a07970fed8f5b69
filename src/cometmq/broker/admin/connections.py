"""Who is connected: the members of consumer and producer groups."""

from typing import Any

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.headers import ConsumerGroupFields, ProducerGroupFields
from cometmq.transport.connection import Connection, Handlers, Refusal

from ..bodies import json_response
from ..clients import Member
from ..context import Context


class Connections:
    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> Handlers:
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
        }

    def consumers(self, _: Connection, command: Command) -> Response:
        name = command.fields(ConsumerGroupFields).consumer_group
        group = self._context.clients.consumer_group(name)
        if group is None:
            raise Refusal(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        return json_response(
            {
                "connectionSet": [_connection(member) for member in group.members.values()],
                "subscriptionTable": group.subscriptions,
                "consumeType": group.consume_type,
                "messageModel": group.message_model,
                "consumeFromWhere": group.consume_from_where,
                "subscriptionConflicts": group.conflicts,
            }
        )

    def producers(self, _: Connection, command: Command) -> Response:
        name = command.fields(ProducerGroupFields).producer_group
        members = self._context.clients.producer_groups().get(name)
        if members is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return json_response({"connectionSet": [_connection(member) for member in members]})

    def all_producers(self, _: Connection, __: Command) -> Response:
        groups = self._context.clients.producer_groups()
        return json_response(
            {"data": {name: [_producer(m) for m in members] for name, members in groups.items()}}
        )


def _connection(member: Member) -> dict[str, Any]:
    return {
        "clientId": member.client_id,
        "clientAddr": str(member.connection.peer),
        "language": member.language.name,
        "version": member.version,
    }


def _producer(member: Member) -> dict[str, Any]:
    return {
        "clientId": member.client_id,
        "remoteIP": f"/{member.connection.peer}",
        "language": member.language.name,
        "version": member.version,
        "lastUpdateTimestamp": member.seen_ms,
    }
