"""JSON as RocketMQ's Java side writes it: integer keys of maps stand without quotes.

Standard JSON is read at full speed; only what is not standard is rewritten first. What we write
ourselves is always standard, which every peer reads.
"""

import re
from typing import Any, Final, TypeVar

import msgspec

from .command import MalformedFields

BARE_KEYS_BYTES_MAX: Final = 4 * 1024**2
"""Bodies over this are read only if they are standard JSON: rewriting takes a second for as much,
and meanwhile nobody else is served."""

T = TypeVar("T")
# A text without its end is taken whole, too: else each quote in it would be tried again.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"?|([{,]\s*+)(-?\d++)(\s*+:)', re.DOTALL)


class MalformedBody(MalformedFields):
    """A command's body is not what its code asks for."""


def parse_json(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:
        return msgspec.json.decode(_TOKEN.sub(_quote_key, content))


def decode_body(content: bytes, kind: type[T], what: str) -> T:
    """A body as a structure; MalformedBody says in which `what` something is wrong."""
    try:
        try:
            return msgspec.json.decode(content, type=kind, strict=False)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            if len(content) > BARE_KEYS_BYTES_MAX:
                raise
            return msgspec.convert(parse_json(content), kind, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedBody(f"the {what} cannot be read: {error}") from None


def _quote_key(match: re.Match[bytes]) -> bytes:
    """Quote an integer key; strings pass through whole, so nothing inside them is touched."""
    if match[2] is None:
        return match[0]
    return match[1] + b'"' + match[2] + b'"' + match[3]
