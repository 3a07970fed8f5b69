"""Java's String.hashCode, which decides tag filters and index slots."""

import operator
import struct
from functools import lru_cache
from typing import Final

_POWERS: Final = tuple(pow(31, number, 1 << 32) for number in range(512))


_COUNT_CHARS: Final = 4
"""Characters at the end of a unique id that differ from one message to the next."""
_TIME_CHARS: Final = 8
"""Those before them differ from one millisecond to the next."""


def string_hash(text: str) -> int:
    """h = 31*h + unit over UTF-16 code units, wrapped to a signed 32-bit number."""
    value = _hash_on(0, text)
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def key_hash(topic: str, key: str) -> int:
    """The number an index file keeps of `topic#key`: Math.abs, where the one overflow is 0."""
    value = _beginning_hash(topic, key[:-_COUNT_CHARS])
    end = key[-_COUNT_CHARS:]
    if len(end) == _COUNT_CHARS and end.isascii():
        first, second, third, fourth = end.encode()
        value = value * 31**4 + first * 31**3 + second * 31**2 + third * 31 + fourth
        value &= 0xFFFFFFFF
    else:
        value = _hash_on(value, end)
    return 0x1_0000_0000 - value if value > 0x8000_0000 else value & 0x7FFFFFFF


@lru_cache(1024)
def _beginning_hash(topic: str, beginning: str) -> int:
    return _hash_on(_sender_hash(topic, beginning[:-_TIME_CHARS]), beginning[-_TIME_CHARS:])


@lru_cache(4096)
def _sender_hash(topic: str, beginning: str) -> int:
    return _hash_on(0, f"{topic}#{beginning}")


def _hash_on(value: int, text: str) -> int:
    """The hash of all that went before goes on over a text; without a sign."""
    units = _utf16_units(text)
    count = len(units)
    if count < len(_POWERS):
        total: int = sum(map(operator.mul, units[::-1], _POWERS), value * _POWERS[count])
        return total & 0xFFFFFFFF
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value


def tag_key(tag: str) -> str:
    """What stands for a key where a tag is indexed (since RocketMQ 5.5): `topic#T#tag`."""
    return f"T#{tag}"


def _utf16_units(text: str) -> tuple[int, ...] | bytes:
    if text.isascii():
        return text.encode("ascii")
    encoded = text.encode("utf-16-be", "surrogatepass")
    return struct.unpack(f">{len(encoded) // 2}H", encoded)
