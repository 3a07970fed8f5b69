"""A queue by its full name, and maps whose keys are queues.

fastjson writes such maps with a bare object where JSON wants a text: `{{"topic":…}:{…}}`. That is
not JSON, but RocketMQ's tools read nothing else.
"""

from collections.abc import Mapping
from typing import Any

import msgspec


class MessageQueue(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    topic: str
    broker_name: str
    queue_id: int


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
