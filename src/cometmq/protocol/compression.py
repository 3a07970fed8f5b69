"""Compressed bodies: which codec the sysFlag names, and both directions.

The broker never looks inside a body; producers, consumers and Spark do. Unpacking is bounded,
so that a few bytes cannot ask for all memory.
"""

import zlib

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
    try:
        if kind == COMPRESSION_LZ4:
            unpacked: bytes = lz4.frame.LZ4FrameDecompressor().decompress(body, bytes_max + 1)
        elif kind == COMPRESSION_ZSTD:
            with zstandard.ZstdDecompressor().stream_reader(body) as reader:
                unpacked = reader.read(bytes_max + 1)
        elif kind in (COMPRESSION_ZLIB, 0):
            unpacked = zlib.decompressobj().decompress(body, bytes_max + 1)
        else:
            raise MalformedRecord(f"compression type 0x{kind:x} is unknown")
    except (zlib.error, RuntimeError, zstandard.ZstdError) as error:
        raise MalformedRecord(f"a compressed body cannot be unpacked: {error}") from error
    if len(unpacked) > bytes_max:
        raise MalformedRecord(f"a compressed body unpacks to over {bytes_max} bytes")
    return unpacked
