"""Columns of records as Arrow batches: types to the letter, and what only looks like bytes."""

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.protocol.columns import Column
from cometmq.protocol.compression import compress
from cometmq.protocol.flags import COMPRESSED, INNER_BATCH, NEED_UNWRAP
from cometmq.protocol.hot import ColumnBuilder
from cometmq.protocol.message import Message
from cometmq.protocol.properties import RECORD_CRC, decode_properties
from cometmq.spark.arrow import BYTES_MAX, ArrowRows, Odd
from cometmq.spark.errors import Unreadable
from cometmq.spark.property_maps import property_maps
from cometmq.spark.schema import COLUMNS, ON_REQUEST, ddl
from tests.protocol.records import encoded, simple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Odd("row {}".format, is_tolerated=False, option="odd=true")
ENTRIES = st.one_of(
    st.builds(
        lambda name, value: name + b"\x01" + value,
        st.sampled_from((b"TAGS", b"KEYS", b"__CRC32#", b"", "名".encode(), b"a", b"\xff")),
        st.sampled_from((b"1", b"", "值".encode(), b"a\x01b", b"\xc3", b" ")),
    ),
    st.binary(max_size=6),
)
PROPERTIES = st.builds(
    lambda parts, end: b"\x02".join(parts) + end,
    st.lists(ENTRIES, max_size=5),
    st.sampled_from((b"", b"\x02")),
)


@settings(max_examples=400, deadline=None)
@given(rows=st.lists(PROPERTIES, max_size=8))
def test_properties_become_maps_as_they_become_dicts(rows: list[bytes]) -> None:
    expected = [decode_properties(row) for row in rows]
    for one in expected:
        one.pop(RECORD_CRC, None)
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    maps = property_maps(Column(ends.tobytes(), b"".join(rows), b"", 0))
    maps.validate(full=True)
    assert maps.to_pylist() == [list(one.items()) for one in expected]


def test_the_types_are_those_that_spark_expects(spark: "SparkSession") -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    columns = (*COLUMNS, *ON_REQUEST)
    schema = spark.createDataFrame([], ddl(columns)).schema
    assert ArrowRows(columns, "b").schema == to_arrow_schema(schema, timezone="UTC")


@pytest.mark.parametrize("broker_name", ["broker-a", "", None])
def test_all_rows_have_their_brokers_name(broker_name: str | None) -> None:
    rows = ArrowRows(["brokerName", "body"], broker_name)
    builder = ColumnBuilder(rows.collected)
    builder.add(encoded(simple()) * 3)
    (batch,) = rows.batches(builder.take(), 3, HERE)
    batch.validate(full=True)
    assert batch.to_pylist() == [{"brokerName": broker_name, "body": b"body"}] * 3


def test_texts_that_no_message_has_are_null() -> None:
    rows = ArrowRows(["keys", "tags"], "b")
    builder = ColumnBuilder(rows.collected)
    builder.add(encoded(simple()) * 3)
    (batch,) = rows.batches(builder.take(), 3, HERE)
    batch.validate(full=True)
    assert batch.to_pylist() == [{"keys": None, "tags": None}] * 3


def test_bodies_that_unpack_to_much_come_in_several_batches() -> None:
    body, flag = compress(bytes(BYTES_MAX // 3))
    rows = ArrowRows(["queueOffset", "body"], "b")
    builder = ColumnBuilder(rows.collected)
    for number in range(8):
        message = Message("orders", 0, body, sys_flag=flag)
        builder.add(encoded(message, queue_offset=number))
    batches = list(rows.batches(builder.take(), 8, HERE))
    assert [batch.column("queueOffset").to_pylist() for batch in batches] == [
        [0, 1, 2, 3], [4, 5, 6, 7],
    ]  # fmt: skip
    assert all(len(one.as_py()) == BYTES_MAX // 3 for b in batches for one in b.column("body"))


@pytest.mark.parametrize(
    ("body", "flag", "said"),
    [
        (
            b"no zlib",
            COMPRESSED,
            "row 0: a compressed body cannot be .*; odd=true has null for its",
        ),
        (b"many", INNER_BATCH | NEED_UNWRAP, "row 0: .* a whole batch .*; odd=true leaves it out"),
    ],
)
def test_what_cannot_be_told_is_an_error_that_says_where(body: bytes, flag: int, said: str) -> None:
    rows = ArrowRows(["body"], "b")
    builder = ColumnBuilder(rows.collected)
    builder.add(encoded(Message("orders", 0, body, sys_flag=flag)))
    with pytest.raises(Unreadable, match=said):
        list(rows.batches(builder.take(), 1, HERE))


def test_what_is_tolerated_is_told_and_left_out_or_null(caplog: pytest.LogCaptureFixture) -> None:
    packed, flag = compress(b"long " * 100)
    flags = {3: INNER_BATCH | NEED_UNWRAP | COMPRESSED, 5: COMPRESSED, 6: flag}
    rows = ArrowRows(["queueOffset", "body"], "b")
    builder = ColumnBuilder(rows.collected)
    for number in range(8):
        message = Message("orders", 0, packed, sys_flag=flags.get(number, 0))
        if number == 5:
            message.body = b"no zlib"
        builder.add(encoded(message, queue_offset=number))
    odd = HERE._replace(is_tolerated=True)
    (batch,) = rows.batches(builder.take(), 8, odd, left_out=[0, 7])
    batch.validate(full=True)
    assert batch.to_pydict() == {
        "queueOffset": [1, 2, 4, 5, 6],
        "body": [packed, packed, packed, None, b"long " * 100],
    }
    assert "row 3: the record is a whole batch" in caplog.text
    assert "row 5: a compressed body cannot be unpacked" in caplog.text
    assert len(caplog.records) == 2


def test_rows_are_left_out_by_their_numbers_also_when_they_come_in_several_batches() -> None:
    body, flag = compress(bytes(BYTES_MAX // 2))
    rows = ArrowRows(["queueOffset", "body"], "b")
    builder = ColumnBuilder(rows.collected)
    for number in range(6):
        message = Message("orders", 0, body, sys_flag=flag)
        builder.add(encoded(message, queue_offset=number))
    batches = rows.batches(builder.take(), 6, HERE, left_out=[1, 2, 3, 5])
    assert [batch.column("queueOffset").to_pylist() for batch in batches] == [[0], [], [4]]


def test_a_batch_may_have_no_rows() -> None:
    columns = (*COLUMNS, *ON_REQUEST)
    rows = ArrowRows(columns, "b")
    builder = ColumnBuilder(rows.collected)
    (batch,) = rows.batches(builder.take(), 0, HERE)
    batch.validate(full=True)
    assert batch.num_rows == 0


def test_columns_outlive_their_builder_and_are_not_written_to_again() -> None:
    """Their memory is used for other columns only when nobody has them any more."""
    builder = ColumnBuilder(["body", "queueOffset"])
    taken: list[dict[str, Column]] = []
    for number in range(50):
        builder.add(b"".join(encoded(simple(), queue_offset=number) for _ in range(number + 1)))
        taken.append(builder.take())
        if number % 3 == 0:
            taken[number // 2] = {}
    for number, columns in enumerate(taken):
        if columns:
            offsets = [number.to_bytes(8, "little")] * (number + 1)
            assert bytes(columns["queueOffset"].data) == b"".join(offsets)
            assert bytes(columns["body"].data) == b"body" * (number + 1)
