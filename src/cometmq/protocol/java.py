"""Java's String.hashCode, which decides tag filters and index slots."""

import struct


def string_hash(text: str) -> int:
    """h = 31*h + unit over UTF-16 code units, wrapped to a signed 32-bit number."""
    value = 0
    for unit in _utf16_units(text):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def key_hash(topic: str, key: str) -> int:
    """The number an index file keeps of `topic#key`: Math.abs, where the one overflow is 0."""
    value = abs(string_hash(f"{topic}#{key}"))
    return 0 if value == 0x8000_0000 else value


def tag_key(tag: str) -> str:
    """What stands for a key where a tag is indexed (since RocketMQ 5.5): `topic#T#tag`."""
    return f"T#{tag}"


def _utf16_units(text: str) -> tuple[int, ...] | bytes:
    if text.isascii():
        return text.encode("ascii")
    encoded = text.encode("utf-16-be", "surrogatepass")
    return struct.unpack(f">{len(encoded) // 2}H", encoded)
