"""Batches: several messages in one body, as RocketMQ's clients send them."""

import struct

import pytest

from cometmq.protocol import batch
from cometmq.protocol.batch import decode_batch, encode_batch
from cometmq.protocol.errors import IllegalMessage, MalformedRecord
from cometmq.protocol.message import Message
from cometmq.protocol.properties import decode_properties

from .records import BORN_HOST

LIKE = Message(
    "orders", 3, b"the whole body", b"WAIT\x01true\x02", 1, 2, 1_700_000_000_000, BORN_HOST, 4, 5
)
ROCKETMQ = bytes.fromhex(
    "00000035000000000000000000000009000000036f6e65001c4b455953016b31025741495401747275650254"
    "414753015461674102000000270000000000000000000000000000000774776f20e4ba8c000a574149540174"
    "72756502"
)
"""From MessageDecoder.encodeMessages of 5.5.0: ("one", TagA, key k1, flag 9) and ("two 二")."""


def message(body: bytes, properties: bytes = b"", flag: int = 0) -> Message:
    return Message("orders", 0, body, properties, flag)


def test_messages_come_back_in_order() -> None:
    sent = [message(b"one", b"TAGS\x01a\x02", 7), message(b""), message(bytes(1000), b"k\x01v", -1)]
    found = decode_batch(encode_batch(sent), LIKE)
    assert [(each.body, each.properties, each.flag) for each in found] == [
        (each.body, each.properties, each.flag) for each in sent
    ]


def test_what_a_batch_does_not_carry_comes_from_its_envelope() -> None:
    (found,) = decode_batch(encode_batch([message(b"one", b"TAGS\x01a\x02", 7)]), LIKE)
    assert found == Message(
        "orders", 3, b"one", b"TAGS\x01a\x02", 7, 2, 1_700_000_000_000, BORN_HOST, 4, 5
    )
    assert LIKE.body == b"the whole body"


def test_a_batch_of_rocketmq_is_read_and_written_alike() -> None:
    found = decode_batch(ROCKETMQ, LIKE)
    assert [(each.body.decode(), each.flag) for each in found] == [("one", 9), ("two 二", 0)]
    assert [decode_properties(each.properties) for each in found] == [
        {"KEYS": "k1", "WAIT": "true", "TAGS": "TagA"},
        {"WAIT": "true"},
    ]
    assert encode_batch(found) == ROCKETMQ


def test_a_batch_that_ends_early_is_refused() -> None:
    first_size = 0x35
    for kept in range(1, len(ROCKETMQ)):
        if kept != first_size:
            with pytest.raises(MalformedRecord, match=r"message at byte (0|53)\b"):
                decode_batch(ROCKETMQ[:kept], LIKE)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(MalformedRecord, match="a batch without messages"):
        decode_batch(b"", LIKE)


@pytest.mark.parametrize(
    ("size", "body_size", "properties_size"),
    [
        (-1, 3, 2),
        (0, 3, 2),
        (26, 3, 2),
        (28, 3, 2),
        (27, -1, 2),
        (27, 4, 2),
        (27, 2, 2),
        (27, 1 << 30, 2),
        (27, 3, 1),
        (27, 3, 3),
        (27, 3, -1),
        (0x7FFFFFFF, 3, 2),
    ],
)
def test_lengths_that_do_not_add_up_are_refused(
    size: int, body_size: int, properties_size: int
) -> None:
    good = struct.pack(">5i3sh2s", 27, 0, 0, 0, 3, b"one", 2, b"ab")
    assert decode_batch(good, LIKE)[0].body == b"one"
    bad = struct.pack(">5i3sh2s", size, 0, 0, 0, body_size, b"one", properties_size, b"ab")
    with pytest.raises(MalformedRecord, match="message at byte 0 of a batch"):
        decode_batch(bad, LIKE)


def test_more_messages_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MESSAGES_MAX", 3)
    assert len(decode_batch(encode_batch([message(b"")] * 3), LIKE)) == 3
    with pytest.raises(MalformedRecord, match="a batch of over 3 messages"):
        decode_batch(encode_batch([message(b"")] * 4), LIKE)


def test_properties_too_long_for_their_field_are_refused() -> None:
    assert decode_batch(encode_batch([message(b"", b"x" * 32767)]), LIKE)
    with pytest.raises(IllegalMessage, match="properties have 32768 bytes"):
        encode_batch([message(b"", b"x" * 32768)])
