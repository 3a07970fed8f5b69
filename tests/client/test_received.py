"""Messages as consumers get them: from a real broker's records, whole or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.client.received import ReceivedMessage, decode_messages
from cometmq.protocol.batch import encode_batch
from cometmq.protocol.compression import compress
from cometmq.protocol.errors import MalformedRecord
from cometmq.protocol.flags import (
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    INNER_BATCH,
    NEED_UNWRAP,
)
from cometmq.protocol.host import Host
from cometmq.protocol.layout import MAGIC_V2
from cometmq.protocol.message import Message
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.properties import encode_properties
from tests.protocol.records import BORN_HOST, BORN_HOST_V6, HOST, HOST_V6, STORED_AT, encoded

from .consumption import TOPIC, shop


def message_of(body: bytes = b"body", **changes: object) -> Message:
    properties = encode_properties(changes.pop("properties", {}))  # type: ignore[arg-type]
    return Message("orders", 3, body, properties, born_host=BORN_HOST, **changes)  # type: ignore[arg-type]


def only(data: bytes) -> ReceivedMessage:
    (message,) = decode_messages(data, "broker-a")
    return message


def test_every_field_of_a_record_arrives() -> None:
    message = message_of(
        b"hello",
        properties={
            "KEYS": "k1 k2",
            "TAGS": "paid",
            "UNIQ_KEY": "AB" * 16,
            "__SHARDINGKEY": "customer 7",
            "own": "ä",
        },
        flag=5,
        born_timestamp=1_700_000_000_000,
        reconsume_times=2,
        prepared_transaction_offset=77,
    )
    got = only(encoded(message, queue_offset=9, physical_offset=4711, store_host=HOST))
    assert (got.topic, got.body) == ("orders", b"hello")
    assert got.queue == MessageQueue("orders", "broker-a", 3)
    assert (got.queue_offset, got.physical_offset, got.reconsume_times) == (9, 4711, 2)
    assert (got.born_timestamp, got.store_timestamp) == (1_700_000_000_000, STORED_AT)
    assert (got.flag, got.prepared_transaction_offset) == (5, 77)
    assert (got.keys, got.tags, got.sharding_key) == (["k1", "k2"], "paid", "customer 7")
    assert got.properties["own"] == "ä"
    assert got.message_id == "AB" * 16
    assert got.offset_message_id == "C0A8000900002A9F0000000000001267"
    assert got.born_host == Host("10.1.2.3", 40001)
    assert got.store_host == Host("192.168.0.9", 10911)


def test_a_message_without_a_unique_id_goes_by_where_it_is() -> None:
    got = only(encoded(message_of(), physical_offset=1))
    assert got.message_id == got.offset_message_id
    assert (got.keys, got.tags, got.sharding_key, got.transaction_id) == ([], "", "", "")


@pytest.mark.parametrize(("born", "stored"), [(BORN_HOST_V6, HOST), (BORN_HOST, HOST_V6),
                                              (BORN_HOST_V6, HOST_V6)])  # fmt: skip
def test_hosts_may_have_long_addresses(born: bytes, stored: bytes) -> None:
    message = Message("orders", 0, b"six", born_host=born)
    got = only(encoded(message, store_host=stored))
    assert got.body == b"six"
    assert got.born_host.ip == ("2001:db8::1" if born == BORN_HOST_V6 else "10.1.2.3")
    assert got.store_host.ip == ("fd00::7" if stored == HOST_V6 else "192.168.0.9")


def as_second_version(record: bytes, topic: bytes) -> bytes:
    """A record whose topic's length takes two bytes, as RocketMQ writes for long topics."""
    at = record.index(bytes([len(topic)]) + topic)
    longer = record[:at] + len(topic).to_bytes(2, "big") + record[at + 1 :]
    return len(longer).to_bytes(4, "big") + MAGIC_V2.to_bytes(4, "big") + longer[8:]


def test_both_versions_of_the_record_are_read_side_by_side() -> None:
    first = encoded(message_of(b"old"), sealed=False)
    second = as_second_version(encoded(message_of(b"new"), sealed=False), b"orders")
    got = decode_messages(first + second + first, "broker-a")
    assert [message.body for message in got] == [b"old", b"new", b"old"]
    assert {message.topic for message in got} == {"orders"}


@pytest.mark.parametrize("kind", [COMPRESSION_ZLIB, COMPRESSION_LZ4, COMPRESSION_ZSTD, 0])
def test_packed_bodies_are_unpacked_when_they_are_asked_for(kind: int) -> None:
    packed, sys_flag = compress(b"long " * 1000, kind or COMPRESSION_ZLIB)
    if not kind:
        sys_flag &= 0xFF  # As old clients say it.
    got = only(encoded(message_of(packed, sys_flag=sys_flag)))
    assert got.stored_body == packed
    assert got.body == b"long " * 1000
    assert got.body is got.body


def test_a_retried_message_tells_where_it_was_sent_first() -> None:
    retried = Message("%RETRY%billing", 0, b"again", encode_properties({"RETRY_TOPIC": "orders"}))
    unmarked = Message("%RETRY%billing", 0, b"direct")
    got = decode_messages(encoded(retried) + encoded(unmarked), "broker-a")
    assert [message.topic for message in got] == ["orders", "%RETRY%billing"]
    assert {message.queue.topic for message in got} == {"%RETRY%billing"}


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_record_that_is_a_batch_arrives_as_its_messages(is_packed: bool) -> None:
    tagged = encode_properties({"TAGS": "A"})
    inner = [Message("", 0, b"one", tagged, flag=1), Message("", 0, b"two", tagged, flag=2)]
    body, sys_flag = encode_batch(inner), INNER_BATCH | NEED_UNWRAP
    if is_packed:
        body, packed = compress(body)
        sys_flag |= packed
    record = encoded(message_of(body, sys_flag=sys_flag), queue_offset=40)
    got = decode_messages(record + encoded(message_of(b"three"), queue_offset=42), "broker-a")
    assert [message.body for message in got] == [b"one", b"two", b"three"]
    assert [message.queue_offset for message in got] == [40, 41, 42]
    assert [(message.tags, message.flag) for message in got] == [("A", 1), ("A", 2), ("", 0)]
    assert {message.topic for message in got} == {"orders"}


def test_a_batch_that_cannot_be_read_is_refused() -> None:
    record = encoded(message_of(b"no batch", sys_flag=INNER_BATCH | NEED_UNWRAP))
    with pytest.raises(MalformedRecord):
        decode_messages(record, "broker-a")


def test_no_message_is_no_message() -> None:
    assert decode_messages(b"", "broker-a") == []


WHOLE = encoded(message_of(b"0123456789", properties={"TAGS": "A"}), sealed=False) * 2
BODIES = (b"0123456789",) * 2


@given(st.integers(1, len(WHOLE) - 1))
def test_an_answer_that_was_cut_is_refused(size: int) -> None:
    if size == len(WHOLE) // 2:
        assert len(decode_messages(WHOLE[:size], "broker-a")) == 1
    else:
        with pytest.raises(MalformedRecord):
            decode_messages(WHOLE[:size], "broker-a")


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_a_damaged_byte_never_brings_another_body(at: int, change: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[at] ^= change
    try:
        got = decode_messages(bytes(damaged), "broker-a")
    except MalformedRecord:
        return
    assert all(message.stored_body == b"0123456789" for message in got)


@given(st.binary(max_size=400))
def test_any_bytes_are_messages_or_refused(data: bytes) -> None:
    try:
        messages = decode_messages(data, "broker-a")
    except MalformedRecord:
        return
    assert messages == [] or data


async def test_what_a_broker_answers_is_what_was_sent() -> None:
    async with shop() as (_, sender):
        bodies = [b"", b"x", bytes(range(256)) * 20]
        for body in bodies[1:]:
            await sender.send(body, TAGS="t", KEYS="a b")
        answer = await sender.client.pull(TOPIC)
        got = decode_messages(answer.body, "broker-a")
    assert [message.body for message in got] == bodies[1:]
    assert [message.queue_offset for message in got] == [0, 1]
    assert {message.tags for message in got} == {"t"}
    assert {message.born_host.ip for message in got} == {"127.0.0.1"}
    assert got[0].message_id == f"{1:032X}"
