"""The compiled hot functions against the plain ones: the same answers, the same bytes.

The inputs are random but the same in every run. What the plain functions refuse, the compiled ones
refuse too, and neither has written anything then.
"""

import functools
import itertools
import random
import struct
from array import array
from collections.abc import Callable
from types import ModuleType

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cometmq.protocol import _reference, batch, columns, message_id
from cometmq.protocol.layout import (
    ENTRY,
    HOLE_SIZE,
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_ITEM,
    KEY,
    KEY_BYTES,
)
from cometmq.protocol.message import Appended, Message

from .records import (
    BORN_HOST,
    BORN_HOST_V6,
    BUFFER_BYTES,
    HOST,
    HOST_V6,
    STORED_AT,
    Log,
    Put,
    encoded,
    end_marker,
    log_of,
    simple,
)
from .rocketmq_bytes import SEALED_RECORDS

try:
    from cometmq.protocol import _compiled
except ImportError:
    pytest.skip("the extension cometmq.protocol._compiled is not built", allow_module_level=True)

examples = settings(
    max_examples=200,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES_MS = st.integers(0, 1 << 50)
HOSTS = st.sampled_from((HOST, HOST_V6, BORN_HOST, BORN_HOST_V6))
SLOTS = 5
ITEMS = 24


Question = Callable[[ModuleType, bytearray], object]
"""What to ask of one of the two modules, about a buffer that it may write to."""


def outcome(ask: Question, hot: ModuleType, data: bytearray) -> tuple[str, object]:
    """What came of it: the answer, or what the module complains about."""
    try:
        return "answer", ask(hot, data)
    except ValueError as error:
        return type(error).__name__, str(error)


def assert_alike(ask: Question, data: bytes) -> None:
    """Both answer alike, and leave alike what they were given."""
    plain, compiled = bytearray(data), bytearray(data)
    assert outcome(ask, _compiled, compiled) == outcome(ask, _reference, plain)
    assert compiled == plain


# -- what to ask about ----------------------------------------------------------------------------

WORDS = st.one_of(
    st.text("ab 1#", max_size=8),
    st.text(max_size=5),
    st.sampled_from(("1", "3", "99", "0", "007", "1234567890", "-1", "标签", "🚀", " k1  k2 ")),
)
NAMES = st.sampled_from(("TAGS", "KEYS", "UNIQ_KEY", "DELAY", "__CRC32#", "KEY", "TAGSS", "", "a"))
PROPERTY = st.one_of(
    st.builds(lambda name, value: f"{name}\x01{value}".encode(), NAMES, WORDS),
    st.binary(max_size=12),
)
PROPERTIES = st.builds(
    lambda parts, end: b"\x02".join(parts) + end,
    st.lists(PROPERTY, max_size=6),
    st.sampled_from((b"", b"\x02")),
)
TOPICS = st.one_of(
    st.sampled_from(("orders", "SCHEDULE_TOPIC_XXXX", "t" * 127, "t" * 128, "t" * 255, "订单")),
    st.text(min_size=1, max_size=60),
)
MESSAGES = st.builds(
    Message,
    topic=TOPICS,
    queue_id=st.one_of(st.integers(0, 3), INT32),
    body=st.binary(max_size=200),
    properties=PROPERTIES,
    flag=INT32,
    sys_flag=st.one_of(st.integers(0, 0xFF), INT32),
    born_timestamp=INT64,
    born_host=HOSTS,
    reconsume_times=INT32,
    prepared_transaction_offset=INT64,
)
Mutation = tuple[str, int, int, bytes]
MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from(("flip", "flip", "zero", "put", "cut", "insert", "swap magic")),
        st.one_of(st.integers(0, 100), st.integers(0, 1 << 20)),
        st.integers(1, 255),
        st.binary(min_size=1, max_size=8),
    ),
    max_size=3,
)


def mutated(data: bytes, mutations: list[Mutation]) -> bytes:
    damaged = bytearray(data)
    for kind, place, mask, content in mutations:
        if not damaged:
            break
        at = place % len(damaged)
        if kind == "flip":
            damaged[at] ^= mask
        elif kind == "zero":
            damaged[at:] = bytes(len(damaged) - at)
        elif kind == "put":
            damaged[at : at + len(content)] = content[: len(damaged) - at]
        elif kind == "cut":
            del damaged[at:]
        elif kind == "insert":
            damaged[at:at] = content
        elif len(damaged) > 7:
            damaged[7] ^= 0xA7 ^ 0xAB
    return bytes(damaged)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Records of a few queues whose offsets mostly go up by one."""
    base = draw(st.sampled_from((0, 7, 1 << 40)))
    queue_offset = draw(st.sampled_from((0, 5, (1 << 31) - 1)))
    data = bytearray()
    starts = [0]
    for message in draw(st.lists(MESSAGES, max_size=6)):
        queue_offset += draw(st.sampled_from((1, 1, 1, 0, 9)))
        data += encoded(
            message,
            queue_offset=queue_offset,
            physical_offset=base + len(data),
            stored_at=draw(TIMES_MS),
            store_host=draw(HOSTS),
            sealed=draw(st.booleans()),
        )
        starts.append(len(data))
    if draw(st.booleans()):
        data += end_marker(draw(st.integers(8, 1 << 20)))
    return Log(bytes(data), base, starts)


# -- records --------------------------------------------------------------------------------------


@examples
@given(
    message=MESSAGES,
    position=st.integers(0, 40),
    spare=st.one_of(st.integers(-20, 20), st.just(BUFFER_BYTES)),
    queue_offset=INT64,
    physical_offset=INT64,
    stored_at=TIMES_MS,
    store_host=HOSTS,
    sealed=st.booleans(),
)
def test_records_are_encoded_alike(
    message: Message,
    position: int,
    spare: int,
    queue_offset: int,
    physical_offset: int,
    stored_at: int,
    store_host: bytes,
    sealed: bool,
) -> None:
    size = len(encoded(message, store_host=store_host, sealed=sealed))
    limit = min(position + size + 8 + spare, BUFFER_BYTES)

    def ask(hot: ModuleType, data: bytearray) -> object:
        return hot.encode_record(
            memoryview(data), position, limit, message, queue_offset, physical_offset, stored_at,
            store_host, sealed,
        )  # fmt: skip

    assert_alike(ask, b"\xee" * BUFFER_BYTES)


@examples
@given(
    messages=st.lists(MESSAGES, max_size=6),
    known=st.integers(0, 6),
    room=st.integers(0, 2000),
    first=st.integers(0, 3),
    body_bytes_max=st.sampled_from((50, 150, 1000)),
    sealed=st.booleans(),
)
def test_batches_are_appended_alike(
    messages: list[Message], known: int, room: int, first: int, body_bytes_max: int, sealed: bool
) -> None:
    """The same bytes, the same places, the same queue offsets afterwards, the same stop."""

    def ask(hot: ModuleType, data: bytearray) -> object:
        offsets = {(m.topic, m.queue_id): 7 for m in messages[:known]}
        placed: list[object] = []
        reached = hot.append_records(
            memoryview(data), 5, 5 + room, 1000, messages, first, offsets, STORED_AT, HOST, sealed,
            body_bytes_max, placed,
        )  # fmt: skip
        return reached, placed, offsets

    assert_alike(ask, b"\xee" * BUFFER_BYTES)


# -- batches --------------------------------------------------------------------------------------

NO_MARKS = st.binary(max_size=30).map(lambda data: data.replace(b"\x01", b"").replace(b"\x02", b""))
NEARLY_TOO_LONG = st.sampled_from((b"x" * 32_725, b"x" * 32_726))
"""With a unique id: the longest properties there can be, and a byte more."""


@examples
@given(
    bodies=st.lists(st.binary(max_size=40), max_size=8),
    properties=st.one_of(
        st.none(), st.lists(st.one_of(NO_MARKS, NEARLY_TOO_LONG), min_size=8, max_size=8)
    ),
    rows=st.lists(st.one_of(st.integers(0, 7), INT32), max_size=8),
    shift=st.sampled_from((0, 0, 0, 1, -3)),
    beginning=st.one_of(st.binary(min_size=12, max_size=12), st.binary(max_size=13)),
    number=st.one_of(st.integers(0, 100), st.integers(-1, 1 << 33)),
)
def test_rows_become_batches_alike(
    bodies: list[bytes],
    properties: list[bytes] | None,
    rows: list[int],
    shift: int,
    beginning: bytes,
    number: int,
) -> None:
    numbers = struct.pack(f"={len(rows)}i", *rows)

    def ask(hot: ModuleType, _: bytearray) -> object:
        own = _column(properties, 0) if properties is not None else (b"", b"")
        return hot.encode_rows(*_column(bodies, shift), *own, numbers, beginning, number)

    assert_alike(ask, b"")


def _column(values: list[bytes], shift: int) -> tuple[bytes, bytes]:
    """Offsets and data; a shift moves the offsets, so that the last ones may lie outside."""
    ends = [0, *itertools.accumulate(map(len, values))]
    return struct.pack(f"={len(ends)}i", *(end + shift for end in ends)), b"".join(values)


@examples
@given(
    name=st.sampled_from((b"KEYS", b"TAGS", b"")),
    texts=st.lists(st.one_of(st.just(b""), st.binary(max_size=9), st.just(b"order-7"))),
    shift=st.sampled_from((0, 0, 0, 1, -3)),
    more=st.sampled_from((b"", b"", b"", b"x")),
)
def test_texts_become_properties_alike(
    name: bytes, texts: list[bytes], shift: int, more: bytes
) -> None:
    offsets, data = _column(texts, shift)

    def ask(hot: ModuleType, _: bytearray) -> object:
        return hot.text_properties(name, offsets + more, data)

    assert_alike(ask, b"")


def test_half_a_number_is_no_offset() -> None:
    for wrong in range(3):
        given_ones = [struct.pack("=2i", 0, 1)] * 3
        given_ones[wrong] += b"x"

        def ask(hot: ModuleType, _: bytearray, ones: list[bytes] = given_ones) -> object:
            return hot.encode_rows(ones[0], b"a", ones[1], b"b", ones[2], b"x" * 12, 0)

        assert_alike(ask, b"")


@examples
@given(messages=st.lists(MESSAGES, max_size=6), mutations=MUTATIONS, like=MESSAGES)
def test_batches_are_decoded_alike(
    messages: list[Message], mutations: list[Mutation], like: Message
) -> None:
    def ask(hot: ModuleType, data: bytearray) -> object:
        return (batch if hot is _reference else hot).decode_batch(bytes(data), like)

    for data in (batch.encode_batch(messages), mutated(batch.encode_batch(messages), mutations)):
        assert_alike(ask, data)


def test_a_batch_of_too_many_is_refused_alike() -> None:
    many = batch.encode_batched(0, b"", b"") * (batch.MESSAGES_MAX + 1)

    def ask(hot: ModuleType, data: bytearray) -> object:
        return len((batch if hot is _reference else hot).decode_batch(bytes(data), simple()))

    assert_alike(ask, many)
    assert_alike(ask, many[: -batch.BATCHED_BYTES])


@examples
@given(host=HOSTS, offsets=st.lists(INT64, max_size=5))
def test_ids_of_places_are_told_alike(host: bytes, offsets: list[int]) -> None:
    placed = [Appended(offset, 1, 2, 3) for offset in offsets]

    def ask(hot: ModuleType, _: bytearray) -> object:
        return (message_id if hot is _reference else hot).offset_ids(host, placed)

    assert_alike(ask, b"")
    expected = ",".join(message_id.offset_id(host, offset) for offset in offsets)
    assert message_id.offset_ids(host, placed) == expected


def test_checksums_are_alike_at_every_length() -> None:
    for size in range(400):
        message = Message("t", 0, bytes(range(256)) * 2)
        message.body = message.body[:size]
        plain, compiled = bytearray(1000), bytearray(1000)
        for hot, data in ((_reference, plain), (_compiled, compiled)):
            hot.encode_record(memoryview(data), 0, 1000, message, 0, 0, STORED_AT, HOST, True)
        assert compiled == plain, size


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize(
    "message",
    [
        simple(""),
        simple("t" * 256),
        simple("题" * 86),
        simple("\ud800"),
        simple(properties=b"k\x01" + b"v" * 32744 + b"\x02"),
        simple(properties=b"k\x01" + b"v" * 32745),
        simple(properties=b"k\x01" + b"v" * 32745 + b"\x02"),
        simple(properties=b"k\x01" + b"v" * 32764 + b"\x02"),
        simple(properties=b"k\x01" + b"v" * 32765 + b"\x02"),
        Message("orders", 0, b"", born_host=b"four"),
    ],
    ids=range(10),
)
def test_limits_are_told_alike(message: Message, sealed: bool) -> None:
    def ask(hot: ModuleType, data: bytearray) -> object:
        return hot.encode_record(
            memoryview(data), 0, len(data), message, 0, 0, STORED_AT, HOST, sealed
        )

    assert_alike(ask, b"\xee" * 40_000)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("queue_id", 1 << 31),
        ("flag", -(1 << 31) - 1),
        ("sys_flag", 1 << 31),
        ("born_timestamp", 1 << 63),
        ("reconsume_times", 1 << 31),
        ("prepared_transaction_offset", 1 << 63),
        ("store_timestamp", -1),
    ],
)
def test_numbers_that_do_not_fit_are_treated_alike(field: str, value: int) -> None:
    message = simple()
    stored_at = value if field == "store_timestamp" else STORED_AT
    if field != "store_timestamp":
        setattr(message, field, value)
    plain, compiled = bytearray(500), bytearray(500)
    refused = []
    for hot, data in ((_reference, plain), (_compiled, compiled)):
        try:
            hot.encode_record(memoryview(data), 0, 500, message, 0, 0, stored_at, HOST, True)
            refused.append(False)
        except Exception:  # noqa: BLE001 - which error it should be is asked in test_record
            refused.append(True)
    assert refused in ([True, True], [False, False])
    assert compiled == plain


@examples
@given(log=logs(), mutations=MUTATIONS, shift=st.integers(-2, 2))
def test_records_are_checked_alike(log: Log, mutations: list[Mutation], shift: int) -> None:
    data = mutated(log.data, mutations)
    for start in log.starts:
        position = min(max(start + shift, 0), len(data))
        for end in {len(data), min(position + 7, len(data)), min(position + 100, len(data))}:

            def ask(hot: ModuleType, data: bytearray, at: int = position, end: int = end) -> object:
                return hot.check_record(memoryview(data), at, end, log.base + at)

            assert_alike(ask, data)


@examples
@given(log=logs(), mutations=MUTATIONS, stray=st.binary(max_size=100))
def test_records_are_split_alike(log: Log, mutations: list[Mutation], stray: bytes) -> None:
    for data in (log.data[: log.starts[-1]], mutated(log.data, mutations), log.data + stray):
        assert_alike(lambda hot, raw: hot.split_records(bytes(raw)), data)


@examples
@given(
    log=logs(),
    mutations=MUTATIONS,
    names=st.lists(st.sampled_from(columns.COLUMNS), unique=True),
    tags=st.sampled_from((None, frozenset({b"1", "标签".encode()}))),
    start=st.integers(-1, 2),
    end=st.integers(0, 5),
)
def test_records_become_columns_alike(
    log: Log,
    mutations: list[Mutation],
    names: list[str],
    tags: frozenset[bytes] | None,
    start: int,
    end: int,
) -> None:
    def ask(hot: ModuleType, data: bytearray) -> object:
        plain = hot is _reference
        builder = (columns if plain else hot).ColumnBuilder(names, tags)
        counts = [builder.add(bytes(data)), builder.add(bytes(data), start, end), builder.count]
        return counts, builder.data_bytes, builder.take(), builder.count, builder.take()

    for data in (log.data[: log.starts[-1]], mutated(log.data, mutations)):
        assert_alike(ask, data)


TOPIC_SETS = st.frozensets(TOPICS.map(lambda topic: topic.encode()), max_size=3)
CHOICES = st.builds(
    columns.Choice,
    topics=st.one_of(st.none(), TOPIC_SETS),
    without_topics=TOPIC_SETS,
    queue_ids=st.one_of(st.none(), st.frozensets(st.integers(-1, 3))),
    stored_from=st.one_of(st.just(-(2**63)), TIMES_MS),
    stored_before=st.one_of(st.just(2**63 - 1), TIMES_MS),
    uncommitted=st.booleans(),
)


@examples
@given(
    log=logs(),
    mutations=MUTATIONS,
    names=st.lists(st.sampled_from(columns.COLUMNS), unique=True),
    tags=st.sampled_from((None, frozenset({b"1", "标签".encode()}))),
    choice=st.one_of(st.none(), CHOICES),
)
def test_logs_become_columns_alike(
    log: Log,
    mutations: list[Mutation],
    names: list[str],
    tags: frozenset[bytes] | None,
    choice: columns.Choice | None,
) -> None:
    def ask(hot: ModuleType, data: bytearray) -> object:
        builder = (columns if hot is _reference else hot).ColumnBuilder(names, tags)
        middle = min(log.starts[len(log.starts) // 2], len(data))
        walks = [
            builder.walk(memoryview(data), start, end, log.base, choice)
            for start, end in ((0, len(data)), (middle, len(data)), (0, middle), (0, 0))
        ]
        return walks, builder.count, builder.data_bytes, builder.take()

    for data in (log.data[: log.starts[-1]], log.data, mutated(log.data, mutations)):
        assert_alike(ask, data)


ODD_ENTRIES = st.sampled_from((
    b"\xff\x01a", b"\xfe\x01b", "名\x01值".encode(), b"a\x01\xc3", b"a\x01" + b"x" * 70,
))  # fmt: skip
MANY_NAMES = b"\x02".join(b"n%d\x01v" % number for number in range(40))


@examples
@given(
    rows=st.lists(
        st.one_of(
            st.lists(st.one_of(PROPERTY, ODD_ENTRIES), max_size=5).map(b"\x02".join),
            st.just(MANY_NAMES),
        ),
        max_size=6,
    ),
    cut=st.integers(0, 3),
)
def test_properties_become_columns_alike(rows: list[bytes], cut: int) -> None:
    ends = [0]
    for row in rows:
        ends.append(ends[-1] + len(row))

    def ask(hot: ModuleType, data: bytearray) -> object:
        ask_one = (columns if hot is _reference else hot).property_columns
        return ask_one(array("i", ends[cut:]).tobytes(), bytes(data))

    assert_alike(ask, b"".join(rows))
    assert_alike(ask, b"".join(rows)[:-1])


@pytest.mark.parametrize("ends", [[], [-1, 2], [0, 5], [2, 1], [0, 2, 1]])
def test_offsets_beside_the_data_are_refused_alike(ends: list[int]) -> None:
    for hot in (columns, _compiled):
        with pytest.raises(ValueError, match="not those of the data"):
            hot.property_columns(array("i", ends).tobytes(), b"a\x01b")


def test_nulls_are_marked_alike_wherever_they_stand() -> None:
    for pattern in range(1 << 10):
        tags = [b"TAGS\x01a\x02" if pattern >> row & 1 else b"" for row in range(10)]
        data = b"".join(encoded(simple(properties=tag)) for tag in tags)
        builders = columns.ColumnBuilder(["tags"]), _compiled.ColumnBuilder(["tags"])
        plain, compiled = [(builder.add(data), builder.take()) for builder in builders]
        assert plain == compiled


@examples
@given(data=st.binary(max_size=300), magic=st.sampled_from((0xDAA320A7, 0xDAA320AB)))
def test_garbage_behind_a_magic_number_is_checked_alike(data: bytes, magic: int) -> None:
    size = (8 + len(data)).to_bytes(4, "big")
    record = bytearray(size + magic.to_bytes(4, "big") + data)
    record[28:36] = bytes(8)
    assert_alike(lambda hot, raw: hot.check_record(memoryview(raw), 0, len(raw), 0), bytes(record))


@pytest.mark.parametrize(
    "record",
    [
        SEALED_RECORDS[0],
        encoded(Message("t" * 130, 1, b"", b"a\x01b")),
        encoded(simple(properties=b"TAGS\x01a\x02"), sealed=False),
        encoded(Message("o", 1, b"", born_host=BORN_HOST_V6), store_host=HOST_V6, sealed=False),
    ],
    ids=["RocketMQ's", "version 2", "unsealed", "IPv6"],
)
def test_every_value_of_every_byte_is_checked_alike(record: bytes) -> None:
    data = bytearray(record)
    view = memoryview(data)
    for at in range(len(data)):
        kept = data[at]
        for value in range(256):
            data[at] = value
            compiled = _compiled.check_record(view, 0, len(data), 0)
            assert compiled == _reference.check_record(view, 0, len(data), 0), (at, value)
        data[at] = kept


@examples
@given(
    log=logs(),
    mutations=MUTATIONS,
    delays_ms=st.sampled_from(((), (1000,), (1000, 5000, 10_000))),
    collect=st.booleans(),
    verify=st.booleans(),
)
def test_logs_are_scanned_alike(
    log: Log, mutations: list[Mutation], delays_ms: tuple[int, ...], collect: bool, verify: bool
) -> None:
    data = mutated(log.data, mutations)

    def ask(hot: ModuleType, data: bytearray, start: int, end: int) -> object:
        return hot.scan_records(memoryview(data), start, end, log.base, delays_ms, collect, verify)

    for start in {
        0,
        min(log.starts[-1], len(data)),
        min(log.starts[len(log.starts) // 2], len(data)),
    }:
        assert_alike(functools.partial(ask, start=start, end=len(data)), data)
    assert_alike(functools.partial(ask, start=0, end=len(data) // 2), data)


USUAL_PROPERTIES = st.builds(
    lambda before, unique_id, after, end: (
        b"\x02".join([*before, b"UNIQ_KEY\x01" + unique_id.encode(), *after]) + end
    ),
    st.lists(PROPERTY, max_size=2),
    st.one_of(WORDS, st.text("0123456789ABCDEF", max_size=40)),
    st.lists(PROPERTY, max_size=2),
    st.sampled_from((b"", b"\x02")),
)


@examples
@given(
    properties=st.lists(USUAL_PROPERTIES, max_size=4),
    mutations=MUTATIONS,
    topic=st.sampled_from(("orders", "订单", "SCHEDULE_TOPIC_XXXX", "UNIQ_KEY\x01")),
    sealed=st.booleans(),
)
def test_records_with_a_unique_id_are_scanned_alike(
    properties: list[bytes], mutations: list[Mutation], topic: str, sealed: bool
) -> None:
    """Plain Python knows such ones well, and trusts what it knows."""
    puts = (Put(simple(topic, 1, each), number) for number, each in enumerate(properties))
    data = mutated(log_of(puts, 7, sealed).data, mutations)
    assert_alike(
        lambda hot, raw: hot.scan_records(memoryview(raw), 0, len(raw), 7, (1000,), True, False),
        data,
    )


USUAL = (
    b"KEYS\x01k1\x02UNIQ_KEY\x017F0000010B6130946E094CEA932D0000\x02WAIT\x01true\x02TAGS\x01a\x02"
)


@pytest.mark.parametrize("sealed", [True, False])
def test_every_value_of_every_byte_of_a_usual_record_is_scanned_alike(sealed: bool) -> None:
    puts = [Put(simple(properties=USUAL), number) for number in range(2)]
    log = log_of(puts, sealed=sealed)
    data = bytearray(log.data)
    view = memoryview(data)
    for at in range(log.size(0)):
        kept = data[at]
        for value in range(256):
            data[at] = value
            compiled = _compiled.scan_records(view, 0, len(data), 0, (1000,), True, False)
            plain = _reference.scan_records(view, 0, len(data), 0, (1000,), True, False)
            assert compiled == plain, (at, value)
        data[at] = kept


def test_a_scan_gives_the_same_types_either_way() -> None:
    data = memoryview(b"".join(SEALED_RECORDS))
    plain = _reference.scan_records(data, 0, len(data), 0, (), True)
    compiled = _compiled.scan_records(data, 0, len(data), 0, (), True)
    for ours, theirs in ((compiled, plain), (compiled.runs[0], plain.runs[0])):
        parts = zip(msgspec.structs.astuple(ours), msgspec.structs.astuple(theirs), strict=True)
        assert all(type(one) is type(other) for one, other in parts)


# -- selection ------------------------------------------------------------------------------------


@st.composite
def queue_entries(draw: st.DrawFn, log: Log) -> bytes:
    """Entries that mostly point to the log's records, with holes and nonsense between."""
    raw = bytearray()
    for number in range(len(log.starts) - 1):
        tag_code = draw(st.sampled_from((0, 1, 2, 1 << 40)))
        kind = draw(st.sampled_from(("good", "good", "good", "hole", "size", "place", "any")))
        physical, size = log.base + log.starts[number], log.size(number)
        if kind == "hole":
            physical, size = 0, HOLE_SIZE
        elif kind == "size":
            size += draw(st.integers(-2, 2))
        elif kind == "place":
            physical += draw(st.integers(-300, 300))
        elif kind == "any":
            physical, size = draw(st.integers(0, 1 << 62)), draw(INT32)
        raw += ENTRY.pack(physical, size, tag_code)
    return bytes(raw)


@examples
@given(data=st.data(), log=logs(), mutations=MUTATIONS)
def test_records_are_selected_alike(
    data: st.DataObject, log: Log, mutations: list[Mutation]
) -> None:
    damaged = mutated(log.data, mutations)
    raw = data.draw(queue_entries(log))
    first = data.draw(st.integers(0, len(raw) // 20)) * 20
    readable = data.draw(st.one_of(st.just(len(damaged)), st.integers(0, len(damaged))))
    record = log.starts[first // 20]
    queue_offset = int.from_bytes(log.data[record + 20 : record + 28], "big", signed=True)
    wanted = data.draw(
        st.one_of(st.none(), st.frozensets(st.sampled_from((0, 1, 1 << 40, "text")), max_size=3))
    )
    count_max = data.draw(st.integers(0, 6))
    bytes_max = data.draw(st.one_of(st.integers(-1, 1500), st.just(1 << 40)))

    def ask(hot: ModuleType, entries: bytearray) -> object:
        return hot.select_records(
            memoryview(entries), first, len(entries), queue_offset, memoryview(damaged), log.base,
            readable, wanted, count_max, bytes_max,
        )  # fmt: skip

    assert_alike(ask, raw)


@examples
@given(
    data=st.data(),
    log=logs(),
    mutations=MUTATIONS,
    names=st.lists(st.sampled_from(columns.COLUMNS), unique=True),
    tags=st.sampled_from((None, frozenset({b"1"}))),
)
def test_records_that_entries_lead_to_become_columns_alike(
    data: st.DataObject,
    log: Log,
    mutations: list[Mutation],
    names: list[str],
    tags: frozenset[bytes] | None,
) -> None:
    raw = data.draw(queue_entries(log))
    queue_offset = int.from_bytes(log.data[20:28], "big", signed=True)
    bytes_max = data.draw(st.one_of(st.integers(-1, 1500), st.just(1 << 40)))

    def ask(hot: ModuleType, found: bytearray) -> object:
        builder = (columns if hot is _reference else hot).ColumnBuilder(names, tags)
        taken = builder.add_entries(raw, queue_offset, memoryview(found), log.base, bytes_max)
        return taken, builder.count, builder.data_bytes, builder.take()

    for records in (log.data, mutated(log.data, mutations)):
        assert_alike(ask, records)


@examples
@given(
    log=st.binary(max_size=40),
    slices=st.lists(st.one_of(st.integers(-2, 45), st.sampled_from((2**63 - 1, -(2**63))))),
)
def test_slices_are_joined_alike(log: bytes, slices: list[int]) -> None:
    joined = []
    for hot in (_reference, _compiled):
        try:
            joined.append(hot.join_slices(memoryview(log), slices))
        except ValueError:
            joined.append(None)
    assert joined[0] == joined[1]


def test_half_an_entry_is_not_read_beyond_its_buffer() -> None:
    raw = memoryview(ENTRY.pack(0, 100, 0) * 3)[:30]
    log = memoryview(encoded(simple()))
    with pytest.raises((ValueError, struct.error)):
        _reference.select_records(raw, 0, 30, 0, log, 0, len(log), None, 9, 999)
    with pytest.raises((ValueError, struct.error)):
        _compiled.select_records(raw, 0, 30, 0, log, 0, len(log), None, 9, 999)


# -- index files ----------------------------------------------------------------------------------

HASHES = st.one_of(st.integers(0, 12), st.integers(0, (1 << 31) - 1))
KEYS = st.lists(
    st.tuples(HASHES, st.integers(0, 1 << 60), st.integers(-(1 << 40), 1 << 50)), max_size=40
).map(lambda keys: b"".join(KEY.pack(*key) for key in keys))


@st.composite
def index_files(draw: st.DrawFn) -> bytes:
    """A file of plain insertion, mostly with slots and items overwritten by chance."""
    data = bytearray(INDEX_HEADER_BYTES + SLOTS * 4 + ITEMS * 20)
    _reference.index_insert(memoryview(data), SLOTS, ITEMS, draw(KEYS), 0)
    chance = random.Random(draw(st.integers(0, 1 << 32)))
    for _ in range(draw(st.integers(0, 4))):
        slot_at = INDEX_HEADER_BYTES + chance.randrange(SLOTS) * 4
        data[slot_at : slot_at + 4] = chance.randrange(-3, ITEMS + 3).to_bytes(
            4, "big", signed=True
        )
        item_at = INDEX_HEADER_BYTES + SLOTS * 4 + chance.randrange(ITEMS) * 20
        previous = chance.randrange(-3, ITEMS + 3)
        seconds = chance.choice((0, 1, 100, -1, (1 << 31) - 1))
        hashed, physical = chance.randrange(13), chance.choice((-1, 0, 500, 1 << 60))
        INDEX_ITEM.pack_into(data, item_at, hashed, physical, seconds, previous)
    if draw(st.booleans()):
        begin, end, begin_at, end_at, used, _ = INDEX_HEADER.unpack_from(data)
        begin = draw(st.sampled_from((begin, 0, -5, 1 << 45)))
        count = draw(st.integers(-2, ITEMS))
        INDEX_HEADER.pack_into(data, 0, begin, end, begin_at, end_at, used, count)
    return bytes(data)


@examples
@given(data=index_files(), keys=KEYS, item_limit=st.integers(0, ITEMS), skipped=st.integers(0, 5))
def test_keys_are_inserted_alike(data: bytes, keys: bytes, item_limit: int, skipped: int) -> None:
    start = min(skipped * KEY_BYTES, len(keys))

    def ask(hot: ModuleType, data: bytearray) -> object:
        return hot.index_insert(memoryview(data), SLOTS, item_limit, keys, start)

    assert_alike(ask, data)


@examples
@given(
    data=index_files(),
    hashed=HASHES,
    begin_ms=st.one_of(st.just(0), TIMES_MS),
    span_ms=st.one_of(st.just(1 << 60), st.integers(-10, 1 << 50)),
    count_max=st.sampled_from((0, 1, 3, 1000)),
)
def test_keys_are_looked_up_alike(
    data: bytes, hashed: int, begin_ms: int, span_ms: int, count_max: int
) -> None:
    def ask(hot: ModuleType, data: bytearray) -> object:
        view = memoryview(data)
        return hot.index_lookup(view, SLOTS, hashed, begin_ms, begin_ms + span_ms, count_max)

    assert_alike(ask, data)


@examples
@given(
    data=index_files(),
    physical_limit=st.one_of(st.integers(0, 1000), INT64),
    item_limit=st.integers(0, ITEMS),
)
def test_items_are_counted_alike(data: bytes, physical_limit: int, item_limit: int) -> None:
    def ask(hot: ModuleType, data: bytearray) -> object:
        return hot.index_count_below(memoryview(data), SLOTS, physical_limit, item_limit)

    assert_alike(ask, data)


@examples
@given(data=index_files(), count=st.integers(0, ITEMS))
def test_chains_are_relinked_alike(data: bytes, count: int) -> None:
    assert_alike(lambda hot, raw: hot.index_relink(memoryview(raw), SLOTS, count), data)
