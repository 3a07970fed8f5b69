"""Damage: no flipped byte and no lost page passes for a record."""

from collections.abc import Iterable

import pytest

from cometmq.protocol.errors import MalformedRecord
from cometmq.protocol.hot import check_record, scan_records
from cometmq.protocol.layout import FIXED_BYTES_MIN
from cometmq.protocol.message import Message
from cometmq.protocol.record import decode_record
from cometmq.protocol.scan import Damage, Stop

from .records import (
    BORN_HOST_V6,
    HOST_V6,
    Put,
    encoded,
    flipped,
    log_of,
    numbered_log,
    simple,
)
from .rocketmq_bytes import SEALED_RECORDS

AT = 1 << 33
"""A physical offset with bits in both its halves."""
MASKS = (0x01, 0x02, 0x0C, 0x10, 0x20, 0x80, 0xFF)
"""Single bits, the bits by which the two magic numbers differ, those of the host flags, and all."""

SEALED = {
    "plain": encoded(simple(properties=b"TAGS\x01a\x02KEYS\x01k1 k2\x02"), physical_offset=AT),
    "no properties": encoded(simple(), physical_offset=AT),
    "empty body": encoded(Message("orders", 3, b""), physical_offset=AT),
    "version 2": encoded(Message("t" * 200, 3, b"body"), physical_offset=AT),
    "IPv6": encoded(
        Message("orders", 3, b"body", b"TAGS\x01a\x02", born_host=BORN_HOST_V6),
        physical_offset=AT,
        store_host=HOST_V6,
    ),
    "digits before the seal": encoded(
        simple(properties=b"number\x01" + b"1" * 40), physical_offset=AT
    ),
    "zeros in the body": encoded(Message("orders", 3, bytes(300)), physical_offset=AT),
}
EVERY_SEALED = pytest.mark.parametrize("record", SEALED.values(), ids=SEALED)

BODY = b"a body of some length"
UNSEALED = encoded(Message("orders", 3, BODY, b"TAGS\x01a\x02"), physical_offset=AT, sealed=False)
BODY_AT = FIXED_BYTES_MIN - 3
TOPIC_AT = BODY_AT + len(BODY)
PROPERTIES_AT = TOPIC_AT + 1 + len("orders")


def checked(record: bytes) -> int:
    return check_record(memoryview(record), 0, len(record), AT)


def assert_damaged(record: bytes) -> None:
    assert checked(record) < 0
    with pytest.raises(MalformedRecord, match=f"no record at physical offset {AT}: "):
        decode_record(memoryview(record), 0, AT)


def assert_flips_noticed(record: bytes, places: Iterable[int]) -> None:
    for at in places:
        for mask in MASKS:
            assert checked(flipped(record, at, mask)) < 0, f"byte {at}, mask 0x{mask:02x}"


@EVERY_SEALED
def test_an_undamaged_record_passes(record: bytes) -> None:
    assert checked(record) == len(record)


@EVERY_SEALED
def test_every_flipped_byte_of_a_sealed_record_is_noticed(record: bytes) -> None:
    assert_flips_noticed(record, range(len(record)))


@EVERY_SEALED
def test_every_flipped_byte_before_a_further_record_is_noticed(record: bytes) -> None:
    """With bytes behind it, a size field that grew does not reach beyond the data."""
    behind = record * 2
    for at in range(len(record)):
        for mask in MASKS:
            damaged = memoryview(flipped(behind, at, mask))
            assert check_record(damaged, 0, len(damaged), AT) < 0, f"byte {at}, mask 0x{mask:02x}"


def test_every_single_bit_of_a_sealed_record_counts() -> None:
    record = SEALED["plain"]
    for at in range(len(record)):
        for bit in range(8):
            assert_damaged(flipped(record, at, 1 << bit))


@EVERY_SEALED
def test_zeros_over_the_tail_of_a_sealed_record_are_noticed(record: bytes) -> None:
    """A page that never reached the disk reads as zeros."""
    for kept in range(len(record)):
        assert checked(record[:kept] + bytes(len(record) - kept)) < 0, f"{kept} bytes kept"


@EVERY_SEALED
def test_a_cut_record_is_noticed(record: bytes) -> None:
    for kept in range(len(record)):
        assert checked(record[:kept]) == -Damage.SIZE


def test_every_flipped_byte_of_rocketmqs_sealed_record_is_noticed() -> None:
    record = SEALED_RECORDS[0]
    for at in range(len(record)):
        for mask in MASKS:
            damaged = memoryview(flipped(record, at, mask))
            assert check_record(damaged, 0, len(record), 0) < 0, f"byte {at}, mask 0x{mask:02x}"


@pytest.mark.parametrize(
    ("places", "what"),
    [
        (range(4), "size"),
        (range(4, 8), "magic number"),
        (range(8, 12), "checksum of the body"),
        (range(28, 36), "physical offset"),
        (range(BODY_AT - 4, BODY_AT), "length of the body"),
        (range(BODY_AT, TOPIC_AT), "body"),
        (range(TOPIC_AT, TOPIC_AT + 1), "length of the topic"),
        (range(PROPERTIES_AT, PROPERTIES_AT + 2), "length of the properties"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_flips_that_an_unsealed_record_can_show_are_noticed(places: range, what: str) -> None:
    assert checked(UNSEALED) == len(UNSEALED)
    assert_flips_noticed(UNSEALED, places)


def test_the_checksum_of_an_empty_body_is_not_looked_at() -> None:
    """RocketMQ does not either, so its stores may have any number there."""
    record = encoded(Message("orders", 3, b""), physical_offset=AT, sealed=False)
    assert checked(flipped(record, 9, 0xFF)) == len(record)


def test_zeros_over_the_properties_of_an_unsealed_record_are_noticed() -> None:
    for kept in range(8, len(UNSEALED)):
        assert checked(UNSEALED[:kept] + bytes(len(UNSEALED) - kept)) < 0, f"{kept} bytes kept"


@pytest.mark.parametrize(
    ("record", "damage"),
    [
        (bytes(7), Damage.SIZE),
        (bytes(200), Damage.MAGIC),
        (UNSEALED[:-1], Damage.SIZE),
        (flipped(UNSEALED, 3, 0xFF), Damage.SIZE),
        (flipped(UNSEALED, 7, 0xFF), Damage.MAGIC),
        (flipped(UNSEALED, 35, 1), Damage.POSITION),
        (flipped(UNSEALED, TOPIC_AT, 1), Damage.LENGTHS),
        (flipped(UNSEALED, BODY_AT, 1), Damage.CHECKSUM),
        (flipped(SEALED["plain"], 12, 1), Damage.CHECKSUM),
    ],
    ids=lambda value: value.name if isinstance(value, Damage) else "",
)
def test_the_kind_of_damage_is_told(record: bytes, damage: Damage) -> None:
    assert checked(record) == -damage
    with pytest.raises(MalformedRecord) as raised:
        decode_record(memoryview(record), 0, AT)
    assert str(raised.value) == f"no record at physical offset {AT}: {damage.describe()}"


def test_a_size_below_the_least_record_is_damage() -> None:
    for size in (-1, 0, FIXED_BYTES_MIN - 1):
        record = size.to_bytes(4, "big", signed=True) + UNSEALED[4:]
        assert checked(record) == -Damage.SIZE


def test_a_scan_stops_right_before_the_damaged_record() -> None:
    log = numbered_log(5, base=AT)
    for number in range(5):
        start, end = log.starts[number], log.starts[number + 1]
        for at in range(start, end):
            damaged = memoryview(flipped(log.data, at, 0x41))
            scan = scan_records(damaged, 0, len(damaged), log.base, (), True)
            assert (scan.position, scan.stop, scan.records) == (start, Stop.DAMAGED, number)
            assert scan.damage != Damage.NONE
            assert sum(len(run.entries) for run in scan.runs) == 20 * number


def test_a_scan_names_the_damage() -> None:
    log = log_of([Put(simple(), 0), Put(simple(), 1)], base=AT)
    damaged = memoryview(flipped(log.data, log.starts[1] + 4, 0xFF))
    assert scan_records(damaged, 0, len(damaged), AT, (), False).damage == Damage.MAGIC


def test_records_moved_to_another_offset_are_damage() -> None:
    log = numbered_log(2, base=AT)
    scan = scan_records(memoryview(log.data), 0, len(log.data), AT + 1, (), False)
    assert (scan.position, scan.damage) == (0, Damage.POSITION)
