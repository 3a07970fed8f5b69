"""Sends with nothing unusual, from the frames of one read straight into the log.

What is unusual in any way (a topic that is not known yet, a delay, a part of a transaction, a text
beyond ASCII, no room) ends the walk: the general way takes it from there, and decides. So nothing
is refused here, and a record or an answer made here is the one that the general way would make.
This is the plain form of what `_compiled.pyx` does, which also takes batches and binary headers.
"""

import struct
from collections.abc import Mapping
from typing import Final

import msgspec

from . import _reference, flags
from .codes import RequestCode
from .command import ONEWAY, FrameParser, HeaderKind, Response, encode_response
from .errors import IllegalMessage
from .headers import SendFields
from .message import Message
from .numbers import Int32
from .properties import property_value

Queue = tuple[str, int]
FLAGS_TAKEN: Final = flags.COMPRESSED | flags.COMPRESSION_MASK
OPAQUE, MESSAGE_ID, QUEUE_ID, QUEUE_OFFSET, UNIQUE_ID = slots = (
    "1234567891", "<message>", "<queue>", "<offset>", "<unique>",
)  # fmt: skip
"""What stands in a pattern of an answer where each answer has something of its own."""
_PREFIX = struct.Struct(">II")
_UNUSUAL: Final = (
    b"DELAY\x01", b"TIMER_", b"CLUSTER\x01", b"TRAN_MSG\x01", b"POP_CK\x01", b"__CRC32#\x01",
    b"WAIT\x01false",
)  # fmt: skip


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
    at = requests = oneway = 0
    puts: dict[tuple[str, int], tuple[int, int]] = {}
    answers: list[bytes] = []
    while requests < requests_max:
        found = _usual_send(data, at, rules)
        if found is None:
            break
        head, queue, properties, body_at, end = found
        next_offset = next_offsets.get(queue)
        unique_id = property_value(properties, b"UNIQ_KEY")
        if next_offset is None or unique_id is None or not unique_id.isalnum():
            break
        fields = head.extFields
        message = Message(
            queue[0], queue[1], data[body_at:end], properties, fields.flag, fields.sys_flag,
            fields.born_timestamp, born_host,
        )  # fmt: skip
        try:
            size = _reference.encode_record(
                view, position, limit, message, next_offset, base + position, store_timestamp,
                store_host, sealed,
            )  # fmt: skip
        except IllegalMessage:
            break
        if not size:
            break
        next_offsets[queue] = next_offset + 1
        if head.flag & ONEWAY:
            oneway += 1
        else:
            answers.append(
                _answer(rules, head.opaque, base + position, queue[1], next_offset, unique_id)
            )
        alike = queue[0], (size - 1).bit_length()
        count, total = puts.get(alike, (0, 0))
        puts[alike] = count + 1, total + size
        position += size
        requests += 1
        at = end
    counted = [(topic, count, size) for (topic, _), (count, size) in puts.items()]
    return Taken(at, position, (requests - oneway, 0, oneway, 0), counted, b"".join(answers))


def _usual_send(data: bytes, at: int, rules: Rules) -> tuple[_Head, Queue, bytes, int, int] | None:
    """The send at `at`: header, queue, properties as they are stored, where its body lies."""
    if len(data) - at < _PREFIX.size:
        return None
    size, word = _PREFIX.unpack_from(data, at)
    body_at, end = at + _PREFIX.size + word, at + 4 + size  # A JSON header's kind is 0.
    if size > rules.frame_bytes_max or body_at > end or end > len(data):
        return None
    try:
        head = _decode(data[at + _PREFIX.size : body_at])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    fields = head.extFields
    if head.code != RequestCode.SEND_MESSAGE_V2 or head.flag & ~ONEWAY or fields.batch:
        return None
    if fields.sys_flag & ~FLAGS_TAKEN or fields.reconsume_times:
        return None
    queues = rules.topics[fields.topic.encode()]
    properties = fields.properties.encode()
    if not properties.isascii() or end - body_at > rules.body_bytes_max:
        return None
    if not 0 <= fields.queue_id < len(queues):
        return None
    for name in _UNUSUAL:
        if name in properties:
            return None
    closing = b"" if properties.endswith(b"\x02") else b"\x02"
    return head, queues[fields.queue_id], properties + closing + rules.added, body_at, end


def _answer(
    rules: Rules, opaque: int, physical: int, queue_id: int, queue_offset: int, unique_id: bytes
) -> bytes:
    pieces = rules.answers[0]
    header = b"%b%d%b%b%016X%b%d%b%d%b%b%b" % (
        pieces[0], opaque, pieces[1], rules.host_digits, physical, pieces[2], queue_id, pieces[3],
        queue_offset, pieces[4], unique_id, pieces[5],
    )  # fmt: skip
    return _PREFIX.pack(4 + len(header), len(header)) + header
