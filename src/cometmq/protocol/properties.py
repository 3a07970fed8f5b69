"""Message properties as RocketMQ lays them out: `name 0x01 value 0x02`, repeated.

The last 0x02 may be missing. An entry without a name or without a value does not count,
and of two entries with one name the later wins, as in the Java decoder.
"""

from collections.abc import Iterator, Mapping

from .errors import IllegalMessage

NAME_END = b"\x01"
ENTRY_END = b"\x02"
PROPERTIES_BYTES_MAX = 32767
"""The length field is a signed 16-bit number."""

KEYS = "KEYS"
TAGS = "TAGS"
UNIQUE_KEY = "UNIQ_KEY"
RECORD_CRC = "__CRC32#"
KEY_SEPARATOR = " "


def encode_properties(properties: Mapping[str, str]) -> bytes:
    parts: list[str] = []
    for name, value in properties.items():
        if not name or not value:
            raise IllegalMessage(f"property {name!r} has an empty name or value")
        if any(mark in text for text in (name, value) for mark in "\x01\x02"):
            raise IllegalMessage(f"property {name!r} contains a separator byte (0x01 or 0x02)")
        parts.append(f"{name}\x01{value}\x02")
    return "".join(parts).encode()


def iter_properties(encoded: bytes) -> Iterator[tuple[bytes, bytes]]:
    for entry in encoded.split(ENTRY_END):
        name, found, value = entry.partition(NAME_END)
        if found and name and value:
            yield name, value


def decode_properties(encoded: bytes) -> dict[str, str]:
    return {
        name.decode(errors="replace"): value.decode(errors="replace")
        for name, value in iter_properties(encoded)
    }


def property_value(encoded: bytes, name: bytes) -> bytes | None:
    """The value of one property without decoding the others; None when it is not there."""
    mark = name + NAME_END
    at = encoded.rfind(mark)
    while at >= 0:
        # The end of a longer name is not the name, and an empty value does not count.
        if at == 0 or encoded.startswith(ENTRY_END, at - 1):
            value, _, _ = encoded[at + len(mark) :].partition(ENTRY_END)
            if value:
                return value
        at = encoded.rfind(mark, 0, at)
    return None


def with_property(encoded: bytes, name: bytes, value: bytes) -> bytes:
    """The same bytes with one property set; the others stay as they are, readable or not."""
    encoded = without_property(encoded, name)
    if encoded and not encoded.endswith(ENTRY_END):
        encoded += ENTRY_END
    return encoded + name + NAME_END + value + ENTRY_END


def without_property(encoded: bytes, name: bytes) -> bytes:
    """The same bytes less every entry of that name; untouched when there is none."""
    if name not in encoded:
        return encoded
    kept = [entry for entry in encoded.split(ENTRY_END) if not entry.startswith(name + NAME_END)]
    return ENTRY_END.join(kept)
