"""Properties: RocketMQ's text of names and values."""

import pytest

from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.properties import (
    decode_properties,
    encode_properties,
    iter_properties,
    property_value,
    without_property,
)


@pytest.mark.parametrize(
    "properties",
    [{}, {"a": "b"}, {"TAGS": "标签", "KEYS": "k1 k2", "🚀": "\n \0"}, {"z": "1", "a": "2"}],
)
def test_what_is_encoded_is_decoded_in_order(properties: dict[str, str]) -> None:
    found = decode_properties(encode_properties(properties))
    assert found == properties
    assert list(found) == list(properties)


def test_each_value_ends_in_a_separator() -> None:
    assert encode_properties({"a": "b", "c": "d"}) == b"a\x01b\x02c\x01d\x02"


@pytest.mark.parametrize(
    ("encoded", "decoded"),
    # All but the first and the last two as MessageDecoder.string2messageProperties of 5.5.0 does.
    [
        (b"", {}),
        (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        (b"a\x01\x02\x01b\x02c\x01d\x02", {"c": "d"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x011\x02a\x012\x02", {"a": "2"}),
        (b"ab\x02c\x01d\x02", {"c": "d"}),
        (b"\x02\x02\x01\x02", {}),
        (b"a\x01\xff\x02", {"a": "\ufffd"}),
    ],
    ids=[
        "nothing",
        "last separator missing",
        "no value or no name",
        "separator of names in a value",
        "the later wins",
        "no separator",
        "only separators",
        "no text",
    ],
)
def test_all_kinds_of_text_are_read_as_rocketmq_does(
    encoded: bytes, decoded: dict[str, str]
) -> None:
    assert decode_properties(encoded) == decoded


def test_entries_of_one_name_are_all_seen_in_order() -> None:
    assert list(iter_properties(b"a\x011\x02b\x012\x02a\x013")) == [
        (b"a", b"1"),
        (b"b", b"2"),
        (b"a", b"3"),
    ]


@pytest.mark.parametrize("properties", [{"": "b"}, {"a": ""}])
def test_empty_names_and_values_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(IllegalMessage, match="has an empty name or value"):
        encode_properties(properties)


@pytest.mark.parametrize("mark", ["\x01", "\x02"])
def test_separators_in_names_and_values_are_refused(mark: str) -> None:
    for properties in ({f"a{mark}": "b"}, {"a": f"{mark}b"}):
        with pytest.raises(IllegalMessage, match="contains a separator byte"):
            encode_properties(properties)


@pytest.mark.parametrize(
    ("encoded", "rest"),
    [
        (b"", b""),
        (b"a\x01b\x02", b"a\x01b\x02"),
        (b"x\x01b\x02", b""),
        (b"a\x01b\x02x\x011\x02c\x01d\x02", b"a\x01b\x02c\x01d\x02"),
        (b"x\x011\x02a\x01b\x02x\x012\x02", b"a\x01b\x02"),
        (b"xx\x01b\x02a\x01x\x02", b"xx\x01b\x02a\x01x\x02"),
        (b"a\x01b\x02x\x01", b"a\x01b"),
    ],
)
def test_a_property_is_taken_out_wherever_it_stands(encoded: bytes, rest: bytes) -> None:
    assert without_property(encoded, b"x") == rest


@pytest.mark.parametrize(
    "encoded", [b"a\x011\x02a\x01\x02", b"aa\x012\x02a\x011", b"a\x012\x02a\x011\x02ba\x013\x02"]
)
def test_one_value_is_found_as_among_all(encoded: bytes) -> None:
    assert property_value(encoded, b"a") == b"1"
    assert decode_properties(encoded)["a"] == "1"
