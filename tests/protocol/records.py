"""Records, logs and ConsumeQueue entries for the tests of this package."""

from collections.abc import Iterable
from typing import NamedTuple

from cometmq.protocol.host import pack_host
from cometmq.protocol.hot import encode_record
from cometmq.protocol.layout import BLANK_MAGIC, ENTRY, FILE_END_BYTES
from cometmq.protocol.message import Message

HOST = pack_host("192.168.0.9", 10911)
HOST_V6 = pack_host("fd00::7", 10911)
BORN_HOST = pack_host("10.1.2.3", 40001)
BORN_HOST_V6 = pack_host("2001:db8::1", 40001)
STORED_AT = 1_700_000_000_500
BUFFER_BYTES = 8192


def simple(topic: str = "orders", queue_id: int = 0, properties: bytes = b"") -> Message:
    """A message of which only the parts matter that a test names."""
    return Message(topic, queue_id, b"body", properties, born_timestamp=1_700_000_000_000)


def encoded(
    message: Message,
    *,
    queue_offset: int = 0,
    physical_offset: int = 0,
    stored_at: int = STORED_AT,
    store_host: bytes = HOST,
    sealed: bool = True,
) -> bytes:
    """The record of a message, in a buffer of just the bytes that it needs."""
    room = BUFFER_BYTES + len(message.body) + len(message.properties)
    buffer = bytearray(room)
    size = encode_record(
        memoryview(buffer), 0, room, message, queue_offset, physical_offset, stored_at, store_host,
        sealed,
    )  # fmt: skip
    assert size > 0
    return bytes(buffer[:size])


class Put(NamedTuple):
    """A message and where its queue and the clock stood."""

    message: Message
    queue_offset: int
    stored_at: int = STORED_AT


class Log(NamedTuple):
    data: bytes
    base: int
    starts: list[int]
    """Where each record starts in `data`; at last, where the log ends."""

    def size(self, number: int) -> int:
        return self.starts[number + 1] - self.starts[number]


def log_of(puts: Iterable[Put], base: int = 0, sealed: bool = True) -> Log:
    data = bytearray()
    starts = [0]
    for message, queue_offset, stored_at in puts:
        data += encoded(
            message,
            queue_offset=queue_offset,
            physical_offset=base + len(data),
            stored_at=stored_at,
            sealed=sealed,
        )
        starts.append(len(data))
    return Log(bytes(data), base, starts)


def numbered_log(count: int, base: int = 0) -> Log:
    """Messages of one queue with the offsets 0, 1, 2 …"""
    return log_of((Put(simple(), number) for number in range(count)), base)


def entry(log: Log, number: int, tag_code: int = 0) -> bytes:
    """The ConsumeQueue entry of a log's record."""
    return ENTRY.pack(log.base + log.starts[number], log.size(number), tag_code)


def entries(log: Log, *tag_codes: int) -> bytes:
    """The entries of all records; their tag codes are 0 where none are given."""
    count = len(log.starts) - 1
    codes = tag_codes or (0,) * count
    return b"".join(entry(log, number, codes[number]) for number in range(count))


def end_marker(remaining: int = FILE_END_BYTES) -> bytes:
    """What fills up a file: the bytes that remain, and the marker's magic number."""
    return remaining.to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big")


def flipped(data: bytes, at: int, mask: int) -> bytes:
    damaged = bytearray(data)
    damaged[at] ^= mask
    return bytes(damaged)
