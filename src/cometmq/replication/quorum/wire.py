"""Messages of the Raft core as bytes on a connection.

    0  uint32  bytes that follow
    4  uint32  CRC-32 of the content
    8          content, MessagePack: first a Hello, then messages

A connection carries messages one way: each member opens its own to every other. The checksum is
there because a damaged chunk would become part of a log.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Final

import msgspec

from cometmq.raft.messages import Message

from ..errors import BrokenStream

VERSION: Final = 1
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""A chunk is smaller by far, unless a single record is that long."""
_HEAD = struct.Struct(">II")
_CRC_BYTES: Final = 4


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """Who speaks, to whom it thinks it does, and what both must have in common."""

    version: int
    group: str
    sender: str
    receiver: str
    file_bytes: int
    """Size of a CommitLog file: records are laid out by it."""


_hello = msgspec.msgpack.Decoder(Hello)
_message: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_encoder = msgspec.msgpack.Encoder()


def frame(content: Hello | Message) -> bytes:
    body = _encoder.encode(content)
    return _HEAD.pack(len(body) + _CRC_BYTES, zlib.crc32(body)) + body


def decode_hello(body: bytes) -> Hello:
    try:
        return _hello.decode(body)
    except msgspec.MsgspecError as error:
        raise BrokenStream(f"no member of a group speaks here: {error}") from None


def decode_message(body: bytes) -> Message:
    try:
        return _message.decode(body)
    except msgspec.MsgspecError as error:
        raise BrokenStream(f"a message cannot be read: {error}") from None


class Frames:
    """Bytes as they come in; whole contents out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= _HEAD.size:
                size, crc = _HEAD.unpack_from(buffer, at)
                if not _CRC_BYTES <= size <= FRAME_BYTES_MAX:
                    raise BrokenStream(f"a frame of {size} bytes")
                end = at + _HEAD.size - _CRC_BYTES + size
                if len(buffer) < end:
                    break
                body = bytes(buffer[at + _HEAD.size : end])
                at = end
                if zlib.crc32(body) != crc:
                    raise BrokenStream("a frame was damaged on its way")
                yield body
        finally:
            del buffer[:at]
