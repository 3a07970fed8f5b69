"""What makes a message a delayed one, and back. Pure.

A delayed message waits in a topic of its own, one queue a level, with its real topic and queue in
its properties; when its time has come it is written again, to where it belongs.
"""

import msgspec

from cometmq.protocol.message import Message, StoredMessage
from cometmq.protocol.properties import (
    RECORD_CRC,
    decode_properties,
    property_value,
    with_property,
    without_property,
)

from .topics import HALF_TOPIC, SCHEDULE_TOPIC

DELAY = "DELAY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE = "REAL_QID"
_MARK = b"DELAY\x01"
_NEVER_DELAYED = (SCHEDULE_TOPIC, HALF_TOPIC)
"""A half message waits for its producer first, then for its time."""
_TIMERS = (b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS", b"TIMER_DELAY_SEC")


def delayed(message: Message, levels: int) -> Message:
    """The message itself, or the form in which it waits if it carries a delay level."""
    if _MARK not in message.properties or message.topic in _NEVER_DELAYED:
        return message
    level = min(_level(property_value(message.properties, DELAY.encode())), levels)
    if level <= 0:
        return message
    properties = message.properties
    for name, value in (
        (DELAY, str(level)), (REAL_TOPIC, message.topic), (REAL_QUEUE, str(message.queue_id)),
    ):  # fmt: skip
        properties = with_property(properties, name.encode(), value.encode())
    return msgspec.structs.replace(
        message, topic=SCHEDULE_TOPIC, queue_id=level - 1, properties=properties
    )


def due(stored: StoredMessage, born_host: bytes) -> Message | None:
    """The message as it goes to its real topic; None when it does not know where that is."""
    properties = decode_properties(stored.properties)
    topic, queue = properties.get(REAL_TOPIC), properties.get(REAL_QUEUE, "")
    if not topic or not queue.isdigit():
        return None
    kept = without_property(stored.properties, RECORD_CRC.encode())
    return Message(
        topic=topic,
        queue_id=int(queue),
        body=stored.body,
        properties=kept,
        flag=stored.flag,
        sys_flag=stored.sys_flag,
        born_timestamp=stored.born_timestamp,
        born_host=born_host,
        reconsume_times=stored.reconsume_times,
        prepared_transaction_offset=stored.prepared_transaction_offset,
    )


def wants_timer(properties: bytes) -> bool:
    """Whether a message asks for a time of its own instead of a level."""
    return b"TIMER_DEL" in properties and any(
        property_value(properties, name) is not None for name in _TIMERS
    )


def _level(text: bytes | None) -> int:
    try:
        return int(text or 0)
    except ValueError:
        return 0
