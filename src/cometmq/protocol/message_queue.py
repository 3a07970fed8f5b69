"""A queue by its full name, and maps whose keys are queues.

fastjson writes such maps with a bare object where JSON wants a text: `{{"topic":…}:{…}}`. That is
not JSON, but RocketMQ's tools read nothing else.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from .command import FRAME_BYTES_MAX
from .fastjson import MalformedBody, decode_body
from .numbers import Int32

QUEUE_MAPS_BYTES_MAX: Final = FRAME_BYTES_MAX
"""Of a body whose keys are made JSON before it is read, which takes a second for as much."""


class MessageQueue(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    topic: str
    broker_name: str
    queue_id: Int32

    def __str__(self) -> str:
        return f"queue {self.queue_id} of {self.topic} at {self.broker_name}"


_QUEUE_AND_NUMBER = re.compile(rb"(\{[^{}]*+\})\s*+:\s*+(-?\d++)")
"""An entry of a map from queues to numbers. No name in it can have a brace."""


_TEXT = rb'"(?:[^"\\]|\\.)*+"'
# Texts pass whole, also one without its end: nothing in them is touched, or looked at twice.
_BARE_OBJECT_KEY = re.compile(
    _TEXT + rb"?|([{,]\s*+)(\{(?:" + _TEXT + rb'|[^{}"])*+\})(\s*+:)', re.DOTALL
)

T = TypeVar("T")
Value = TypeVar("Value")


def decode_queue_maps(body: bytes, kind: type[T], what: str) -> T:
    """A body among whose values are maps by queue. In `kind` they are `dict[str, …]`, with queues
    as texts; `by_queue` makes them what they are."""
    if len(body) > QUEUE_MAPS_BYTES_MAX:
        raise MalformedBody(f"the {what} cannot be read: {len(body)} bytes are too many")
    return decode_body(_BARE_OBJECT_KEY.sub(_quote_key, body), kind, what)


def by_queue(table: Mapping[str, Value]) -> dict[MessageQueue, Value]:
    decode = msgspec.json.Decoder(MessageQueue, strict=False).decode
    try:
        return {decode(key): value for key, value in table.items()}
    except msgspec.MsgspecError as error:
        raise MalformedBody(f"a map by queue has another key: {error}") from None


def _quote_key(match: re.Match[bytes]) -> bytes:
    if match[2] is None:
        return match[0]
    return match[1] + msgspec.json.encode(match[2].decode(errors="replace")) + match[3]


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
