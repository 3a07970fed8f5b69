"""Records: what is encoded is decoded, RocketMQ's records are read, and limits are told clearly."""

from itertools import accumulate

import msgspec
import pytest

from cometmq.protocol import flags
from cometmq.protocol.errors import IllegalMessage, MalformedRecord
from cometmq.protocol.host import Host, unpack_host
from cometmq.protocol.hot import check_record, encode_record
from cometmq.protocol.layout import FILE_END_BYTES, SEAL_BYTES
from cometmq.protocol.message import Message, StoredMessage
from cometmq.protocol.properties import decode_properties, encode_properties, without_property
from cometmq.protocol.record import decode_record, iter_records, record_store_timestamp

from .records import (
    BORN_HOST,
    BORN_HOST_V6,
    HOST,
    HOST_V6,
    STORED_AT,
    encoded,
    end_marker,
    simple,
)
from .rocketmq_bytes import LONG_TOPIC, PLAIN_LOG, PULLED, SEALED_RECORDS

SEALING = pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "unsealed"])
BORN_HOSTS = pytest.mark.parametrize("born_host", [BORN_HOST, BORN_HOST_V6], ids=["born4", "born6"])
STORE_HOSTS = pytest.mark.parametrize("store_host", [HOST, HOST_V6], ids=["store4", "store6"])
MAGIC_V1 = bytes.fromhex("daa320a7")
MAGIC_V2 = bytes.fromhex("daa320ab")


def decoded(record: bytes, physical_offset: int = 0) -> StoredMessage:
    return decode_record(memoryview(record), 0, physical_offset)


@SEALING
@BORN_HOSTS
@STORE_HOSTS
@pytest.mark.parametrize("topic", ["orders", "t" * 127, "t" * 128, "t" * 255, "订单主题"])
@pytest.mark.parametrize("body", [b"", b"x", bytes(range(256))], ids=["empty", "one", "all bytes"])
def test_what_is_encoded_is_decoded(
    topic: str, body: bytes, born_host: bytes, store_host: bytes, sealed: bool
) -> None:
    message = Message(
        topic=topic,
        queue_id=5,
        body=body,
        properties=encode_properties({"TAGS": "标签", "KEYS": "k1 k2"}),
        flag=-7,
        sys_flag=flags.TRANSACTION_COMMIT | flags.COMPRESSED,
        born_timestamp=1_700_000_000_123,
        born_host=born_host,
        reconsume_times=16,
        prepared_transaction_offset=1 << 40,
    )
    record = encoded(
        message,
        queue_offset=(1 << 40) + 1,
        physical_offset=1 << 50,
        store_host=store_host,
        sealed=sealed,
    )
    found = decoded(record, 1 << 50)
    assert found.topic == topic
    assert found.queue_id == 5
    assert found.queue_offset == (1 << 40) + 1
    assert found.physical_offset == 1 << 50
    assert found.size == len(record)
    assert found.body == body
    assert found.property_map() == {"TAGS": "标签", "KEYS": "k1 k2"}
    assert found.flag == -7
    assert found.sys_flag & ~0x30 == message.sys_flag
    assert found.born_timestamp == 1_700_000_000_123
    assert found.born_host == unpack_host(born_host)
    assert found.store_timestamp == STORED_AT
    assert found.store_host == unpack_host(store_host)
    assert found.reconsume_times == 16
    assert found.prepared_transaction_offset == 1 << 40
    assert record_store_timestamp(memoryview(record), 0) == STORED_AT


@pytest.mark.parametrize(("length", "magic"), [(127, MAGIC_V1), (128, MAGIC_V2)])
def test_a_topic_of_over_127_bytes_makes_a_record_of_version_2(length: int, magic: bytes) -> None:
    assert encoded(simple("t" * length))[4:8] == magic


def test_the_version_follows_from_bytes_and_not_from_characters() -> None:
    assert encoded(simple("题" * 43))[4:8] == MAGIC_V2


@SEALING
def test_a_large_body_comes_back_whole(sealed: bool) -> None:
    body = bytes(range(251)) * 17_000
    found = decoded(encoded(Message("orders", 0, body), sealed=sealed))
    assert found.body == body


@BORN_HOSTS
@STORE_HOSTS
def test_host_bits_follow_from_the_hosts_and_not_from_the_sender(
    born_host: bytes, store_host: bytes
) -> None:
    message = msgspec.structs.replace(
        simple(), born_host=born_host, sys_flag=0x30 | flags.MULTI_TAGS
    )
    found = decoded(encoded(message, store_host=store_host))
    expected = flags.MULTI_TAGS
    expected |= flags.BORN_HOST_V6 if born_host == BORN_HOST_V6 else 0
    expected |= flags.STORE_HOST_V6 if store_host == HOST_V6 else 0
    assert found.sys_flag == expected


def test_a_sealed_record_ends_in_its_checksum_as_a_property() -> None:
    record = encoded(simple(properties=b"TAGS\x01a\x02"))
    found = decoded(record)
    assert found.properties.startswith(b"TAGS\x01a\x02__CRC32#\x01")
    assert len(found.properties) == len(b"TAGS\x01a\x02") + SEAL_BYTES
    assert decode_properties(found.properties)["__CRC32#"].isdigit()


def test_users_do_not_see_the_checksum_among_their_properties() -> None:
    assert decoded(encoded(simple(properties=b"TAGS\x01a\x02"))).property_map() == {"TAGS": "a"}


def test_an_unsealed_record_keeps_its_properties_as_they_came() -> None:
    properties = b"a\x01b\x02c\x01d"
    assert decoded(encoded(simple(properties=properties), sealed=False)).properties == properties


def test_sealing_adds_a_missing_last_separator() -> None:
    closed = encoded(simple(properties=b"a\x01b\x02"))
    assert encoded(simple(properties=b"a\x01b")) == closed


@pytest.mark.parametrize(
    "properties",
    [
        b"__CRC32#\x011234567890\x02a\x01b\x02c\x01d\x02",
        b"a\x01b\x02__CRC32#\x011234567890\x02c\x01d\x02",
        b"a\x01b\x02c\x01d\x02__CRC32#\x011234567890\x02",
        b"a\x01b\x02c\x01d\x02__CRC32#\x011234567890",
        b"__CRC32#\x011\x02a\x01b\x02__CRC32#\x012\x02c\x01d",
    ],
    ids=["first", "middle", "last", "unclosed", "twice"],
)
def test_sealing_replaces_a_checksum_that_is_already_there(properties: bytes) -> None:
    assert encoded(simple(properties=properties)) == encoded(simple(properties=b"a\x01b\x02c\x01d"))


def test_a_stored_record_sealed_anew_with_its_properties_is_the_same() -> None:
    record = encoded(simple(properties=b"a\x01b\x02"))
    assert encoded(simple(properties=decoded(record).properties)) == record


def test_the_checksums_name_as_a_value_is_left_alone() -> None:
    found = decoded(encoded(simple(properties=b"note\x01__CRC32#\x02")))
    assert found.property_map() == {"note": "__CRC32#"}


@pytest.mark.parametrize("topic", ["", "t" * 256, "题" * 86])
def test_a_topic_out_of_bounds_is_refused(topic: str) -> None:
    with pytest.raises(
        IllegalMessage, match=rf"^topic has {len(topic.encode())} bytes, 1 to 255 are allowed$"
    ):
        encoded(simple(topic))


@pytest.mark.parametrize(("sealed", "most"), [(False, 32767), (True, 32767 - SEAL_BYTES)])
def test_properties_may_fill_their_length_field_and_no_more(sealed: bool, most: int) -> None:
    fitting = b"k\x01" + b"v" * (most - 3) + b"\x02"
    stored = decoded(encoded(simple(properties=fitting), sealed=sealed))
    assert len(stored.properties) == 32767
    with pytest.raises(IllegalMessage, match=r"^properties have 32768 bytes, 32767 are allowed$"):
        encoded(simple(properties=b"k" + fitting), sealed=sealed)


@pytest.mark.parametrize("host", [b"", bytes(4), bytes(16), bytes(21)])
def test_a_packed_host_of_another_length_is_refused(host: bytes) -> None:
    text = rf"^a packed host has 8 or 20 bytes, not {len(host)}$"
    with pytest.raises(IllegalMessage, match=text):
        encoded(msgspec.structs.replace(simple(), born_host=host))
    with pytest.raises(IllegalMessage, match=text):
        encoded(simple(), store_host=host)


@SEALING
def test_a_record_leaves_room_for_the_files_end_marker(sealed: bool) -> None:
    record = encoded(simple(), sealed=sealed)
    needed = len(record) + FILE_END_BYTES
    for room in (0, len(record), needed - 1):
        buffer = bytearray(b"\xee" * needed)
        written = encode_record(
            memoryview(buffer), 0, room, simple(), 0, 0, STORED_AT, HOST, sealed
        )
        assert written == 0
        assert buffer == b"\xee" * needed
    buffer = bytearray(b"\xee" * needed)
    written = encode_record(memoryview(buffer), 0, needed, simple(), 0, 0, STORED_AT, HOST, sealed)
    assert written == len(record)
    assert buffer == record + b"\xee" * FILE_END_BYTES


def test_nothing_but_the_record_is_written() -> None:
    record = encoded(simple(), physical_offset=50)
    buffer = bytearray(b"\xee" * 500)
    assert encode_record(memoryview(buffer), 50, 500, simple(), 0, 50, STORED_AT, HOST, True)
    assert buffer == b"\xee" * 50 + record + b"\xee" * (450 - len(record))


def test_records_are_decoded_one_behind_the_other() -> None:
    first = encoded(simple("a"), physical_offset=1000)
    second = encoded(simple("b"), physical_offset=5000, sealed=False)
    found = list(iter_records(memoryview(first + second)))
    assert [(message.topic, message.physical_offset) for message in found] == [
        ("a", 1000),
        ("b", 5000),
    ]


def test_stray_bytes_behind_the_last_record_are_told() -> None:
    with pytest.raises(MalformedRecord, match="3 stray bytes behind the last record"):
        list(iter_records(memoryview(encoded(simple()) + b"abc")))


def test_an_end_marker_is_not_decoded_as_a_record() -> None:
    with pytest.raises(MalformedRecord, match="no record starts here"):
        decoded(end_marker() + bytes(100))


def test_messages_are_found_by_unique_id_and_by_each_of_their_keys() -> None:
    properties = encode_properties({"UNIQ_KEY": "U1", "KEYS": "k1 k2"})
    message = decoded(encoded(simple(properties=properties)))
    assert [message.has_key(key) for key in ("U1", "k1", "k2", "k", "k1 k2", "u1")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


def test_a_store_time_before_1970_reads_the_same_everywhere() -> None:
    record = bytearray(encoded(simple(), sealed=False))
    record[56:64] = (-5).to_bytes(8, "big", signed=True)
    assert record_store_timestamp(memoryview(record), 0) == -5
    assert decoded(bytes(record)).store_timestamp == -5


@pytest.mark.parametrize("field", ["queue_id", "flag", "reconsume_times"])
def test_numbers_that_do_not_fit_their_field_are_refused(field: str) -> None:
    message = simple()
    setattr(message, field, 1 << 31)
    with pytest.raises(IllegalMessage):
        encoded(message)


class TestRecordsOfRocketMQ:
    def test_pulled_records_are_decoded(self) -> None:
        found = list(iter_records(memoryview(PULLED)))
        assert [message.body for message in found] == [
            b"hello wire 0",
            b"batch 0",
            b"batch 1",
            b"batch 2",
        ]
        assert [message.queue_offset for message in found] == [0, 1, 2, 3]
        assert found[0] == StoredMessage(
            topic="wiretest2",
            queue_id=0,
            queue_offset=0,
            physical_offset=1636,
            size=270,
            body=b"hello wire 0",
            properties=PULLED[112:270],
            flag=0,
            sys_flag=0,
            body_crc=0x7D80A6B1,
            born_timestamp=1_794_781_673_837,
            born_host=Host("127.0.0.1", 41886),
            store_timestamp=1_794_781_673_890,
            store_host=Host("127.0.0.1", 10921),
            reconsume_times=0,
            prepared_transaction_offset=0,
        )
        assert found[0].property_map() == {
            "MSG_REGION": "DefaultRegion",
            "UNIQ_KEY": "FD000000000000000000000000000002101D30946E094CEB116C0000",
            "CLUSTER": "DefaultCluster",
            "TAGS": "TagA",
            "KEYS": "key0",
            "WAIT": "true",
            "TRACE_ON": "true",
        }

    def test_records_with_a_checksum_are_decoded(self) -> None:
        found = list(iter_records(memoryview(b"".join(SEALED_RECORDS))))
        assert [message.topic for message in found[:4]] == ["TopicTest"] * 3 + [LONG_TOPIC]
        assert [(message.born_host.ip, message.store_host.ip) for message in found[:4]] == [
            ("10.1.2.3", "192.168.0.9"),
            ("2001:db8::1", "192.168.0.9"),
            ("10.1.2.3", "fd00::7"),
            ("2001:db8::1", "fd00::7"),
        ]
        assert [message.property_map() for message in found[1:5]] == [
            {"TAGS": "TagB"},
            {"a": "b"},
            {"KEYS": "键", "TAGS": "标签"},
            {},
        ]

    @pytest.mark.parametrize("number", range(len(SEALED_RECORDS)))
    def test_our_checksum_is_the_one_that_rocketmq_writes(self, number: int) -> None:
        at = list(accumulate((len(record) for record in SEALED_RECORDS), initial=0))[number]
        assert_encoded_alike(SEALED_RECORDS[number], at, sealed=True)

    def test_our_unsealed_records_are_those_that_rocketmq_writes(self) -> None:
        for log in (PLAIN_LOG, PULLED):
            position = 0
            for message in iter_records(memoryview(log)):
                record = log[position : position + message.size]
                assert_encoded_alike(record, message.physical_offset, sealed=False)
                position += message.size

    def test_a_flipped_bit_in_a_record_with_a_checksum_is_noticed(self) -> None:
        first = bytearray(SEALED_RECORDS[0])
        assert check_record(memoryview(first), 0, len(first), 0) == len(first)
        first[40] ^= 1
        assert check_record(memoryview(first), 0, len(first), 0) < 0


def assert_encoded_alike(record: bytes, physical_offset: int, *, sealed: bool) -> None:
    """What we encode from a decoded record is the record."""
    stored = decoded(record, physical_offset)
    born_size = 20 if stored.sys_flag & flags.BORN_HOST_V6 else 8
    store_size = 20 if stored.sys_flag & flags.STORE_HOST_V6 else 8
    store_host_at = 48 + born_size + 8
    message = Message(
        topic=stored.topic,
        queue_id=stored.queue_id,
        body=stored.body,
        properties=without_property(stored.properties, b"__CRC32#"),
        flag=stored.flag,
        sys_flag=stored.sys_flag,
        born_timestamp=stored.born_timestamp,
        born_host=record[48 : 48 + born_size],
        reconsume_times=stored.reconsume_times,
        prepared_transaction_offset=stored.prepared_transaction_offset,
    )
    again = encoded(
        message,
        queue_offset=stored.queue_offset,
        physical_offset=physical_offset,
        stored_at=stored.store_timestamp,
        store_host=record[store_host_at : store_host_at + store_size],
        sealed=sealed,
    )
    assert again == record
