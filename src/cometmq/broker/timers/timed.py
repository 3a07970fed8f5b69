"""What makes a message one with a time of its own, and back. Pure.

Such a message waits in the timer topic with its real topic and queue in its properties, and with
the last millisecond before it is due. RocketMQ notes the last whole second before; what one of its
brokers has left behind is read so that nothing comes early.
"""

import re

import msgspec

from cometmq.protocol.host import pack_host
from cometmq.protocol.message import Message, StoredMessage
from cometmq.protocol.properties import (
    RECORD_CRC,
    UNIQUE_KEY,
    encode_properties,
    property_value,
    with_property,
    without_property,
)

from ..delayed import REAL_QUEUE, REAL_TOPIC, TIMER_NAMES, delay_level
from ..topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC

DELAY_S, DELAY_MS, DELIVER_MS = TIMER_NAMES
OUT_MS = b"TIMER_OUT_MS"
ENQUEUE_MS = b"TIMER_ENQUEUE_MS"
DEQUEUE_MS = b"TIMER_DEQUEUE_MS"
ROLL_TIMES = b"TIMER_ROLL_TIMES"
RECALLS = b"TIMER_DEL_UNIQKEY"
RECALL_TAG = "_RECALL_TAG_"
ROOM_BYTES = 128
"""What a message's properties grow by on its way: times of arrival and delivery, and a count."""
PRECISION_MS = 1000
"""RocketMQ's, and of the slots of the wheel."""
_MARK = b"TIMER_DEL"
_NEVER_TIMED = (TIMER_TOPIC, SCHEDULE_TOPIC, HALF_TOPIC)
_NUMBER = re.compile(rb"[+-]?[0-9]{1,19}")
_REAL_TOPIC, _REAL_QUEUE = REAL_TOPIC.encode(), REAL_QUEUE.encode()
_UNIQUE_KEY = UNIQUE_KEY.encode()

RecallKey = tuple[bytes, bytes]
"""Real topic and unique key of a message."""


def wants_timer(message: Message) -> bool:
    """Whether a message asks for a time of its own. A delay level wins, and a message that has
    waited already does not wait again."""
    properties = message.properties
    if _MARK not in properties or message.topic in _NEVER_TIMED:
        return False
    if delay_level(properties) > 0 or property_value(properties, OUT_MS) is not None:
        return False
    return any(property_value(properties, name) is not None for name in TIMER_NAMES)


def asked_time(properties: bytes, now_ms: int) -> int | None:
    """The millisecond that a message asks for; None when that cannot be read."""
    for name, factor in ((DELAY_S, 1000), (DELAY_MS, 1)):
        text = property_value(properties, name)
        if text is not None:
            delay = _number(text)
            return None if delay is None else now_ms + delay * factor
    return _number(property_value(properties, DELIVER_MS) or b"")


def takes_back(message: Message) -> bool:
    """Whether a message on its way in is a recall of another one."""
    return property_value(message.properties, RECALLS) is not None


def waiting(message: Message, due_ms: int) -> Message:
    """A message as it waits for its time."""
    properties = message.properties
    for name, value in (
        (OUT_MS, b"%d" % (due_ms - 1)),
        (_REAL_TOPIC, message.topic.encode()),
        (_REAL_QUEUE, b"%d" % message.queue_id),
    ):
        properties = with_property(properties, name, value)
    return msgspec.structs.replace(message, topic=TIMER_TOPIC, queue_id=0, properties=properties)


def due_time(waits: StoredMessage) -> int | None:
    """The millisecond at which a waiting message is due; None when it does not say.

    A note of a whole second may be RocketMQ's: then what its sender asked for tells the rest.
    """
    properties = waits.properties
    noted = _number(property_value(properties, OUT_MS) or b"")
    if noted is None:
        return None
    earliest, latest = noted + 1, noted + PRECISION_MS
    is_ours = is_rolled(waits) and waits.prepared_transaction_offset > 0
    asked = asked_time(properties, waits.store_timestamp)
    if noted % PRECISION_MS or is_ours or asked is None:
        return earliest
    return max(earliest, min(asked, latest))


def delivered(waits: StoredMessage, enqueued_ms: int, now_ms: int) -> Message | None:
    """The message as it goes to its real topic; None when it does not know where that is."""
    topic = property_value(waits.properties, _REAL_TOPIC)
    queue = property_value(waits.properties, _REAL_QUEUE) or b""
    if topic is None or not queue.isdigit():
        return None
    return _copy(waits, topic.decode(errors="replace"), int(queue), enqueued_ms, now_ms)


def rolled(waits: StoredMessage, enqueued_ms: int, now_ms: int) -> Message:
    """The message as it goes on waiting, in a new record that the log keeps for longer."""
    again = _copy(waits, TIMER_TOPIC, 0, enqueued_ms, now_ms)
    times = _number(property_value(waits.properties, ROLL_TIMES) or b"") or 0
    again.properties = with_property(again.properties, ROLL_TIMES, b"%d" % (times + 1))
    return again


def is_rolled(waits: StoredMessage) -> bool:
    """Whether a waiting message is such a new record, which takes the place of an older one."""
    return property_value(waits.properties, ROLL_TIMES) is not None


def _copy(
    waits: StoredMessage, topic: str, queue_id: int, enqueued_ms: int, now_ms: int
) -> Message:
    properties = without_property(waits.properties, RECORD_CRC.encode())
    properties = with_property(properties, ENQUEUE_MS, b"%d" % enqueued_ms)
    return Message(
        topic=topic,
        queue_id=queue_id,
        body=waits.body,
        properties=with_property(properties, DEQUEUE_MS, b"%d" % now_ms),
        flag=waits.flag,
        sys_flag=waits.sys_flag,
        born_timestamp=waits.born_timestamp,
        born_host=pack_host(*waits.born_host),
        reconsume_times=waits.reconsume_times,
        prepared_transaction_offset=waits.physical_offset,  # See `origins`.
    )


# -- recalls -------------------------------------------------------------------------------------


def recall_of(
    topic: str, unique_key: str, due_ms: int, producer_group: str, now_ms: int, born_host: bytes
) -> Message:
    """The record that takes a waiting message back: due when it is, and never delivered."""
    properties = {
        "TAGS": RECALL_TAG,
        RECALLS.decode(): unique_key,
        UNIQUE_KEY: unique_key,
        DELIVER_MS.decode(): str(due_ms),
        "BORN_TIMESTAMP": str(now_ms),
        OUT_MS.decode(): str(due_ms - 1),
        REAL_TOPIC: topic,
        REAL_QUEUE: "0",
    }
    if producer_group:
        properties["PGROUP"] = producer_group
    return Message(
        topic=TIMER_TOPIC,
        queue_id=0,
        body=b"0",
        properties=encode_properties(properties),
        born_timestamp=now_ms,
        born_host=born_host,
    )


def recalled_key(waits: StoredMessage) -> RecallKey | None:
    """Which message a record takes back; None when it is no recall."""
    key = property_value(waits.properties, RECALLS)
    if key is None:
        return None
    topic = real_topic(waits)
    # Some versions of RocketMQ put the topic in front.
    return topic, key.removeprefix(topic + b"+")


def key_of(waits: StoredMessage) -> RecallKey:
    return real_topic(waits), property_value(waits.properties, _UNIQUE_KEY) or b""


def real_topic(waits: StoredMessage) -> bytes:
    return property_value(waits.properties, _REAL_TOPIC) or b""


def _number(text: bytes) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None
