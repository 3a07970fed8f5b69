"""A message as a consumer gets it, and the way from a pull's bytes to messages.

Decoding is lazy: most handlers look at the body and a property or two, so properties, hosts and
packed bodies are decoded when they are asked for. Checksums are verified for every message.
"""

import struct
import zlib

import msgspec

from cometmq.protocol import properties as props
from cometmq.protocol.compression import decompress
from cometmq.protocol.errors import MalformedRecord
from cometmq.protocol.flags import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6
from cometmq.protocol.host import Host, unpack_host
from cometmq.protocol.layout import MAGIC_V1, MAGIC_V2
from cometmq.protocol.message_id import offset_id
from cometmq.protocol.message_queue import MessageQueue

# size, magic, body CRC, queue id, flag, queue offset, physical offset, sys flag, born time
_HEAD = struct.Struct(">iIIiiqqiq")
_TAIL = struct.Struct(">iqi")  # reconsume times, prepared transaction offset, body length
_RETRY_TOPIC = "RETRY_TOPIC"


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
    queues: dict[tuple[str, int], MessageQueue] = {}
    at, end = 0, len(data)
    try:
        while at < end:
            message, at = _decode_one(data, at, broker_name, queues)
            messages.append(message)
    except (struct.error, IndexError) as error:
        raise MalformedRecord(f"{end - at} bytes behind the last message: {error}") from None
    return messages


def _decode_one(
    data: bytes, at: int, broker_name: str, queues: dict[tuple[str, int], MessageQueue]
) -> tuple[ReceivedMessage, int]:
    size, magic, crc, queue_id, flag, queue_offset, physical, sys_flag, born = _HEAD.unpack_from(
        data, at
    )
    end = at + size
    born_end = at + (68 if sys_flag & BORN_HOST_V6 else 56)
    store_end = born_end + (28 if sys_flag & STORE_HOST_V6 else 16)
    reconsume_times, prepared, body_size = _TAIL.unpack_from(data, store_end)
    body_end = store_end + 16 + body_size
    # The topic's length has two bytes since the second version of the record.
    topic_at = body_end + (2 if magic == MAGIC_V2 else 1)
    topic_end = topic_at + int.from_bytes(data[body_end:topic_at], "big")
    properties_end = topic_end + 2 + int.from_bytes(data[topic_end : topic_end + 2], "big")
    body = data[store_end + 16 : body_end]
    if (magic not in (MAGIC_V1, MAGIC_V2)) | (properties_end != end) | (end > len(data)):
        raise MalformedRecord(f"no message at byte {at} of a pull's answer")
    if zlib.crc32(body) & 0x7FFFFFFF != crc:
        raise MalformedRecord(f"the body at offset {queue_offset} does not fit its checksum")
    topic = data[topic_at:topic_end].decode(errors="replace")
    queue = queues.get((topic, queue_id))
    if queue is None:
        queue = queues[topic, queue_id] = MessageQueue(topic, broker_name, queue_id)
    encoded = data[topic_end + 2 : end]
    message = ReceivedMessage(
        _first_topic(topic, encoded), queue, queue_offset, physical, reconsume_times, born,
        int.from_bytes(data[born_end : born_end + 8], "big"), flag, sys_flag, body, encoded,
        data[at + 48 : born_end], data[born_end + 8 : store_end], prepared,
    )  # fmt: skip
    return message, end


def _first_topic(topic: str, encoded: bytes) -> str:
    if not topic.startswith("%RETRY%"):
        return topic
    first = props.property_value(encoded, _RETRY_TOPIC.encode())
    return first.decode(errors="replace") if first else topic
