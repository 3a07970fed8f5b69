"""Sends of producers: checks, the record, and the answer when it may be given."""

import random

from cometmq.protocol import flags
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.errors import ProtocolError
from cometmq.protocol.headers import SendFields, SendFieldsLong
from cometmq.protocol.host import pack_host
from cometmq.protocol.hot import decode_batch, offset_ids
from cometmq.protocol.message import Appended, Message
from cometmq.protocol.message_id import UniqueIds
from cometmq.protocol.names import RETRY_PREFIX, check_topic
from cometmq.protocol.properties import (
    PROPERTIES_BYTES_MAX,
    UNIQUE_KEY,
    property_value,
    without_property,
)
from cometmq.protocol.topic_config import PERM_WRITE, TopicConfig
from cometmq.transport.connection import Connection, Handlers, Refusal

from .config import BrokerConfig
from .context import Context
from .inbox import WAITS, Inbox, illegal
from .retries import Retries
from .timers.handle import recall_handle
from .timers.timed import wants_timer
from .topics import NOT_FOR_CLIENTS
from .transactions.half import PREPARED, is_prepared
from .transactions.transactions import Transactions

_UNIQUE_KEY = UNIQUE_KEY.encode()
_WAIT = b"WAIT"
_CLUSTER = b"CLUSTER"
_POP_CHECKPOINT = b"POP_CK"
_MARKS = (PREPARED, WAITS)
"""In a message that is part of a transaction, or is to wait for its time, there is one."""
_NO_FIELDS: dict[str, str] = {}
AnyFields = SendFields | SendFieldsLong


class Sends:
    def __init__(
        self, context: Context, inbox: Inbox, retries: Retries, transactions: Transactions
    ) -> None:
        self._context = context
        self._inbox = inbox
        self._retries = retries
        self._transactions = transactions
        self._store_host = pack_host(*context.address)
        self._unique_ids = UniqueIds(self._store_host[:-4], random.getrandbits(32))

    def handlers(self) -> Handlers:
        return {
            RequestCode.SEND_MESSAGE: self.send_long,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, connection: Connection, command: Command) -> Response | None:
        return self.store(connection, command, command.fields(SendFields))

    def send_long(self, connection: Connection, command: Command) -> Response | None:
        return self.store(connection, command, command.fields(SendFieldsLong))

    def store(self, connection: Connection, command: Command, fields: AnyFields) -> Response | None:
        """Put what a request with these fields brought into the log."""
        topic = self._checked_topic(connection, fields)
        message = Message(
            topic=fields.topic,
            queue_id=_queue_id(fields, topic, connection),
            body=command.body,
            properties=fields.properties.encode(),
            flag=fields.flag,
            sys_flag=_sys_flag(fields, topic),
            born_timestamp=fields.born_timestamp,
            born_host=born_host(connection),
            reconsume_times=fields.reconsume_times,
        )
        if fields.batch or command.code == RequestCode.SEND_BATCH_MESSAGE:
            return self._put_batch(connection, command, message)
        return self._put_one(connection, command, message, fields)

    # -- checks ----------------------------------------------------------------------------------

    def _checked_topic(self, connection: Connection, fields: AnyFields) -> TopicConfig:
        config, topics = self._context.config, self._context.topics
        name = fields.topic
        if name in NOT_FOR_CLIENTS:
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden."
            )
        topic = topics.get(name)
        if topic is None:
            topic = self._new_topic(connection, fields)
        if not config.permission & PERM_WRITE and topic.order:
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._context.address.ip}] sending message is forbidden",
            )
        return topic

    def _new_topic(self, connection: Connection, fields: AnyFields) -> TopicConfig:
        name = fields.topic
        try:
            check_topic(name)
        except ProtocolError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        topics = self._context.topics
        if name.startswith(RETRY_PREFIX):
            self._retries.group(name.removeprefix(RETRY_PREFIX))
            topic = topics.create_for_retry(name, 1)
        else:
            topic = topics.create_for_send(
                name, fields.default_topic, fields.default_topic_queue_nums
            )
        if topic is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] not exist, apply first please! (from {connection.peer})",
            )
        return topic

    # -- one message -----------------------------------------------------------------------------

    def _put_one(
        self, connection: Connection, command: Command, message: Message, fields: AnyFields
    ) -> Response | None:
        message.properties = without_property(message.properties, _POP_CHECKPOINT)
        self._refuse_unsupported(message)
        message.properties = self._completed(message.properties)
        if message.topic.startswith(RETRY_PREFIX):
            message = self._retries.redirected(message, fields.max_reconsume_times, command.version)
        is_half = is_prepared(message.properties) and not _is_retried(message)
        queue_id, waits = message.queue_id, self._inbox.timed(message)
        # A half message waits for its producer first, and for its time when it is committed.
        record = message if is_half else waits
        return self._put(connection, command, [record], record.properties, queue_id, is_half)

    def _refuse_unsupported(self, message: Message) -> None:
        # What is flagged as prepared or rolled back would be taken, but never handed out.
        if not flags.is_queued(message.sys_flag) and not is_prepared(message.properties):
            raise illegal("its sysFlag says that it is part of a transaction, its properties don't")

    def _completed(self, properties: bytes) -> bytes:
        """With what every stored message has: a unique id, and where it came in."""
        if properties and not properties.endswith(b"\x02"):
            properties += b"\x02"
        if property_value(properties, _UNIQUE_KEY) is None:
            key = self._unique_ids.make(self._context.clock.now_ms())
            properties += _UNIQUE_KEY + b"\x01" + key.encode() + b"\x02"
        if property_value(properties, _CLUSTER) is None:
            properties += arrival_properties(self._context.config)
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise illegal(
                f"its properties have {len(properties)} bytes, {PROPERTIES_BYTES_MAX} are allowed"
            )
        return properties

    # -- batches ---------------------------------------------------------------------------------

    def _put_batch(
        self, connection: Connection, command: Command, like: Message
    ) -> Response | None:
        if like.topic.startswith(RETRY_PREFIX):
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL, "batch request does not support retry group"
            )
        limit = self._context.store.config.message_bytes_max
        if len(command.body) > limit:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the batch has {len(command.body)} bytes, maxMessageSize is {limit}",
            )
        try:
            messages = decode_batch(command.body, like)
        except ProtocolError as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the batch is illegal: {error}") from None
        # A look at all of them at once: in most batches no message needs one of its own.
        special = not flags.is_queued(like.sys_flag) or any(m in command.body for m in _MARKS)
        for message in messages if special else ():
            self._refuse_in_batch(message)
        return self._put(connection, command, messages, b"", like.queue_id, may_wait=special)

    def _refuse_in_batch(self, message: Message) -> None:
        self._refuse_unsupported(message)
        if is_prepared(message.properties):
            raise illegal("a batch has no transactional messages")
        if wants_timer(message):
            raise illegal("a batch has no messages with a time of their own")

    # -- answers ---------------------------------------------------------------------------------

    def _put(
        self,
        connection: Connection,
        command: Command,
        messages: list[Message],
        properties: bytes,
        queue_id: int,
        is_half: bool = False,
        *,
        may_wait: bool = True,
    ) -> Response | None:
        placed: list[Appended] = []
        # A producer may ask not to wait for the disk (`waitStoreMsgOK` false).
        waits = property_value(properties, _WAIT) != b"false"
        unique_id = property_value(properties, _UNIQUE_KEY)
        recall = recall_handle(messages[0], self._context.config.name)
        # What a sender that waits for the disk keeps here must not grow with its message.
        command.body, command.encoded_fields = b"", _NO_FIELDS

        def settled(code: ResponseCode, remark: str | None) -> None:
            if waits:
                fields = self._answer_fields(placed, queue_id, unique_id, recall)
                connection.answer(command, Response(code, remark, fields))

        records = [self._transactions.prepared(messages[0])] if is_half else messages
        placed += self._inbox.put(records, settled, may_wait=may_wait)
        if is_half:
            self._transactions.stored(records[0], placed[0])
        if waits:
            return None
        return Response(fields=self._answer_fields(placed, queue_id, unique_id, recall))

    def _answer_fields(
        self,
        placed: list[Appended],
        queue_id: int,
        unique_id: bytes | None,
        recall: str | None,
    ) -> dict[str, str]:
        return answer_fields(
            self._context.config,
            offset_ids(self._store_host, placed),
            str(queue_id),
            str(placed[0].queue_offset),
            None if unique_id is None else unique_id.decode(),
            recall,
        )


def arrival_properties(config: BrokerConfig) -> bytes:
    """What a message gets where it comes in."""
    return (
        f"MSG_REGION\x01{config.region}\x02TRACE_ON\x01{_flag(config.trace_on)}\x02"
        f"CLUSTER\x01{config.cluster}\x02"
    ).encode()


def answer_fields(
    config: BrokerConfig,
    message_ids: str,
    queue_id: str,
    queue_offset: str,
    unique_id: str | None = None,
    recall: str | None = None,
) -> dict[str, str]:
    """What a producer is told of a message or a batch."""
    fields = {
        "msgId": message_ids,
        "queueId": queue_id,
        "queueOffset": queue_offset,
        "MSG_REGION": config.region,
        "TRACE_ON": _flag(config.trace_on),
    }
    if unique_id is not None:
        fields["transactionId"] = unique_id
    if recall is not None:
        fields["recallHandle"] = recall
    return fields


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _is_retried(message: Message) -> bool:
    """Old clients leave the mark of a transaction on messages that they send to be retried."""
    return message.reconsume_times > 0 and property_value(message.properties, b"DELAY") is not None


def _queue_id(fields: AnyFields, topic: TopicConfig, connection: Connection) -> int:
    queue_id = fields.queue_id
    if queue_id < 0:
        return random.randrange(max(topic.write_queue_nums, 1))  # noqa: S311 - spreads load
    queues = max(topic.write_queue_nums, topic.read_queue_nums)
    if queue_id >= queues:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{queue_id}] is illegal, topic {topic.topic_name} has {queues} "
            f"queues. Producer: {connection.peer}",
        )
    return queue_id


def _sys_flag(fields: AnyFields, topic: TopicConfig) -> int:
    if topic.topic_filter_type == "MULTI_TAG":
        return fields.sys_flag | flags.MULTI_TAGS
    return fields.sys_flag


def born_host(connection: Connection) -> bytes:
    """A client's address as its records have it."""
    packed: bytes | None = connection.state.get("born_host")
    if packed is None:
        packed = connection.state["born_host"] = pack_host(*connection.peer)
    return packed
