"""The handle by which a producer may take back a message that waits: RocketMQ's text. Pure.

`v1 topic broker time key`, in the letters of base64 that fit into a URL. The time is when the
message is due, or up to a second earlier when a RocketMQ made the handle.
"""

import base64
import binascii

import msgspec

from cometmq.protocol.message import Message
from cometmq.protocol.names import RETRY_PREFIX
from cometmq.protocol.properties import UNIQUE_KEY, property_value

from ..delayed import REAL_TOPIC
from ..topics import TIMER_TOPIC
from .timed import OUT_MS

VERSION = "v1"
_PARTS = 5
_TIME_DIGITS_MAX = 18


class RecallHandle(msgspec.Struct, frozen=True):
    topic: str
    broker: str
    due_ms: int
    unique_key: str

    def encode(self) -> str:
        text = f"{VERSION} {self.topic} {self.broker} {self.due_ms} {self.unique_key}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, handle: str) -> "RecallHandle":
        """ValueError when it is none."""
        try:
            padded = handle.encode("ascii") + b"=" * (-len(handle) % 4)
            text = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
        except (binascii.Error, UnicodeError) as error:
            raise ValueError(f"{handle!r} is no recall handle: {error}") from None
        version, *parts = text.split(" ")
        if version != VERSION or len(parts) < _PARTS - 1:
            raise ValueError(f"{handle!r} is no recall handle of version {VERSION}")
        topic, broker, due_ms, unique_key = parts[: _PARTS - 1]
        is_time = due_ms.isascii() and due_ms.isdigit() and len(due_ms) <= _TIME_DIGITS_MAX
        return cls(topic, broker, int(due_ms) if is_time else -1, unique_key)


def recall_handle(waits: Message, broker: str) -> str | None:
    """For a message that waits for its time; None for others, and for those that are retried."""
    if waits.topic != TIMER_TOPIC:
        return None
    before_ms = int(property_value(waits.properties, OUT_MS) or 0)
    topic = (property_value(waits.properties, REAL_TOPIC.encode()) or b"").decode()
    key = (property_value(waits.properties, UNIQUE_KEY.encode()) or b"").decode()
    if topic.startswith(RETRY_PREFIX):
        return None
    return RecallHandle(topic, broker, before_ms + 1, key).encode()
