"""Messages that could not be consumed: again later, and after too many times aside.

A group's retry topic gets them back after a delay that grows with every attempt; its dead-letter
topic gets those that failed too often.
"""

import random

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.group_config import GroupConfig
from cometmq.protocol.headers import SendBackFields
from cometmq.protocol.host import pack_host
from cometmq.protocol.message import Message, StoredMessage
from cometmq.protocol.message_id import offset_id
from cometmq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from cometmq.protocol.properties import (
    RECORD_CRC,
    property_value,
    with_property,
    without_property,
)
from cometmq.protocol.topic_config import PERM_WRITE, TopicConfig
from cometmq.transport.connection import Connection, Handlers, Refusal

from .context import Context
from .delayed import DELAY
from .inbox import Inbox
from .stats import SEND_BACK_NUMS

RETRY_TOPIC = b"RETRY_TOPIC"
ORIGIN_ID = b"ORIGIN_MESSAGE_ID"
FIRST_RETRY_LEVEL = 3
DEAD_LETTER_QUEUES = 1
_KNOWS_ATTEMPTS = 121
"""Clients from this version on say themselves how often a message may be tried."""


class Retries:
    def __init__(self, context: Context, inbox: Inbox) -> None:
        self._context = context
        self._inbox = inbox

    def handlers(self) -> Handlers:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, connection: Connection, command: Command) -> Response | None:
        """A consumer failed at a message of this broker."""
        context = self._context
        fields = command.fields(SendBackFields)
        group = self.group(fields.group)
        if not context.config.permission & PERM_WRITE:
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{context.address.ip}] sending message is forbidden",
            )
        if group.retry_queue_nums <= 0:
            return Response()
        retry_topic = self._writable_retry_topic(group)
        failed = context.store.message_at(fields.offset)
        if failed is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {fields.offset}"
            )
        again = _again(failed)
        if fields.delay_level < 0 or failed.reconsume_times >= _attempts_max(
            fields, command, group
        ):
            again.topic, level = self._dead_letter_topic(group), 0
        else:
            level = fields.delay_level or FIRST_RETRY_LEVEL + failed.reconsume_times
            again.topic = retry_topic.topic_name
            # An operator may have given the group more queues than its topic has.
            queues = max(1, min(group.retry_queue_nums, retry_topic.read_queue_nums))
            again.queue_id = random.randrange(queues)  # noqa: S311 - spreads load
        again.properties = with_property(again.properties, DELAY.encode(), b"%d" % level)
        self._count(failed, fields)

        def settled(code: ResponseCode, remark: str | None) -> None:
            connection.answer(command, Response(code, remark))

        self._inbox.put([again], settled)
        return None

    def redirected(self, message: Message, attempts_max: int, version: int) -> Message:
        """A message that a consumer sends to its retry topic by itself: to the dead letters if it
        was tried too often, or if the group consumes in order and has given up on it."""
        name = message.topic.removeprefix(RETRY_PREFIX)
        group = self.group(name)
        limit = group.retry_max_times
        if version >= _KNOWS_ATTEMPTS and attempts_max >= 0:
            limit = attempts_max
        in_order = self._context.locks.is_held(name, self._context.clock.now_ms())
        if message.reconsume_times <= limit and not in_order:
            return message
        message.topic = self._dead_letter_topic(group)
        message.queue_id = 0
        message.properties = without_property(message.properties, DELAY.encode())
        return message

    def group(self, name: str) -> GroupConfig:
        group = self._context.groups.find(name)
        if group is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {name}: create it, or set "
                "autoCreateSubscriptionGroup=true",
            )
        return group

    def _writable_retry_topic(self, group: GroupConfig) -> TopicConfig:
        name = RETRY_PREFIX + group.group_name
        topic = self._context.topics.create_for_retry(name, group.retry_queue_nums)
        if topic is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"topic[{name}] not exist")
        if not topic.is_writable:
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden"
            )
        return topic

    def _dead_letter_topic(self, group: GroupConfig) -> str:
        name = DEAD_LETTER_PREFIX + group.group_name
        if self._context.topics.create_for_retry(name, DEAD_LETTER_QUEUES) is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"topic[{name}] not exist")
        return name

    def _count(self, failed: StoredMessage, fields: SendBackFields) -> None:
        origin = (property_value(failed.properties, RETRY_TOPIC) or b"").decode(errors="replace")
        if self._context.topics.get(origin) is None:  # Its sender may have made it up.
            origin = failed.topic
        key = f"{origin}@{fields.group}"
        self._context.stats.meter(SEND_BACK_NUMS, key).total += 1


def _again(failed: StoredMessage) -> Message:
    """The message once more, with where it was first."""
    properties = without_property(failed.properties, RECORD_CRC.encode())
    if property_value(properties, RETRY_TOPIC) is None:
        properties = with_property(properties, RETRY_TOPIC, failed.topic.encode())
    if property_value(properties, ORIGIN_ID) is None:
        first_id = offset_id(pack_host(*failed.store_host), failed.physical_offset)
        properties = with_property(properties, ORIGIN_ID, first_id.encode())
    return Message(
        topic=failed.topic,
        queue_id=0,
        body=failed.body,
        properties=with_property(properties, b"WAIT", b"false"),
        flag=failed.flag,
        sys_flag=failed.sys_flag,
        born_timestamp=failed.born_timestamp,
        born_host=pack_host(*failed.born_host),
        reconsume_times=failed.reconsume_times + 1,
    )


def _attempts_max(fields: SendBackFields, command: Command, group: GroupConfig) -> int:
    if command.version >= _KNOWS_ATTEMPTS and fields.max_reconsume_times is not None:
        return fields.max_reconsume_times
    return group.retry_max_times
