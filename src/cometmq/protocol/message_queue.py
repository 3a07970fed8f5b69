"""A queue by its full name, and maps whose keys are queues.

fastjson writes such maps with a bare object where JSON wants a text: `{{"topic":…}:{…}}`. That is
not JSON, but RocketMQ's tools read nothing else.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from .numbers import Int32


class MessageQueue(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    topic: str
    broker_name: str
    queue_id: Int32


_QUEUE_AND_NUMBER = re.compile(rb"(\{[^{}]*+\})\s*+:\s*+(-?\d++)")
"""An entry of a map from queues to numbers. No name in it can have a brace."""


def decode_queue_numbers(body: bytes) -> dict[MessageQueue, int]:
    """The maps from queues to numbers in a body that is not JSON, as one."""
    decode = msgspec.json.Decoder(MessageQueue).decode
    return {decode(match[1]): int(match[2]) for match in _QUEUE_AND_NUMBER.finditer(body)}


def encode_queue_map(table: Mapping[MessageQueue, Any]) -> bytes:
    encode = msgspec.json.encode
    return b"{" + b",".join(encode(k) + b":" + encode(v) for k, v in table.items()) + b"}"


def encode_body(fields: Mapping[str, Any]) -> bytes:
    """An object among whose values are maps by queue; all other values go as JSON."""
    encode = msgspec.json.encode
    pieces = [encode(name) + b":" + _encode_value(value) for name, value in fields.items()]
    return b"{" + b",".join(pieces) + b"}"


def _encode_value(value: Any) -> bytes:
    if isinstance(value, Mapping) and value and isinstance(next(iter(value)), MessageQueue):
        return encode_queue_map(value)
    return msgspec.json.encode(value)
