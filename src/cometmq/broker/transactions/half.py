"""The forms of a transactional message. Pure.

A half message waits in a topic of its own that no consumer reads, with its real topic and queue in
its properties. Its decision is a record in a second topic, whose body names the offset of the half
message; a commit also writes the message to where it belongs.
"""

import msgspec

from cometmq.protocol import flags
from cometmq.protocol.host import pack_host
from cometmq.protocol.message import Message, StoredMessage
from cometmq.protocol.properties import (
    RECORD_CRC,
    UNIQUE_KEY,
    property_value,
    with_property,
    without_property,
)

from ..delayed import REAL_QUEUE, REAL_TOPIC
from ..topics import CHECK_EXCEEDED_TOPIC, HALF_DONE_TOPIC, HALF_TOPIC

PREPARED = b"TRAN_MSG"
PRODUCER_GROUP = b"PGROUP"
TRANSACTION_ID = b"__transactionId__"
IMMUNITY_S = b"CHECK_IMMUNITY_TIME_IN_SECONDS"
CHECKS = b"TRANSACTION_CHECK_TIMES"
"""RocketMQ writes a half message anew, with this, whenever it asks about one."""
DONE_TAG = b"d"
_SEPARATOR = ","


def is_prepared(properties: bytes) -> bool:
    """Whether a message on its way in is the first half of a transaction."""
    if PREPARED not in properties:
        return False
    return (property_value(properties, PREPARED) or b"").lower() == b"true"


def half_of(message: Message) -> Message:
    """A message as it waits for its producer's decision."""
    properties = message.properties
    unique_key = property_value(properties, UNIQUE_KEY.encode())
    if unique_key is not None:
        properties = with_property(properties, TRANSACTION_ID, unique_key)
    properties = with_property(properties, REAL_TOPIC.encode(), message.topic.encode())
    properties = with_property(properties, REAL_QUEUE.encode(), b"%d" % message.queue_id)
    return msgspec.structs.replace(
        message,
        topic=HALF_TOPIC,
        queue_id=0,
        properties=properties,
        sys_flag=message.sys_flag & ~flags.TRANSACTION_MASK,
    )


def committed(half: StoredMessage) -> Message | None:
    """The message as consumers get it; None when it does not know where it belongs."""
    topic = property_value(half.properties, REAL_TOPIC.encode())
    queue = property_value(half.properties, REAL_QUEUE.encode()) or b""
    if topic is None or not queue.isdigit():
        return None
    message = _copy(half, topic.decode(errors="replace"), int(queue))
    message.sys_flag |= flags.TRANSACTION_COMMIT
    message.prepared_transaction_offset = half.physical_offset
    # As RocketMQ has it: what made it a half message stays, where it belongs is known again.
    for name in (REAL_TOPIC, REAL_QUEUE):
        message.properties = without_property(message.properties, name.encode())
    return message


def given_up(half: StoredMessage) -> Message:
    """The message as it is put aside when nobody ever decided."""
    return _copy(half, CHECK_EXCEEDED_TOPIC, 0)


def shown_to_producer(half: StoredMessage) -> Message:
    """The message as its producer knows it, for the question what became of it."""
    topic = property_value(half.properties, REAL_TOPIC.encode()) or HALF_TOPIC.encode()
    queue = property_value(half.properties, REAL_QUEUE.encode()) or b"0"
    return _copy(half, topic.decode(errors="replace"), int(queue) if queue.isdigit() else 0)


def done(half_offset: int, now_ms: int) -> Message:
    """The record that a half message has been decided."""
    return Message(
        topic=HALF_DONE_TOPIC,
        queue_id=0,
        body=f"{half_offset}{_SEPARATOR}".encode(),
        properties=b"TAGS\x01" + DONE_TAG + b"\x02",
        born_timestamp=now_ms,
    )


def decided_offsets(record: StoredMessage) -> list[int]:
    """Which half messages such a record speaks of; RocketMQ puts several into one."""
    words = record.body.decode(errors="replace").split(_SEPARATOR)
    return [int(word) for word in words if word.isdigit()]


def _copy(half: StoredMessage, topic: str, queue_id: int) -> Message:
    return Message(
        topic=topic,
        queue_id=queue_id,
        body=half.body,
        properties=without_property(half.properties, RECORD_CRC.encode()),
        flag=half.flag,
        sys_flag=half.sys_flag & ~flags.TRANSACTION_MASK,
        born_timestamp=half.born_timestamp,
        born_host=pack_host(*half.born_host),
        reconsume_times=half.reconsume_times,
    )
