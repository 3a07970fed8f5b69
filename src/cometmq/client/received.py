"""A message as a consumer gets it, and the way from a pull's bytes to messages.

Decoding is lazy: most handlers look at the body and a property or two, so properties, hosts and
packed bodies are decoded when they are asked for. Checksums are verified for every message.
"""

import msgspec

from cometmq.protocol import properties as props
from cometmq.protocol.batch import decode_batch
from cometmq.protocol.compression import decompress
from cometmq.protocol.flags import COMPRESSED, INNER_BATCH, NEED_UNWRAP
from cometmq.protocol.host import Host, unpack_host
from cometmq.protocol.hot import split_records
from cometmq.protocol.message import Message
from cometmq.protocol.message_id import offset_id
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.names import RETRY_PREFIX

_RETRY_TOPIC = b"RETRY_TOPIC"
_WRAPPED = INNER_BATCH | NEED_UNWRAP


class ReceivedMessage(msgspec.Struct, gc=False, eq=False):
    """A message that a broker delivered."""

    topic: str
    """Where its sender sent it: a retried message tells its first topic here, too."""
    queue: MessageQueue
    """Where it was pulled from."""
    queue_offset: int
    physical_offset: int
    reconsume_times: int
    """How often a consumer of this group failed at it before."""
    born_timestamp: int
    store_timestamp: int
    flag: int
    sys_flag: int
    stored_body: bytes
    """As it travels: still packed when its sender packed it."""
    encoded_properties: bytes
    packed_born_host: bytes
    packed_store_host: bytes
    prepared_transaction_offset: int = 0
    _properties: dict[str, str] | None = None
    _body: bytes | None = None

    @property
    def body(self) -> bytes:
        """As it was sent."""
        if not self.sys_flag & COMPRESSED:
            return self.stored_body
        if self._body is None:
            self._body = decompress(self.stored_body, self.sys_flag)
        return self._body

    @property
    def properties(self) -> dict[str, str]:
        """All of them: the sender's own, and those that client and broker added."""
        if self._properties is None:
            self._properties = props.decode_properties(self.encoded_properties)
            self._properties.pop(props.RECORD_CRC, None)
        return self._properties

    @property
    def message_id(self) -> str:
        """The unique id that its producer gave it; it stays when the message is retried."""
        return self.properties.get(props.UNIQUE_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """Where the broker keeps it, as `Admin.view` takes it."""
        return offset_id(self.packed_store_host, self.physical_offset)

    @property
    def tags(self) -> str:
        return self.properties.get(props.TAGS, "")

    @property
    def keys(self) -> list[str]:
        return self.properties.get(props.KEYS, "").split()

    @property
    def sharding_key(self) -> str:
        return self.properties.get("__SHARDINGKEY", "")

    @property
    def transaction_id(self) -> str:
        return self.properties.get("__transactionId__", "")

    @property
    def born_host(self) -> Host:
        return unpack_host(self.packed_born_host)

    @property
    def store_host(self) -> Host:
        return unpack_host(self.packed_store_host)


def decode_messages(data: bytes, broker_name: str) -> list[ReceivedMessage]:
    """The messages of a pull's answer. MalformedRecord when one of them is not whole."""
    messages: list[ReceivedMessage] = []
    came_from: tuple[bytes, int] | None = None
    topic, queue, is_retried = "", MessageQueue("", broker_name, -1), False
    for record in split_records(data):
        # The messages of one answer are mostly of one queue.
        if record[:2] != came_from:
            came_from = record[:2]
            topic = record[0].decode(errors="replace")
            queue = MessageQueue(topic, broker_name, record[1])
            is_retried = topic.startswith(RETRY_PREFIX)
        message = ReceivedMessage(topic, queue, *record[2:])
        if is_retried:
            message.topic = _first_topic(message)
        if message.sys_flag & _WRAPPED == _WRAPPED:
            messages += _unwrapped(message)
        else:
            messages.append(message)
    return messages


def _unwrapped(wrapping: ReceivedMessage) -> list[ReceivedMessage]:
    """The messages of a record that is a whole batch, as topics of type BatchCQ keep them."""
    inner = decode_batch(wrapping.body, Message(wrapping.topic, wrapping.queue.queue_id, b""))
    return [
        msgspec.structs.replace(
            wrapping,
            queue_offset=wrapping.queue_offset + number,
            flag=one.flag,
            sys_flag=wrapping.sys_flag & ~COMPRESSED,
            stored_body=one.body,
            encoded_properties=one.properties,
            _body=None,
        )
        for number, one in enumerate(inner)
    ]


def _first_topic(message: ReceivedMessage) -> str:
    first = props.property_value(message.encoded_properties, _RETRY_TOPIC)
    return first.decode(errors="replace") if first else message.topic
