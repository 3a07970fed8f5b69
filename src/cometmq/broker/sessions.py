"""What clients say about themselves: heartbeats, farewells, who else is in the group, locks."""

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.headers import ConsumerGroupFields, UnregisterClientFields
from cometmq.protocol.heartbeat import Heartbeat
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.names import RETRY_PREFIX
from cometmq.protocol.subscription import TAG, SubscriptionData
from cometmq.transport.connection import Connection, Handlers, Refusal

from .bodies import decode_body
from .clients import Member
from .context import Context

SUPPORTS_V2 = "IS_SUPPORT_HEART_BEAT_V2"
SUBSCRIPTIONS_CHANGED = "IS_SUB_CHANGE"


class LockRequest(msgspec.Struct, rename="camel"):
    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = []


class ClientConfigCheck(msgspec.Struct, rename="camel"):
    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData | None = None


class Sessions:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._fingerprints: dict[str, int] = {}

    def handlers(self) -> Handlers:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_ids,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
        }

    def heartbeat(self, connection: Connection, command: Command) -> Response:
        context = self._context
        heartbeat = decode_body(command, Heartbeat)
        member = Member(
            connection, heartbeat.client_id, command.language, command.version,
            context.clock.now_ms(),
        )  # fmt: skip
        changed = heartbeat.heartbeat_fingerprint == 0
        for data in heartbeat.consumer_data_set:
            group = context.groups.find(data.group_name)
            if group is None:
                continue
            topic = RETRY_PREFIX + data.group_name
            context.topics.create_for_retry(topic, max(group.retry_queue_nums, 1))
            context.clients.register_consumer(member, data, keep=heartbeat.without_sub)
            changed |= self._is_new(data.group_name, heartbeat.heartbeat_fingerprint)
        for producer in heartbeat.producer_data_set:
            context.clients.register_producer(producer.group_name, member)
        fields = {SUPPORTS_V2: "true", SUBSCRIPTIONS_CHANGED: "true" if changed else "false"}
        return Response(fields=fields)

    def _is_new(self, group: str, fingerprint: int) -> bool:
        """Whether a group's members had other subscriptions at their last heartbeat."""
        if self._context.clients.consumer_group(group) is None:
            self._fingerprints.pop(group, None)
            return False
        before = self._fingerprints.get(group)
        self._fingerprints[group] = fingerprint
        return before is not None and before != fingerprint

    def unregister(self, connection: Connection, command: Command) -> Response:
        fields = command.fields(UnregisterClientFields)
        clients = self._context.clients
        if fields.producer_group:
            clients.unregister_producer(fields.producer_group, connection)
        if fields.consumer_group:
            clients.unregister_consumer(fields.consumer_group, connection)
        return Response()

    def consumer_ids(self, _: Connection, command: Command) -> Response:
        name = command.fields(ConsumerGroupFields).consumer_group
        group = self._context.clients.consumer_group(name)
        if group is None or not group.members:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        ids = sorted({member.client_id for member in group.members.values()})
        return Response(body=msgspec.json.encode({"consumerIdList": ids}))

    def lock(self, _: Connection, command: Command) -> Response:
        wanted = decode_body(command, LockRequest)
        held = self._context.locks.lock(
            wanted.consumer_group, wanted.client_id, wanted.mq_set, self._context.clock.now_ms()
        )
        return Response(body=msgspec.json.encode({"lockOKMQSet": held}))

    def unlock(self, _: Connection, command: Command) -> Response:
        given = decode_body(command, LockRequest)
        self._context.locks.unlock(given.consumer_group, given.client_id, given.mq_set)
        return Response()

    def check_config(self, _: Connection, command: Command) -> Response:
        """Whether a filter expression would be taken, asked before a consumer starts."""
        asked = decode_body(command, ClientConfigCheck).subscription_data
        if asked is not None and asked.expression_type not in (TAG, ""):
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                "The broker does not support consumer to filter message by "
                f"{asked.expression_type}",
            )
        return Response()
