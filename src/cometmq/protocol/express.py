"""Sends with nothing unusual, from the frames of one read straight into the log.

What is unusual in any way (a topic that is not known yet, a delay, a part of a transaction, a text
beyond ASCII, no room) ends the walk: the general way takes it from there, and decides. So nothing
is refused here, and a record or an answer made here is the one that the general way would make.
This is the plain form of what `_compiled.pyx` does, which also takes batches and binary headers.
"""

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from zlib import crc32

import msgspec

from . import flags
from ._reference import host_flags, seal
from .codes import RequestCode
from .collected import Around, Collected, around
from .command import ONEWAY, FrameParser, HeaderKind, Response, encode_response
from .headers import SendFields
from .layout import FILE_END_BYTES, MAGIC_V1, SEAL_BYTES, TOPIC_BYTES_MAX_V1
from .numbers import Int32
from .properties import PROPERTIES_BYTES_MAX
from .scan import Damage, Scan, Stop

Queue = tuple[str, int]
FLAGS_TAKEN: Final = flags.COMPRESSED | flags.COMPRESSION_MASK
OPAQUE, MESSAGE_ID, QUEUE_ID, QUEUE_OFFSET, UNIQUE_ID = slots = (
    "1234567891", "<message>", "<queue>", "<offset>", "<unique>",
)  # fmt: skip
"""What stands in a pattern of an answer where each answer has something of its own."""
_PREFIX = struct.Struct(">II")
_PREFIX_BYTES: Final = 8
_UNUSUAL: Final = (
    "DELAY\x01", "TIMER_", "CLUSTER\x01", "TRAN_MSG\x01", "POP_CK\x01", "__CRC32#\x01",
    "WAIT\x01false", "UNIQ_KEY\x01",
)  # fmt: skip
_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_HEADS: Final = {size: struct.Struct(f">iIiiiqqiq{size}si") for size in (36, 48, 60)}
"""What stands before the body of a record, by the bytes between born time and the body's length,
which all sends of a read have in common."""
_QUEUE_ID: Final = slice(12, 16)
"""Where it stands in a record."""
_TIME = struct.Struct(">q")
_TOPIC_SIZES: Final = tuple(bytes((size,)) for size in range(TOPIC_BYTES_MAX_V1 + 1))
_SIZE = struct.Struct(">h")
_KNOWN_CHARS_MAX: Final = 512
"""Of properties that are remembered."""


class Rules(msgspec.Struct, frozen=True):
    """What a broker's sends have in common."""

    topics: Mapping[bytes, tuple[Queue, ...]]
    """The queues of a topic, by their ids; none if its sends go the general way."""
    frame_bytes_max: int
    body_bytes_max: int
    added: bytes
    """Properties that every message gets on its way in."""
    host_digits: bytes
    """What offset ids begin with."""
    answers: tuple[tuple[bytes, ...], ...]
    """Patterns of answers with JSON and with binary headers, of each for messages and batches."""


class Taken(msgspec.Struct, frozen=True, gc=False):
    end: int
    """Where in the bytes the first frame begins that was not taken."""
    position: int
    """Where in the log's file the next record goes."""
    sends: tuple[int, int, int, int]
    """Requests of the first code and of batches; then those of both that want no answer."""
    puts: list[tuple[str, int, int]]
    """A topic, messages and their records' bytes; messages whose sizes are of the same magnitude,
    so that their average tells about each."""
    answers: bytes
    """The frames that tell of success."""
    scan: Scan | None = None
    """What a scan of the records would tell, if that is known already."""

    @property
    def requests(self) -> int:
        return sum(self.sends)


def answer_patterns(
    message: Mapping[str, str], batch: Mapping[str, str]
) -> tuple[tuple[bytes, ...], ...]:
    """Answers cut into pieces, out of the fields that they have with slots in them."""
    return tuple(_pattern(kind, fields) for kind in HeaderKind for fields in (message, batch))


def _pattern(kind: HeaderKind, fields: Mapping[str, str]) -> tuple[bytes, ...]:
    rest = encode_response(Response(fields=fields), int(OPAQUE), kind)[0][_PREFIX.size :]
    pieces = []
    if kind is HeaderKind.BINARY:
        pieces.append(b"")  # Its numbers stand at fixed places.
    for slot in slots[len(pieces) :]:
        piece, found, rest = rest.partition(slot.encode())
        if not found:
            return (*pieces, piece)
        # A text in a binary header stands behind its size, which is the answer's own.
        pieces.append(piece[:-4] if kind is HeaderKind.BINARY else piece)
    return (*pieces, rest)


def as_failures(answers: bytes, code: int, remark: str | None) -> bytes:
    """The same answers, but telling of a failure."""
    pieces: list[bytes] = []
    for answer in FrameParser().feed(answers):
        response = Response(code, remark, answer.text_fields())
        pieces += encode_response(response, answer.opaque, answer.kind)
    return b"".join(pieces)


class _Head(msgspec.Struct, gc=False):
    code: Int32
    extFields: SendFields  # noqa: N815 - its name on the wire
    opaque: Int32 = 0
    flag: Int32 = 0


_decode = msgspec.json.Decoder(_Head, strict=False).decode


def append_sends(
    view: memoryview,
    position: int,
    limit: int,
    base: int,
    next_offsets: dict[Queue, int],
    store_timestamp: int,
    store_host: bytes,
    sealed: bool,
    data: bytes,
    rules: Rules,
    born_host: bytes,
    requests_max: int,
) -> Taken:
    """Put the sends that `data` begins with into the log, and count up their queues' offsets."""
    at = requests = oneway = counted = counted_from = size_max = 0
    topic = ""
    puts: list[tuple[str, int, int]] = []
    answers: list[bytes] = []
    pattern = _answer_pattern(rules.answers[0], rules.host_digits)
    hosts = host_flags(born_host, store_host)
    collected = Collected((), store_timestamp)
    common = born_host + _TIME.pack(store_timestamp) + store_host + bytes(12)
    while requests < requests_max and at < len(data):
        send = _usual_send(data, at, rules)
        if send is None:
            break
        head, queue, known, unique_id, properties, body_at, end = send
        next_offset = next_offsets.get(queue)
        if next_offset is None:
            break
        physical = base + position
        record = _record(
            head.extFields, hosts, common, data[body_at:end], known.topic, properties, next_offset,
            physical, sealed,
        )  # fmt: skip
        size = len(record)
        if not size or position + size + FILE_END_BYTES > limit:
            break
        view[position : position + size] = record
        next_offsets[queue] = next_offset + 1
        queue_id = record[_QUEUE_ID]
        collected.add_known(known, unique_id, queue_id, next_offset, physical, size)
        if head.flag:
            oneway += 1
        else:
            answer = pattern % (
                head.opaque, physical, queue[1], next_offset, unique_id.encode()
            )  # fmt: skip
            answers.append(_PREFIX.pack(4 + len(answer), len(answer)) + answer)
        if queue[0] is not topic or not size_max < 2 * size <= 2 * size_max:
            if counted:
                puts.append((topic, counted, position - counted_from))
            topic, counted, counted_from = queue[0], 0, position
            size_max = 1 << (size - 1).bit_length()
        counted += 1
        position += size
        requests += 1
        at = end
    if counted:
        puts.append((topic, counted, position - counted_from))
    scan = None
    if requests:
        runs, keys = collected.close(), bytes(collected.keys)
        scan = Scan(position, Stop.END, Damage.NONE, requests, store_timestamp, runs, keys)
    return Taken(at, position, (requests - oneway, 0, oneway, 0), puts, b"".join(answers), scan)


def _usual_send(
    data: bytes, at: int, rules: Rules
) -> tuple[_Head, Queue, Around, str, bytes, int, int] | None:
    """The send at `at`: header, queue, what is known of it, unique id, properties as they are
    stored, where its body lies."""
    if len(data) - at < _PREFIX_BYTES:
        return None
    size, word = _PREFIX.unpack_from(data, at)
    body_at, end = at + _PREFIX_BYTES + word, at + 4 + size  # A JSON header's kind is 0.
    if size > rules.frame_bytes_max or body_at > end or end > len(data):
        return None
    try:
        head = _decode(data[at + _PREFIX_BYTES : body_at])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    fields = head.extFields
    if head.code != _SEND or head.flag & ~ONEWAY or fields.batch:
        return None
    if fields.sys_flag & ~FLAGS_TAKEN or fields.reconsume_times:
        return None
    topic = fields.topic.encode()
    queues = rules.topics[topic]
    if not 0 <= fields.queue_id < len(queues) or end - body_at > rules.body_bytes_max:
        return None
    properties = fields.properties
    before, _, rest = properties.partition("UNIQ_KEY\x01")
    unique_id, _, after = rest.partition("\x02")
    if not unique_id.isalnum() or not unique_id.isascii():
        return None
    find = _known if len(properties) <= _KNOWN_CHARS_MAX else _usual_around
    found = find(topic, before, after, rules.added)
    if found is None:
        return None
    closing = b"" if properties[-1] == "\x02" else b"\x02"
    stored = properties.encode() + closing + rules.added
    return head, queues[fields.queue_id], found, unique_id, stored, body_at, end


def _usual_around(topic: bytes, before: str, after: str, added: bytes) -> Around | None:
    """What the properties before and behind a unique id, and those that are added, say of a
    message; None if there is anything unusual about them."""
    both = before + after
    if not both.isascii() or any(name in both for name in _UNUSUAL):
        return None
    closing = b"" if not after or after[-1] == "\x02" else b"\x02"
    return around(topic, before.encode(), after.encode() + closing + added)


_known = lru_cache(512)(_usual_around)
"""Many messages of a sender have the same ones there."""


def _record(
    fields: SendFields,
    hosts: int,
    common: bytes,
    body: bytes,
    topic: bytes,
    properties: bytes,
    queue_offset: int,
    physical_offset: int,
    sealed: bool,
) -> bytes:
    """What the log has of a send (see `_reference`); empty if its topic or properties are long."""
    properties_size = len(properties) + SEAL_BYTES if sealed else len(properties)
    if len(topic) > TOPIC_BYTES_MAX_V1 or properties_size > PROPERTIES_BYTES_MAX:
        return b""
    head = _HEADS[len(common)]
    size = head.size + len(body) + 1 + len(topic) + 2 + properties_size
    record = b"".join((
        head.pack(
            size, MAGIC_V1, crc32(body) & 0x7FFFFFFF, fields.queue_id, fields.flag, queue_offset,
            physical_offset, fields.sys_flag | hosts, fields.born_timestamp, common, len(body),
        ),
        body, _TOPIC_SIZES[len(topic)], topic, _SIZE.pack(properties_size), properties,
    ))  # fmt: skip
    return record + seal(crc32(record) & 0x7FFFFFFF) if sealed else record


@lru_cache(8)
def _answer_pattern(pieces: tuple[bytes, ...], host_digits: bytes) -> bytes:
    """An answer, with room for opaque, physical offset, queue, its offset and unique id."""
    opaque, message_id, queue, offset, unique_id, rest = (
        piece.replace(b"%", b"%%") for piece in pieces
    )
    return b"".join((
        opaque, b"%d", message_id, host_digits, b"%016X", queue, b"%d", offset, b"%d", unique_id,
        b"%b", rest,
    ))  # fmt: skip
