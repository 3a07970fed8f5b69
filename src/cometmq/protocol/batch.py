"""The body of a batch send: messages one behind the other, without topic and queue.

int32 size, int32 magic (0), int32 CRC (0), int32 flag, int32 length, body,
int16 length, properties
"""

import struct
from collections.abc import Iterable

import msgspec

from .errors import IllegalMessage, MalformedRecord
from .message import Message
from .properties import PROPERTIES_BYTES_MAX

_HEAD = struct.Struct(">iiiii")
_pack_head = _HEAD.pack
_pack_size = struct.Struct(">H").pack
BATCHED_BYTES = _HEAD.size + 2
"""What a message takes in a batch beside body and properties."""
MESSAGES_MAX = 100_000
"""More in one batch is an attack, not a batch: each would be a few bytes."""


def encode_batch(messages: Iterable[Message]) -> bytes:
    parts: list[bytes] = []
    for message in messages:
        properties = message.properties
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise IllegalMessage(f"properties have {len(properties)} bytes")
        parts.append(encode_batched(message.flag, message.body, properties))
    return b"".join(parts)


def encode_batched(flag: int, body: bytes, properties: bytes) -> bytes:
    """One message of a batch; a batch is any number of them, one behind the other."""
    body_size, properties_size = len(body), len(properties)
    size = BATCHED_BYTES + body_size + properties_size
    return _pack_head(size, 0, 0, flag, body_size) + body + _pack_size(properties_size) + properties


def decode_batch(body: bytes, like: Message) -> list[Message]:
    """The messages of a batch body; what the body does not carry is taken from `like`."""
    messages: list[Message] = []
    at = 0
    while at < len(body):
        if len(messages) == MESSAGES_MAX:
            raise MalformedRecord(f"a batch of over {MESSAGES_MAX} messages")
        flag, content, properties, at = _decode_one(body, at)
        messages.append(
            msgspec.structs.replace(like, flag=flag, body=content, properties=properties)
        )
    if not messages:
        raise MalformedRecord("a batch without messages")
    return messages


def _decode_one(body: bytes, at: int) -> tuple[int, bytes, bytes, int]:
    if at + _HEAD.size > len(body):
        raise MalformedRecord(f"a batch ends in the middle of the message at byte {at}")
    size, _, _, flag, content_size = _HEAD.unpack_from(body, at)
    end = at + size
    content_at = at + _HEAD.size
    properties_at = content_at + content_size + 2
    if content_size < 0 or end > len(body) or properties_at > end:
        raise MalformedRecord(f"the message at byte {at} of a batch does not fit into it")
    properties_size = int.from_bytes(body[properties_at - 2 : properties_at], "big", signed=True)
    if properties_size < 0 or properties_at + properties_size != end:
        raise MalformedRecord(f"the lengths of the message at byte {at} of a batch don't add up")
    return flag, body[content_at : properties_at - 2], body[properties_at:end], end
