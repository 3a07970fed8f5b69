"""Rows of an Arrow batch as what a broker stores of them: bodies, properties, and where they go.

Pure, and whole columns at a time. A row that cannot be a message is refused with its number; the
first one in the batch, whatever is wrong with it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cometmq.client.message import (
    BODY_BYTES_MAX,
    DELAY,
    DELAY_LEVELS,
    DELIVER_MS,
    PROPERTIES_BYTES_MAX,
    RESERVED,
    SHARDING_KEY,
)
from cometmq.client.selectors import java_hash
from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.hot import text_properties
from cometmq.protocol.names import check_topic
from cometmq.protocol.properties import KEYS, TAGS

from ..errors import NotSent

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Truths = np.ndarray[Any, np.dtype[np.bool_]]
Refuse = Callable[[int, str], NoReturn]
NO_QUEUE: Final = -1
OWN_BYTES_MAX: Final = PROPERTIES_BYTES_MAX - 512
"""Of a row's own properties: sink and broker add some."""
OF_TRANSACTIONS: Final = frozenset({
    "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRANSACTION_CHECK_TIMES", "__transactionId__",
})  # fmt: skip
"""What brokers read from half messages, and would decide by."""
_TEXTS: Final = {"tags": TAGS, "keys": KEYS, "shardingKey": SHARDING_KEY}
_NO_UTF8: Final = "is no UTF-8: make_valid_utf8 makes it so"
"""Spark's texts may be any bytes; what is not a body has to be text, or readers see another one."""
_BINARY: Final = pa.binary()
_LAID_OUT_SO: Final = (_BINARY, pa.string())
"""Types whose buffers are what `Values` has."""
_MILLISECOND: Final = pa.timestamp("ms", tz="UTC")


class Values(NamedTuple):
    """Bytes of many rows behind one another, as Arrow has them."""

    offsets: Any
    """32 bits each, one more than there are rows."""
    data: Any

    @property
    def sizes(self) -> Numbers:
        sizes: Numbers = np.diff(self.offsets)
        return sizes

    def of(self, row: int) -> bytes:
        return bytes(memoryview(self.data)[self.offsets[row] : self.offsets[row + 1]])


class Rows(NamedTuple):
    number: int
    """How many there are."""
    bodies: Values
    properties: Values | None
    """Encoded. None: no row has any."""
    topics: Sequence[str]
    topic_numbers: Numbers | None
    """Which of the topics a row goes to. None: all go to the first."""
    hashes: Numbers | None
    """Of the sharding keys; NO_QUEUE where there is none."""
    queue_ids: Numbers | None
    """NO_QUEUE where the row does not say."""
    delayed: Truths | None

    @property
    def takes(self) -> Numbers:
        """Bytes of each row's body and properties."""
        sizes = self.bodies.sizes.astype(np.int64)
        return sizes if self.properties is None else sizes + self.properties.sizes


def rows_of(
    batch: pa.RecordBatch, topic: str, first_row: int, partition: int, *, are_halves: bool = False
) -> Rows:
    """NotSent with the first row that cannot be sent and why."""

    def refuse(row: int, why: str) -> NoReturn:
        raise NotSent(f"row {first_row + row} of partition {partition}: {why}")

    columns = {name: batch.column(number) for number, name in enumerate(batch.schema.names)}
    for name in ("topic", *_TEXTS):
        if name in columns and (row := _no_utf8(columns[name])) is not None:
            refuse(row, f"{name} {_NO_UTF8}")
    reserved = RESERVED | OF_TRANSACTIONS if are_halves else RESERVED
    properties = _properties(columns, reserved, refuse)
    topics, topic_numbers = _topics(columns.get("topic"), topic, refuse)
    bodies = _bodies(columns["body"], refuse)
    return Rows(
        batch.num_rows, bodies, properties, topics, topic_numbers,
        _hashes(columns.get("shardingKey")), _queue_ids(columns.get("queueId"), refuse),
        _delayed(columns),
    )  # fmt: skip


def _first(truths: Any) -> int | None:
    """The first row of which something is true."""
    found = np.flatnonzero(np.asarray(truths))
    return int(found[0]) if len(found) else None


def _no_utf8(texts: pa.Array) -> int | None:
    """The first one that is not."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        found = texts.cast(_BINARY).to_pylist()
        return next(number for number, text in enumerate(found) if not _is_utf8(text or b""))
    return None


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _values(array: pa.Array) -> Values:
    if array.type not in _LAID_OUT_SO:
        array = array.cast(_BINARY)
    _, offsets, data = array.buffers()
    count, start = len(array), array.offset
    if offsets is None:
        return Values(np.zeros(1, np.int32), b"")
    return Values(
        np.frombuffer(offsets, np.int32)[start : start + count + 1], b"" if data is None else data
    )


# -- bodies and topics ---------------------------------------------------------------------------


def _bodies(column: pa.Array, refuse: Refuse) -> Values:
    if column.null_count and (row := _first(column.is_null())) is not None:
        refuse(row, "its body is null")
    bodies = _values(column)
    sizes = bodies.sizes
    if (row := _first(sizes == 0)) is not None:
        refuse(row, "its body is empty; RocketMQ takes no message without one")
    if (row := _first(sizes > BODY_BYTES_MAX)) is not None:
        refuse(row, f"its body has {sizes[row]} bytes; RocketMQ takes up to {BODY_BYTES_MAX}")
    return bodies


def _topics(
    column: pa.Array | None, topic: str, refuse: Refuse
) -> tuple[Sequence[str], Numbers | None]:
    if column is None:
        return (topic,), None
    if column.null_count and (row := _first(column.is_null())) is not None:
        refuse(row, "its topic is null")
    coded = column.dictionary_encode()
    names, numbers = coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64)
    for number, name in enumerate(names):
        try:
            check_topic(name)
        except IllegalMessage as error:
            refuse(_first(numbers == number) or 0, str(error))
    return names, numbers


# -- places --------------------------------------------------------------------------------------


def _hashes(column: pa.Array | None) -> Numbers | None:
    """What decides about the queue, the same as for the client's selector `by_hash`."""
    if column is None:
        return None
    coded = column.dictionary_encode()
    by_code = [abs(java_hash(key)) if key else NO_QUEUE for key in coded.dictionary.to_pylist()]
    numbers = coded.indices.fill_null(len(by_code)).to_numpy(zero_copy_only=False)
    hashes: Numbers = np.array([*by_code, NO_QUEUE], np.int64)[numbers]
    return hashes


def _queue_ids(column: pa.Array | None, refuse: Refuse) -> Numbers | None:
    if column is None:
        return None
    given = column.fill_null(NO_QUEUE) if column.null_count else column
    numbers: Numbers = given.to_numpy().astype(np.int64)
    wrong = numbers < 0
    if column.null_count:
        wrong &= column.is_valid().to_numpy(zero_copy_only=False)
    if (row := _first(wrong)) is not None:
        refuse(row, f"queueId {column[row]}; queues count from 0")
    return numbers


def _delayed(columns: dict[str, pa.Array]) -> Truths | None:
    found: Truths | None = None
    for name in ("delayLevel", "deliverAt"):
        if name in columns:
            column = columns[name]
            asked = column.is_valid() if name == "deliverAt" else pc.greater(column, 0)
            truths = asked.fill_null(False).to_numpy(zero_copy_only=False)
            found = truths if found is None else found | truths
    return found


# -- properties ----------------------------------------------------------------------------------


def _properties(
    columns: dict[str, pa.Array], reserved: frozenset[str], refuse: Refuse
) -> Values | None:
    pieces = [_text_property(name, columns[name], refuse) for name in _TEXTS if name in columns]
    pieces += _delay_properties(columns, refuse)
    if "properties" in columns:
        pieces.append(_map_properties(columns["properties"], reserved, refuse))
    if not pieces:
        return None
    joined = pieces[0] if len(pieces) == 1 else pc.binary_join_element_wise(*pieces, b"")
    properties = _values(joined)
    if (row := _first(properties.sizes > OWN_BYTES_MAX)) is not None:
        refuse(
            row,
            f"its properties have {properties.sizes[row]} bytes with tags and keys; "
            f"{OWN_BYTES_MAX} are possible",
        )
    return properties


def _text_property(column: str, texts: pa.Array, refuse: Refuse) -> pa.Array:
    """An empty text says nothing, as null does."""
    values = _values(texts.fill_null("") if texts.null_count else texts)
    made = text_properties(_TEXTS[column].encode(), values.offsets, values.data)
    if made is None:
        row = _first(_marked(texts)) or 0
        refuse(row, f"{column} contains a byte that separates properties (0x01 or 0x02)")
    return _binaries(len(texts), *made)


def _property(name: str, values: pa.Array) -> pa.Array:
    """`name 0x01 value 0x02` of each value, nothing where that is null."""
    begin = pa.scalar(f"{name}\x01".encode())
    encoded = pc.binary_join_element_wise(begin, values, pa.scalar(b"\x02"), pa.scalar(b""))
    return encoded.fill_null(b"")


def _has_marks(texts: pa.Array) -> bool:
    values = _values(texts)
    data = np.frombuffer(values.data, np.uint8)[values.offsets[0] : values.offsets[-1]]
    return bool(((data == 1) | (data == 2)).any())


def _marked(texts: pa.Array) -> Truths:
    found = [text is not None and ("\x01" in text or "\x02" in text) for text in texts.to_pylist()]
    return np.array(found, np.bool_)


def _delay_properties(columns: dict[str, pa.Array], refuse: Refuse) -> list[pa.Array]:
    levels, times = columns.get("delayLevel"), columns.get("deliverAt")
    pieces = []
    if levels is not None:
        wrong = pc.or_(pc.less(levels, 0), pc.greater(levels, DELAY_LEVELS)).fill_null(False)
        if (row := _first(wrong)) is not None:
            refuse(row, f"delayLevel {levels[row]}; there are 1 to {DELAY_LEVELS}, 0 is at once")
        levels = pc.if_else(pc.greater(levels, 0), levels, pa.scalar(None, levels.type))
        pieces.append(_property(DELAY, levels.cast(pa.string()).cast(_BINARY)))
    if times is not None:
        moments = times.cast(_MILLISECOND, safe=False).cast(pa.int64())
        if (row := _first(pc.less(moments, 0).fill_null(False))) is not None:
            refuse(row, "deliverAt is before 1970")
        pieces.append(_property(DELIVER_MS, moments.cast(pa.string()).cast(_BINARY)))
    if levels is not None and times is not None:
        both = pc.and_(levels.is_valid(), times.is_valid())
        if (row := _first(both)) is not None:
            refuse(row, "delayLevel and deliverAt are both set; one of them can hold")
    return pieces


def _map_properties(maps: pa.Array, reserved: frozenset[str], refuse: Refuse) -> pa.Array:
    """Entries stand behind one another already: only where a row begins is to be found out."""
    names, values, starts = maps.keys, maps.items, np.asarray(maps.offsets)
    _check_entries(names, values, reserved, lambda entry, why: refuse(_row_of(starts, entry), why))
    encoded = pc.binary_join_element_wise(
        names.cast(_BINARY), pa.scalar(b"\x01"), values.cast(_BINARY), pa.scalar(b"\x02"),
        pa.scalar(b""),
    )  # fmt: skip
    entries = _values(encoded)
    return _binaries(len(maps), np.ascontiguousarray(entries.offsets[starts]), entries.data)


def _binaries(count: int, offsets: Any, data: Any) -> pa.Array:
    return pa.Array.from_buffers(_BINARY, count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _check_entries(
    names: pa.Array, values: pa.Array, reserved: frozenset[str], refuse: Refuse
) -> None:
    for what, texts in (("name", names), ("value", values)):
        if (entry := _no_utf8(texts)) is not None:
            refuse(entry, f"properties: a {what} {_NO_UTF8}")
    taken = pc.is_in(names, pa.array(sorted(reserved)))
    if (entry := _first(taken)) is not None:
        refuse(
            entry,
            f"properties: RocketMQ uses {names[entry]} itself; set the column of that meaning, or "
            "leave it out with map_filter",
        )
    for texts in (names, values):
        missing = pc.equal(pc.binary_length(texts), 0).fill_null(True)
        if (entry := _first(missing)) is not None:
            refuse(entry, f"properties: {names[entry]} has no value, or a value has no name")
        if _has_marks(texts) and (entry := _first(_marked(texts))) is not None:
            refuse(
                entry,
                f"properties: {names[entry].as_py()!r} contains a byte that separates properties "
                "(0x01 or 0x02)",
            )


def _row_of(starts: Any, entry: int) -> int:
    return int(np.searchsorted(starts, entry, side="right")) - 1
