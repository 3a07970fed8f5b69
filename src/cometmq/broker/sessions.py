"""What clients say about themselves: heartbeats, farewells, who else is in the group, locks."""

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.headers import ConsumerGroupFields, UnregisterClientFields
from cometmq.protocol.heartbeat import ConsumerData, Heartbeat
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.names import RETRY_PREFIX, SPECIAL_TOPIC_CHARS_MAX
from cometmq.protocol.subscription import EXPRESSION_CHARS_MAX, SubscriptionData
from cometmq.transport.connection import Connection, Handlers, Refusal

from .bodies import decode_body
from .clients import Member, NoRoom
from .context import Context
from .filters import filter_of
from .groups import GROUP_CHARS_MAX

HEARTBEAT_BYTES_MAX = 1024**2
CLIENT_ID_CHARS_MAX = 1024
"""What a client tells stays here as long as it does: these and the counts in `clients` bound it."""
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
        if len(command.body) > HEARTBEAT_BYTES_MAX:
            raise _too_large(f"a heartbeat of {len(command.body)} bytes", HEARTBEAT_BYTES_MAX)
        heartbeat = decode_body(command, Heartbeat)
        _check_sizes(heartbeat)
        member = Member(
            connection, heartbeat.client_id, command.language, command.version,
            context.clock.now_ms(),
        )  # fmt: skip
        changed = heartbeat.heartbeat_fingerprint == 0
        try:
            for data in heartbeat.consumer_data_set:
                changed |= self._register_consumer(member, data, heartbeat)
            for producer in heartbeat.producer_data_set:
                context.clients.register_producer(producer.group_name, member)
        except NoRoom as error:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY, f"no further client is taken: {error}"
            ) from None
        fields = {SUPPORTS_V2: "true", SUBSCRIPTIONS_CHANGED: "true" if changed else "false"}
        return Response(fields=fields)

    def _register_consumer(self, member: Member, data: ConsumerData, heartbeat: Heartbeat) -> bool:
        """Whether the client should tell its subscriptions in full the next time."""
        clients = self._context.clients
        group = self._context.groups.find(data.group_name)
        if group is None:
            return False
        topic = RETRY_PREFIX + data.group_name
        self._context.topics.create_for_retry(topic, max(group.retry_queue_nums, 1))
        clients.register_consumer(member, data, keep=heartbeat.without_sub)
        online = clients.consumer_group(data.group_name)
        assert online is not None
        before, online.fingerprint = online.fingerprint, heartbeat.heartbeat_fingerprint
        if before is None:
            # After a restart the client still believes that they are known here.
            return heartbeat.without_sub
        return before != heartbeat.heartbeat_fingerprint

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
        context = self._context
        wanted = decode_body(command, LockRequest)
        if len(wanted.client_id) > CLIENT_ID_CHARS_MAX:
            raise _too_large("the client's id", CLIENT_ID_CHARS_MAX)
        held = []
        if context.groups.find(wanted.consumer_group) is not None:
            ours = [queue for queue in wanted.mq_set if self._is_ours(queue)]
            held = context.locks.lock(
                wanted.consumer_group, wanted.client_id, ours, context.clock.now_ms()
            )
        return Response(body=msgspec.json.encode({"lockOKMQSet": held}))

    def _is_ours(self, queue: MessageQueue) -> bool:
        context = self._context
        return (
            queue.broker_name == context.config.name and context.topics.get(queue.topic) is not None
        )

    def unlock(self, _: Connection, command: Command) -> Response:
        given = decode_body(command, LockRequest)
        self._context.locks.unlock(given.consumer_group, given.client_id, given.mq_set)
        return Response()

    def check_config(self, _: Connection, command: Command) -> Response:
        """Whether a filter expression would be taken, asked before a consumer starts."""
        asked = decode_body(command, ClientConfigCheck).subscription_data
        if asked is not None:
            filter_of(asked, self._context.config)
        return Response()


def _check_sizes(heartbeat: Heartbeat) -> None:
    if len(heartbeat.client_id) > CLIENT_ID_CHARS_MAX:
        raise _too_large("the client's id", CLIENT_ID_CHARS_MAX)
    for producer in heartbeat.producer_data_set:
        if len(producer.group_name) > GROUP_CHARS_MAX:
            raise _too_large("a producer group's name", GROUP_CHARS_MAX)
    for data in heartbeat.consumer_data_set:
        for subscription in data.subscription_data_set:
            _check_size(subscription)


def _check_size(subscription: SubscriptionData) -> None:
    topic = subscription.topic[:SPECIAL_TOPIC_CHARS_MAX]
    if topic != subscription.topic:
        raise _too_large(f"the topic {topic[:40]}…", SPECIAL_TOPIC_CHARS_MAX)
    tags_size = sum(map(len, subscription.tags_set)) + len(subscription.code_set)
    if max(len(subscription.sub_string), tags_size) > EXPRESSION_CHARS_MAX:
        raise _too_large(f"the filter for {topic}", EXPRESSION_CHARS_MAX)


def _too_large(what: str, limit: int) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, f"{what} is too large: {limit} are allowed")
