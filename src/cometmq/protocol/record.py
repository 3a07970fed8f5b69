"""Records of the CommitLog as objects, for whoever wants more of them than raw bytes."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ._reference import record_parts
from .errors import MalformedRecord
from .host import unpack_host
from .hot import check_record
from .message import StoredMessage
from .scan import Damage

_HEAD = struct.Struct(">iIiiiqqiq")
_AFTER_HOSTS = struct.Struct(">iq")


def decode_record(view: memoryview, position: int = 0, physical_offset: int = 0) -> StoredMessage:
    """Decode the record at `position`, which must be whole and undamaged."""
    size = check_record(view, position, len(view), physical_offset)
    if size <= 0:
        damage = Damage(-size) if size else Damage.MAGIC
        raise MalformedRecord(
            f"no record at physical offset {physical_offset}: {damage.describe()}"
        )
    parts = record_parts(view, position, size)
    assert parts is not None  # check_record said that the lengths add up
    store_time_at, body_at, body_size, topic_at, topic_size, properties_at, properties_size = parts
    _, _, body_crc, queue_id, flag, queue_offset, _, sys_flag, born = _HEAD.unpack_from(
        view, position
    )
    # A fixed-size part lies between the store host and the body: see the layout in _reference.
    reconsume_times, prepared = _AFTER_HOSTS.unpack_from(view, body_at - 16)
    return StoredMessage(
        topic=str(view[topic_at : topic_at + topic_size], "utf-8", "replace"),
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        size=size,
        body=bytes(view[body_at : body_at + body_size]),
        properties=bytes(view[properties_at : properties_at + properties_size]),
        flag=flag,
        sys_flag=sys_flag,
        body_crc=body_crc,
        born_timestamp=born,
        born_host=unpack_host(bytes(view[position + 48 : store_time_at])),
        store_timestamp=int.from_bytes(view[store_time_at : store_time_at + 8], "big", signed=True),
        store_host=unpack_host(bytes(view[store_time_at + 8 : body_at - 16])),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared,
    )


def record_store_timestamp(view: memoryview, position: int) -> int:
    """Store time of a record that is known to be whole, without decoding the rest."""
    at = position + (68 if view[position + 39] & 0x10 else 56)
    return int.from_bytes(view[at : at + 8], "big", signed=True)


def iter_records(data: memoryview) -> Iterator[StoredMessage]:
    """Decode records that stand one behind the other, as a pull answers them."""
    position = 0
    while position < len(data):
        if len(data) - position < 36:
            raise MalformedRecord(f"{len(data) - position} stray bytes behind the last record")
        physical = int.from_bytes(data[position + 28 : position + 36], "big", signed=True)
        message = decode_record(data, position, physical)
        yield message
        position += message.size


class RecordSpan(NamedTuple):
    """Where a record lies in a piece of the log, and what filters look at."""

    start: int
    end: int
    queue_offset: int
    properties: bytes


def iter_spans(data: memoryview) -> Iterator[RecordSpan]:
    """The records of a piece that was read from a queue, without decoding all of them."""
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        parts = record_parts(data, position, size)
        if parts is None:
            raise MalformedRecord(f"no record {position} bytes into a piece of the log")
        *_, properties_at, properties_size = parts
        yield RecordSpan(
            position,
            position + size,
            int.from_bytes(data[position + 20 : position + 28], "big", signed=True),
            bytes(data[properties_at : properties_at + properties_size]),
        )
        position += size
