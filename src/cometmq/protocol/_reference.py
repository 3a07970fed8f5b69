"""The hot functions in plain Python: the reference that `_compiled.pyx` must match to the byte.

A record in the CommitLog (big-endian):

    0  int32 size          28 int64 physical offset   .. int32 reconsume times
    4  int32 magic         36 int32 sysFlag           .. int64 prepared transaction offset
    8  int32 body CRC      40 int64 born time         .. int32 length, body
    12 int32 queue id      48 born host (8 or 20)     .. int8 (V2: int16) length, topic
    16 int32 flag          .. int64 store time        .. int16 length, properties
    20 int64 queue offset  .. store host (8 or 20)

A sealed record ends in the property `__CRC32#`: a checksum over everything before it.
"""

import itertools
import struct
from collections.abc import Sequence
from typing import TypeAlias
from zlib import crc32

from . import flags
from .batch import encode_batched
from .collected import Collected
from .errors import IllegalMessage, MalformedRecord
from .layout import (
    BLANK_MAGIC,
    ENTRY,
    ENTRY_BYTES,
    FILE_END_BYTES,
    FIXED_BYTES_MIN,
    HOLE_SIZE,
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_ITEM,
    INDEX_ITEM_BYTES,
    KEY,
    KEY_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    SEAL_BYTES,
    SEAL_PREFIX,
    TOPIC_BYTES_MAX,
    TOPIC_BYTES_MAX_V1,
)
from .message import Appended, Message
from .properties import ENTRY_END, PROPERTIES_BYTES_MAX, RECORD_CRC, without_property
from .scan import Damage, Scan, Selection, Stop

Buffer: TypeAlias = bytes | bytearray | memoryview
UNIQUE_BEGINNING_BYTES = 12
"""Of the 16 that a unique id has; the rest counts."""
_HEAD = struct.Struct(">iIiiiqqiq")
_TAIL = struct.Struct(">iqi")
_BEFORE_BODY = {
    (born, stored): struct.Struct(f">iIiiiqqiq{born}sq{stored}siqi")
    for born in (8, 20)
    for stored in (8, 20)
}
"""Everything before the body, by the sizes of the hosts."""
_INT8, _INT16, _INT32, _INT64, _SIZE_AND_MAGIC = (
    struct.Struct(form).unpack_from for form in (">b", ">h", ">i", ">q", ">iI")
)
_PUT_INT32 = struct.Struct(">i").pack_into
_RECORD_CRC = RECORD_CRC.encode()
_REVERSED_SEAL = ENTRY_END + b"%010d" + SEAL_PREFIX[::-1]


def seal(crc: int) -> bytes:
    """The checksum as a property; its ten digits stand least significant first."""
    return (_REVERSED_SEAL % crc)[::-1]


def encode_record(
    view: memoryview,
    position: int,
    limit: int,
    message: Message,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    store_host: bytes,
    sealed: bool,
) -> int:
    """Write the record at `position` and return its size; 0 (nothing written) when it does not
    fit below `limit` together with the 8 bytes that a file's end marker needs."""
    topic = message.topic.encode()
    if not 0 < len(topic) <= TOPIC_BYTES_MAX:
        raise IllegalMessage(f"topic has {len(topic)} bytes, 1 to {TOPIC_BYTES_MAX} are allowed")
    properties = message.properties
    if sealed:
        properties = without_property(properties, _RECORD_CRC)
        if properties and not properties.endswith(ENTRY_END):
            properties += ENTRY_END
    properties_size = len(properties) + (SEAL_BYTES if sealed else 0)
    if properties_size > PROPERTIES_BYTES_MAX:
        raise IllegalMessage(
            f"properties have {properties_size} bytes, {PROPERTIES_BYTES_MAX} are allowed"
        )
    body, born_host = message.body, message.born_host
    before_body = _BEFORE_BODY.get((len(born_host), len(store_host)))
    if before_body is None:
        wrong = store_host if len(born_host) in (8, 20) else born_host
        raise IllegalMessage(f"a packed host has 8 or 20 bytes, not {len(wrong)}")
    long_topic = len(topic) > TOPIC_BYTES_MAX_V1
    size = before_body.size + len(body) + len(topic) + properties_size + (4 if long_topic else 3)
    try:
        head = before_body.pack(
            size, MAGIC_V2 if long_topic else MAGIC_V1, crc32(body) & 0x7FFFFFFF, message.queue_id,
            message.flag, queue_offset, physical_offset,
            message.sys_flag & ~_HOST_FLAGS | host_flags(born_host, store_host),
            message.born_timestamp, born_host, store_timestamp, store_host,
            message.reconsume_times, message.prepared_transaction_offset, len(body),
        )  # fmt: skip
    except struct.error as error:
        raise IllegalMessage(f"a number does not fit its field: {error}") from error
    if position + size + FILE_END_BYTES > limit:
        return 0
    record = b"".join((
        head, body,
        len(topic).to_bytes(2 if long_topic else 1, "big"), topic,
        properties_size.to_bytes(2, "big"), properties,
    ))  # fmt: skip
    if sealed:
        record += seal(crc32(record) & 0x7FFFFFFF)
    view[position : position + size] = record
    return size


def encode_rows(
    body_offsets: Buffer,
    bodies: Buffer,
    property_offsets: Buffer,
    properties: Buffer,
    rows: Buffer,
    beginning: bytes,
    number: int,
) -> bytes:
    """The body of a batch send out of columns: those messages whose rows are named.

    Columns are as Arrow has them: values behind one another, and 32-bit offsets of which there is
    one more than there are values; without `property_offsets` no message has properties of its own.
    Each gets a unique id, which is `beginning` and `number` plus its row, both as hex digits.
    """
    if len(beginning) != UNIQUE_BEGINNING_BYTES:
        raise ValueError(f"a unique id begins with {UNIQUE_BEGINNING_BYTES} bytes")
    body_ends, property_ends = _int32s(body_offsets), _int32s(property_offsets)
    pieces: list[bytes] = []
    for row in _int32s(rows):
        unique_id = beginning.hex().upper() + f"{(number + row) & 0xFFFFFFFF:08X}"
        own = _value(property_ends, properties, row) if property_ends else b""
        text = b"UNIQ_KEY\x01" + unique_id.encode() + b"\x02" + own
        if len(text) > PROPERTIES_BYTES_MAX:
            raise IllegalMessage(f"properties have {len(text)} bytes")
        pieces.append(encode_batched(0, _value(body_ends, bodies, row), text))
    return b"".join(pieces)


def text_properties(name: bytes, offsets: Buffer, data: Buffer) -> tuple[bytes, bytes] | None:
    """The property of that name out of a column of texts: offsets and bytes as Arrow has them,
    nothing where a text is empty. None if a text has a byte in it that separates properties."""
    starts = _int32s(offsets)
    texts = [_value(starts, data, row) for row in range(len(starts) - 1)]
    made = [name + b"\x01" + text + b"\x02" if text else b"" for text in texts]
    ends = [0, *itertools.accumulate(map(len, made))]
    if ends[-1] > 0x7FFFFFFF:
        raise ValueError(f"properties have {ends[-1]} bytes, 32 bits have to count them")
    if any(b"\x01" in text or b"\x02" in text for text in texts):
        return None
    return struct.pack(f"={len(ends)}i", *ends), b"".join(made)


def _int32s(buffer: Buffer) -> tuple[int, ...]:
    data = bytes(buffer)
    if len(data) % 4:
        raise ValueError(f"{len(data)} bytes are no whole numbers of 32 bits")
    return struct.unpack(f"={len(data) // 4}i", data)


def _value(offsets: tuple[int, ...], data: Buffer, row: int) -> bytes:
    if not 0 <= row < len(offsets) - 1:
        raise ValueError(f"there is no row {row}")
    start, end = offsets[row], offsets[row + 1]
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"row {row} is not inside of its buffer")
    return bytes(memoryview(data)[start:end])


def append_records(
    view: memoryview,
    position: int,
    limit: int,
    base: int,
    messages: Sequence[Message],
    number: int,
    next_offsets: dict[tuple[str, int], int],
    store_timestamp: int,
    store_host: bytes,
    sealed: bool,
    body_bytes_max: int,
    placed: list[Appended],
) -> int:
    """Encode messages from `number` on, one behind the other, and count up their queues' offsets.

    Stops, with the number of the message, where the caller must decide: a queue without a next
    offset, a body over the limit, no room for the record. `placed` tells how far it got, also
    when a message is illegal.
    """
    for message in messages[number:]:
        queue = (message.topic, message.queue_id)
        next_offset = next_offsets.get(queue)
        if next_offset is None or len(message.body) > body_bytes_max:
            break
        queued = flags.is_queued(message.sys_flag)
        queue_offset = next_offset if queued else 0
        size = encode_record(
            view, position, limit, message, queue_offset, base + position, store_timestamp,
            store_host, sealed,
        )  # fmt: skip
        if not size:
            break
        if queued:
            next_offsets[queue] = next_offset + 1
        placed.append(Appended(base + position, size, queue_offset, store_timestamp))
        position += size
        number += 1
    return number


_HOST_FLAGS = flags.BORN_HOST_V6 | flags.STORE_HOST_V6


def host_flags(born_host: bytes, store_host: bytes) -> int:
    born = flags.BORN_HOST_V6 if len(born_host) == 20 else 0
    return born | flags.STORE_HOST_V6 if len(store_host) == 20 else born


def check_record(view: memoryview, position: int, end: int, physical_offset: int) -> int:
    """Size of the whole, undamaged record at `position`; 0 for the end-of-file marker; the
    negated Damage otherwise."""
    return _check(view, position, end, physical_offset, verify=True)[0]


def _check(
    view: memoryview, position: int, end: int, physical_offset: int, *, verify: bool
) -> "tuple[int, Parts]":
    """The same, with the parts of a record that is whole."""
    if end - position < FILE_END_BYTES:
        return -Damage.SIZE, _NO_PARTS
    size: int
    size, magic = _SIZE_AND_MAGIC(view, position)
    if magic == BLANK_MAGIC:
        return 0, _NO_PARTS
    if magic not in (MAGIC_V1, MAGIC_V2):
        return -Damage.MAGIC, _NO_PARTS
    if size < FIXED_BYTES_MIN or size > end - position:
        return -Damage.SIZE, _NO_PARTS
    if _INT64(view, position + 28)[0] != physical_offset:
        return -Damage.POSITION, _NO_PARTS
    parts = record_parts(view, position, size)
    if parts is None:
        return -Damage.LENGTHS, _NO_PARTS
    if verify and not _checksum_holds(view, position, size, parts):
        return -Damage.CHECKSUM, _NO_PARTS
    return size, parts


Parts = tuple[int, int, int, int, int, int, int]
"""store time at, body at, body length, topic at, topic length, properties at, their length."""
_NO_PARTS: Parts = (0, 0, 0, 0, 0, 0, 0)


def record_parts(view: memoryview | bytes, position: int, size: int) -> Parts | None:
    """Where the parts of a record lie; None when their lengths do not add up to `size`."""
    end = position + size
    sys_flag = _INT32(view, position + 36)[0]
    store_time_at = position + 48 + (20 if sys_flag & flags.BORN_HOST_V6 else 8)
    at = store_time_at + 8 + (20 if sys_flag & flags.STORE_HOST_V6 else 8) + 12
    if at + 4 > end:
        return None
    body_size = _INT32(view, at)[0]
    body_at = at + 4
    is_v1 = view[position + 7] == MAGIC_V1 & 0xFF
    topic_at = body_at + body_size + (1 if is_v1 else 2)
    if body_size < 0 or topic_at > end:
        return None
    topic_size = (_INT8 if is_v1 else _INT16)(view, body_at + body_size)[0]
    at = topic_at + topic_size
    if topic_size < 0 or at + 2 > end:
        return None
    properties_size = _INT16(view, at)[0]
    if properties_size < 0 or at + 2 + properties_size != end:
        return None
    return store_time_at, body_at, body_size, topic_at, topic_size, at + 2, properties_size


RecordFields = tuple[bytes, int, int, int, int, int, int, int, int, bytes, bytes, bytes, bytes, int]
"""topic, queue id, queue offset, physical offset, reconsume times, born time, store time, flag,
sysFlag, body, properties, born host, store host, prepared transaction offset."""


def split_records(data: bytes) -> list[RecordFields]:
    """The records of a pull's answer, one behind the other, each as its fields.

    The body's CRC is checked, the seal is not: a broker may have changed properties on the way.
    """
    records = []
    at, end = 0, len(data)
    while at < end:
        if end - at < FIXED_BYTES_MIN:
            raise MalformedRecord(f"{end - at} stray bytes behind the last record")
        size, magic, crc = struct.unpack_from(">iIi", data, at)
        whole = FIXED_BYTES_MIN <= size <= end - at and magic in (MAGIC_V1, MAGIC_V2)
        parts = record_parts(data, at, size) if whole else None
        if parts is None:
            raise MalformedRecord(f"no record at byte {at} of {end}")
        fields = record_fields(data, at, size, parts)
        body = fields[9]
        if body and crc32(body) & 0x7FFFFFFF != crc & 0xFFFFFFFF:
            raise MalformedRecord(f"the body at queue offset {fields[2]} has another checksum")
        records.append(fields)
        at += size
    return records


def record_fields(data: bytes, at: int, size: int, parts: Parts) -> RecordFields:
    """The fields of the record at `at`, which is known to be whole."""
    store_at, body_at, body_size, topic_at, topic_size, properties_at, _ = parts
    _, _, _, queue_id, flag, queue_offset, physical, sys_flag, born = _HEAD.unpack_from(data, at)
    reconsume_times, prepared, _ = _TAIL.unpack_from(data, body_at - 16)
    stored = int.from_bytes(data[store_at : store_at + 8], "big", signed=True)
    return (
        data[topic_at : topic_at + topic_size], queue_id, queue_offset, physical, reconsume_times,
        born, stored, flag, sys_flag, data[body_at : body_at + body_size],
        data[properties_at : at + size], data[at + 48 : store_at],
        data[store_at + 8 : body_at - 16], prepared,
    )  # fmt: skip


def _checksum_holds(view: memoryview, position: int, size: int, parts: Parts) -> bool:
    """The seal decides where there is one; otherwise the body's CRC, all that RocketMQ has.

    One damaged byte must not pass a sealed record off as an unsealed one, so digits that match
    under a damaged name condemn the record; and so do zeros in the last bytes, which a page that
    never reached the disk leaves behind.
    """
    _, body_at, body_size, _, _, _, properties_size = parts
    if properties_size >= SEAL_BYTES:
        sealed_end = position + size - SEAL_BYTES
        tail = bytes(view[sealed_end : position + size])
        named = tail.startswith(SEAL_PREFIX)
        if named or (tail[-1:] == ENTRY_END and tail[-11:-1].isdigit()):
            matches = tail[-11:] == seal(crc32(view[position:sealed_end]) & 0x7FFFFFFF)[-11:]
            if named or matches:
                return named and matches
        if b"\0" in tail:
            return False
    elif properties_size and b"\0" in bytes(
        view[position + size - properties_size : position + size]
    ):
        return False
    stored_crc = int.from_bytes(view[position + 8 : position + 12], "big")
    return body_size == 0 or crc32(view[body_at : body_at + body_size]) & 0x7FFFFFFF == stored_crc


def scan_records(
    view: memoryview,
    start: int,
    end: int,
    base: int,
    delays_ms: tuple[int, ...],
    collect: bool,
    verify: bool = True,
) -> Scan:
    """Walk whole records from `start`; `base` is the physical offset of the view's first byte.

    With `collect`, gather what dispatch needs: ConsumeQueue entries by queue, and index keys.
    Without `verify` checksums are taken for granted: for records that were just encoded here.
    """
    position, count = start, 0
    stop, damage = Stop.END, Damage.NONE
    collected = Collected(delays_ms)
    may_hurry = collect and not verify
    while position < end:
        # What was just encoded here is usual for the most part.
        if may_hurry and (size := collected.add_usual(view, position, end, base + position)):
            position += size
            count += 1
            continue
        size, parts = _check(view, position, end, base + position, verify=verify)
        if size <= 0:
            stop = Stop.DAMAGED if size else Stop.BLANK
            damage = Damage(-size)
            break
        (collected.stored,) = _INT64(view, parts[0])
        if collect:
            collected.add(view, position, size, base + position, *parts[3:6])
        position += size
        count += 1
    return Scan(
        position, stop, damage, count, collected.stored, collected.close(), bytes(collected.keys)
    )


def select_records(
    entries: memoryview,
    start: int,
    end: int,
    queue_offset: int,
    log: memoryview,
    log_base: int,
    log_end: int,
    wanted: frozenset[int] | None,
    count_max: int,
    bytes_max: int,
) -> Selection:
    """Choose records by the ConsumeQueue entries in [start, end) that point into one segment.

    `queue_offset` is that of the first entry; `log_end` bounds the readable bytes of the segment.
    At least one record is chosen however small `bytes_max` is, so that a large one gets through.
    """
    slices: list[int] = []
    damaged: list[tuple[int, int, Damage]] = []
    count = size_total = number = 0
    outside = False
    for at in range(start, end, ENTRY_BYTES):
        physical, size, tag_code = ENTRY.unpack_from(entries, at)
        if wanted is None or tag_code in wanted:
            position = physical - log_base
            if size == HOLE_SIZE:
                damaged.append((number, physical, Damage.MAGIC))
            elif not 0 <= position < log_end:
                outside = True
                break
            elif count == count_max or (count and size_total + size > bytes_max):
                break
            else:
                damage = entry_damage(log, position, log_end, physical, size, queue_offset + number)
                if damage:
                    damaged.append((number, physical, damage))
                else:
                    _extend(slices, position, size)
                    count += 1
                    size_total += size
        number += 1
    return Selection(number, slices, count, size_total, damaged, outside)


def join_slices(log: memoryview, slices: list[int]) -> bytes:
    """The bytes of a selection's slices as one piece: many small ones cost more than a copy."""
    pairs = list(zip(slices[::2], slices[1::2], strict=True))
    if any(not 0 <= at <= at + size <= len(log) for at, size in pairs):
        raise ValueError("a slice reaches beyond the log")
    return b"".join([log[at : at + size] for at, size in pairs])


def entry_damage(
    log: memoryview, position: int, end: int, physical: int, size: int, queue_offset: int
) -> Damage:
    """What is wrong with the record that a ConsumeQueue entry leads to."""
    found = check_record(log, position, end, physical)
    if found <= 0:
        return Damage(-found) if found else Damage.MAGIC
    if found != size:
        return Damage.SIZE
    if int.from_bytes(log[position + 20 : position + 28], "big", signed=True) != queue_offset:
        return Damage.QUEUE_OFFSET
    return Damage.NONE


def _extend(slices: list[int], position: int, size: int) -> None:
    if slices and slices[-2] + slices[-1] == position:
        slices[-1] += size
    else:
        slices += (position, size)


def index_insert(
    view: memoryview, slot_count: int, item_limit: int, keys: bytes, start: int
) -> int:
    """Insert keys (see Scan.keys) from byte `start` on; where to go on when the file is full.

    A new item becomes the head of its slot's chain; `item_limit` is the first item number that
    must not be written.
    """
    begin_time, end_time, begin_offset, end_offset, used, count = INDEX_HEADER.unpack_from(view)
    count = max(count, 1)
    at = start
    item_at = INDEX_HEADER_BYTES + slot_count * 4 + count * INDEX_ITEM_BYTES
    while at < len(keys) and count < item_limit:
        hashed, physical, stored = KEY.unpack_from(keys, at)
        slot_at = INDEX_HEADER_BYTES + hashed % slot_count * 4
        (previous,) = _INT32(view, slot_at)
        if not 0 < previous < count:
            previous = 0
            used += 1
        late = 0 < begin_time < stored
        seconds = min((stored - begin_time) // 1000, 0x7FFFFFFF) if late else 0
        INDEX_ITEM.pack_into(view, item_at, hashed, physical, seconds, previous)
        _PUT_INT32(view, slot_at, count)
        item_at += INDEX_ITEM_BYTES
        if count == 1:
            begin_time, begin_offset = stored, physical
        end_time, end_offset = stored, physical
        count += 1
        at += KEY_BYTES
    INDEX_HEADER.pack_into(view, 0, begin_time, end_time, begin_offset, end_offset, used, count)
    return at


def index_lookup(
    view: memoryview, slot_count: int, hashed: int, begin_ms: int, end_ms: int, count_max: int
) -> list[int]:
    """Physical offsets under a key's hash, newest first. Other keys may share the hash."""
    begin_time, _, _, _, _, count = INDEX_HEADER.unpack_from(view)
    slot_at = INDEX_HEADER_BYTES + hashed % slot_count * 4
    number = int.from_bytes(view[slot_at : slot_at + 4], "big", signed=True)
    found: list[int] = []
    while 0 < number < count and len(found) < count_max:
        item_at = INDEX_HEADER_BYTES + slot_count * 4 + number * INDEX_ITEM_BYTES
        item_hash, physical, seconds, previous = INDEX_ITEM.unpack_from(view, item_at)
        stored = begin_time + seconds * 1000
        # Items keep whole seconds, so a match may be up to 999 ms younger than it looks.
        if item_hash == hashed and stored + 999 >= begin_ms and stored <= end_ms:
            found.append(physical)
        if previous >= number or stored + 999 < begin_ms:
            break
        number = previous
    return found


def index_count_below(
    view: memoryview, slot_count: int, physical_limit: int, item_limit: int
) -> int:
    """The first item number from 1 on that is unwritten or points to `physical_limit` or beyond."""
    items_at = INDEX_HEADER_BYTES + slot_count * 4
    last = number = 0
    for number in range(1, item_limit):
        hashed, physical, _, _ = INDEX_ITEM.unpack_from(view, items_at + number * INDEX_ITEM_BYTES)
        if (hashed == 0 and physical == 0) or physical < last or physical >= physical_limit:
            return number
        last = physical
    return max(item_limit, 1)


def index_relink(view: memoryview, slot_count: int, count: int) -> int:
    """Make all slots and chains anew from the items below `count`; how many slots are in use."""
    items_at = INDEX_HEADER_BYTES + slot_count * 4
    heads: dict[int, int] = {}
    for number in range(1, count):
        item_at = items_at + number * INDEX_ITEM_BYTES
        slot = int.from_bytes(view[item_at : item_at + 4], "big") % slot_count
        view[item_at + 16 : item_at + 20] = heads.get(slot, 0).to_bytes(4, "big")
        heads[slot] = number
    view[INDEX_HEADER_BYTES:items_at] = bytes(slot_count * 4)
    for slot, number in heads.items():
        slot_at = INDEX_HEADER_BYTES + slot * 4
        view[slot_at : slot_at + 4] = number.to_bytes(4, "big")
    return len(heads)
