"""Compressed bodies: which codec the sysFlag names, and both directions.

The broker never looks inside a body; producers, consumers and Spark do. Unpacking is bounded,
so that a few bytes cannot ask for all memory.
"""

import zlib
from collections.abc import Callable

import lz4.frame
import zstandard

from .errors import MalformedRecord
from .flags import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

UNPACKED_BYTES_MAX = 128 * 1024 * 1024
_ZSTD_STEP_BYTES = 512


def compress(body: bytes, kind: int = COMPRESSION_ZLIB, level: int = 5) -> tuple[bytes, int]:
    """The packed body and the sysFlag bits that tell a consumer how to unpack it."""
    if kind == COMPRESSION_LZ4:
        packed = lz4.frame.compress(body)
    elif kind == COMPRESSION_ZSTD:
        packed = zstandard.ZstdCompressor(level=level).compress(body)
    elif kind == COMPRESSION_ZLIB:
        packed = zlib.compress(body, level)
    else:
        raise ValueError(f"no compression has the number 0x{kind:x}")
    return packed, COMPRESSED | kind


def decompress(body: bytes, sys_flag: int, bytes_max: int = UNPACKED_BYTES_MAX) -> bytes:
    """The body as it was sent; returned as it is when the flag says that it isn't packed."""
    if not sys_flag & COMPRESSED:
        return body
    kind = sys_flag & COMPRESSION_MASK
    if kind not in _UNPACK:
        raise MalformedRecord(f"compression type 0x{kind:x} is unknown")
    try:
        unpacked, whole = _UNPACK[kind](body, bytes_max + 1)
    except (zlib.error, RuntimeError, zstandard.ZstdError) as error:
        raise MalformedRecord(f"a compressed body cannot be unpacked: {error}") from error
    if len(unpacked) > bytes_max:
        raise MalformedRecord(f"a compressed body unpacks to over {bytes_max} bytes")
    if not whole:
        raise MalformedRecord("a compressed body is cut off")
    return unpacked


def _unpack_zlib(body: bytes, bytes_max: int) -> tuple[bytes, bool]:
    stream = zlib.decompressobj()
    return stream.decompress(body, bytes_max), stream.eof


def _unpack_lz4(body: bytes, bytes_max: int) -> tuple[bytes, bool]:
    stream = lz4.frame.LZ4FrameDecompressor()
    return stream.decompress(body, bytes_max), stream.eof


def _unpack_zstd(body: bytes, bytes_max: int) -> tuple[bytes, bool]:
    unpacked = bytearray()
    stream = zstandard.ZstdDecompressor().decompressobj()
    # It has no bound of its own: what it is fed at a time bounds what it gives.
    for at in range(0, len(body), _ZSTD_STEP_BYTES):
        unpacked += stream.decompress(body[at : at + _ZSTD_STEP_BYTES])
        if stream.eof or len(unpacked) > bytes_max:
            break
    return bytes(unpacked), stream.eof


_UNPACK: dict[int, Callable[[bytes, int], tuple[bytes, bool]]] = {
    0: _unpack_zlib,
    COMPRESSION_ZLIB: _unpack_zlib,
    COMPRESSION_LZ4: _unpack_lz4,
    COMPRESSION_ZSTD: _unpack_zstd,
}
