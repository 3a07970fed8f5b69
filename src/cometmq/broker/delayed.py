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
TIMER_NAMES = (b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS")
"""Properties by which a message asks for a time of its own."""


def delayed(message: Message, levels: int) -> Message:
    """The message itself, or the form in which it waits if it carries a delay level."""
    if message.topic in _NEVER_DELAYED:
        return message
    level = min(delay_level(message.properties), levels)
    if level <= 0:
        return message
    properties = message.properties
    for name in TIMER_NAMES:  # A level wins over a time of its own.
        properties = without_property(properties, name)
    for key, value in (
        (DELAY, str(level)), (REAL_TOPIC, message.topic), (REAL_QUEUE, str(message.queue_id)),
    ):  # fmt: skip
        properties = with_property(properties, key.encode(), value.encode())
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
        prepared_transaction_offset=stored.physical_offset,  # See `origins`.
    )


def delay_level(properties: bytes) -> int:
    """The level that a message asks for; 0 when it asks for none."""
    if _MARK not in properties:
        return 0
    try:
        return int(property_value(properties, DELAY.encode()) or 0)
    except ValueError:
        return 0
