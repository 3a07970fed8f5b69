"""Dead letters, and the messages that they become again. Pure.

A copy's unique id follows from where its letter lies, so whoever redrives the letter gives its copy
the same id, and a letter has been redriven exactly when its topic has a message with that id. A
message that fails again becomes another letter, at another place.
"""

import hashlib
from typing import Any, Final, NamedTuple

import msgspec

from cometmq.client.message import SHARDING_KEY
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.errors import MalformedRecord
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from cometmq.protocol.properties import KEYS

from ..own_properties import own_properties
from ..topic.offsets import queue_text

COLUMNS: Final = (
    "topic", "brokerName", "queueId", "queueOffset", "msgId", "bornTimestamp", "storeTimestamp",
    "keys", "tags", "body", "reconsumeTimes", "properties",
)  # fmt: skip
"""Also what a filter may go by."""
FROM: Final = "REDRIVEN_FROM"
"""A copy's property: topic, broker, queue and offset of its letter."""
FIRST_ID: Final = "REDRIVEN_ID"
"""A copy's property: the unique id that the message had."""
_ORIGINS: Final = ("RETRY_TOPIC", "DLQ_ORIGIN_TOPIC")
"""Where the first topic is told. Brokers set the first of them with every message that goes back,
unless its sender has. None of Apache RocketMQ's sets the second, so beside the first it is a
sender's word."""
_POP_MARKS: Final = ("+", "_")
"""Between group and topic, in names of the topics where RocketMQ keeps messages that were popped,
to be retried. Their letters tell such a topic as their first."""
_ID_BEGIN: Final = "F0"
"""No address of a machine begins so, and a producer's ids begin with its address."""
_ID_HASH_BYTES: Final = 15
_NOT_UNPACKED: Final = "a compressed body cannot be unpacked"
"""Where a reader has no body and does not say why."""


class Letter(msgspec.Struct, frozen=True):
    queue: MessageQueue
    offset: int
    message_id: str
    stored_ms: int
    tags: str
    keys: str
    attempts: int
    """How often it failed."""
    body: bytes | None
    """None: too large to come along, it is still where the letter is; or unreadable."""
    body_bytes: int
    properties: dict[str, str]
    unreadable: str = ""
    """Why its body cannot be read; empty when it can."""

    @property
    def place(self) -> str:
        return f"{self.queue.topic} {queue_text(self.queue)} {self.offset}"

    @property
    def origin(self) -> str:
        """The topic that it was sent to; empty when nobody tells."""
        told = next((self.properties[name] for name in _ORIGINS if self.properties.get(name)), "")
        group = self.queue.topic.removeprefix(DEAD_LETTER_PREFIX)
        popped = [f"{RETRY_PREFIX}{group}{mark}" for mark in _POP_MARKS]
        return next((told.removeprefix(one) for one in popped if told.startswith(one)), told)

    @property
    def sharding_key(self) -> str:
        return self.properties.get(SHARDING_KEY, "")

    @property
    def copy_id(self) -> str:
        """A topic that was deleted and made again counts from 0 again; its messages have other ids
        and times."""
        told = f"{self.place} {self.message_id} {self.stored_ms}".encode()
        return _ID_BEGIN + hashlib.blake2b(told, digest_size=_ID_HASH_BYTES).hexdigest().upper()

    def copy_properties(self) -> dict[str, str]:
        """All but the unique id. The copy has never been retried."""
        return {**own_properties(self.properties), FROM: self.place, FIRST_ID: self.message_id}


class Copy(msgspec.Struct, frozen=True):
    """What becomes of a letter, and where it goes."""

    id: str
    topic: str
    letter: Letter


class Candidate(NamedTuple):
    """A place where a letter is; the letter itself if it is chosen."""

    queue: MessageQueue
    offset: int
    letter: Letter | None


def candidate_of(row: Any) -> Candidate:
    """Of a row with `stored_ms`, `chosen` and `body_bytes` beside the columns."""
    queue = MessageQueue(row.topic, row.brokerName, row.queueId)
    letter = Letter(
        queue, row.queueOffset, row.msgId, row.stored_ms, row.tags or "", row.keys or "",
        row.reconsumeTimes, None if row.body is None else bytes(row.body), row.body_bytes or 0,
        dict(row.properties), "" if row.body_bytes is not None else _NOT_UNPACKED,
    ) if row.chosen else None  # fmt: skip
    return Candidate(queue, row.queueOffset, letter)


def letter_of(message: ReceivedMessage) -> Letter:
    body, unreadable = None, ""
    try:
        body = message.body
    except MalformedRecord as error:
        unreadable = str(error)
    return Letter(
        message.queue, message.queue_offset, message.message_id, message.store_timestamp,
        message.tags, message.properties.get(KEYS, ""), message.reconsume_times, body,
        len(body or b""), message.properties, unreadable,
    )  # fmt: skip
