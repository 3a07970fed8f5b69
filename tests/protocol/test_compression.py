"""Compressed bodies: RocketMQ's are unpacked, ours tell how, and none asks for all memory."""

import pytest

from cometmq.protocol.compression import compress, decompress
from cometmq.protocol.errors import MalformedRecord
from cometmq.protocol.flags import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    MULTI_TAGS,
)

KINDS = {"lz4": COMPRESSION_LZ4, "zstd": COMPRESSION_ZSTD, "zlib": COMPRESSION_ZLIB}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
BODY = b"RocketMQ RocketMQ RocketMQ RocketMQ RocketMQ compresses this well"

# BODY as the compressors of org.apache.rocketmq.common.compression (5.5.0, level 5) pack it.
OF_ROCKETMQ = {
    COMPRESSION_LZ4: (
        "04224d18607073230000009f526f636b65744d5120090011f005636f6d707265737365732074686973207765"
        "6c6c00000000"
    ),
    COMPRESSION_ZSTD: (
        "28b52ffd00581c0100e8526f636b65744d5120636f6d7072657373657320746869732077656c6c0100499623"
        "010000"
    ),
    COMPRESSION_ZLIB: (
        "785e0bca4fce4e2df10d54082282919c9f5b50945a5c9c5aac50929159ac509e9a93030000b117af"
    ),
}


@EVERY_KIND
def test_bodies_packed_by_rocketmq_are_unpacked(kind: int) -> None:
    assert decompress(bytes.fromhex(OF_ROCKETMQ[kind]), COMPRESSED | kind) == BODY


def test_the_kinds_have_rocketmqs_numbers() -> None:
    # From CompressionType.getCompressionFlag of 5.5.0.
    assert list(KINDS.values()) == [256, 512, 768]


def test_compressed_without_a_kind_means_zlib() -> None:
    assert decompress(bytes.fromhex(OF_ROCKETMQ[COMPRESSION_ZLIB]), COMPRESSED) == BODY


@EVERY_KIND
@pytest.mark.parametrize("body", [b"", b"x", BODY, bytes(1_000_000)], ids=len)
def test_what_is_packed_is_unpacked(kind: int, body: bytes) -> None:
    packed, bits = compress(body, kind)
    assert bits == COMPRESSED | kind
    assert decompress(packed, bits | MULTI_TAGS) == body


@pytest.mark.parametrize("level", [1, 5, 9])
def test_any_level_is_unpacked(level: int) -> None:
    for kind in KINDS.values():
        assert decompress(*compress(BODY * 100, kind, level)) == BODY * 100


def test_packing_makes_a_repetitive_body_smaller() -> None:
    for kind in KINDS.values():
        assert len(compress(BODY * 100, kind)[0]) < len(BODY) * 10


@pytest.mark.parametrize("sys_flag", [0, COMPRESSION_LZ4, COMPRESSION_ZSTD, MULTI_TAGS])
def test_a_body_that_is_not_packed_stays_as_it_is(sys_flag: int) -> None:
    assert decompress(BODY, sys_flag) is BODY


@EVERY_KIND
def test_a_body_that_unpacks_to_too_much_is_refused(kind: int) -> None:
    packed, bits = compress(bytes(10_001), kind)
    assert len(decompress(packed, bits, 10_001)) == 10_001
    with pytest.raises(MalformedRecord, match="unpacks to over 10000 bytes"):
        decompress(packed, bits, 10_000)


@EVERY_KIND
def test_bytes_that_are_not_packed_are_refused(kind: int) -> None:
    with pytest.raises(MalformedRecord, match="a compressed body cannot be unpacked"):
        decompress(b"this was never packed", COMPRESSED | kind)


@EVERY_KIND
def test_a_cut_body_is_refused(kind: int) -> None:
    packed, bits = compress(bytes(range(256)) * 4, kind)
    for kept in range(len(packed)):
        with pytest.raises(MalformedRecord):
            decompress(packed[:kept], bits)


@pytest.mark.parametrize("kind", [0x400, 0x500, COMPRESSION_MASK])
def test_an_unknown_kind_is_told(kind: int) -> None:
    with pytest.raises(MalformedRecord, match=f"compression type 0x{kind:x} is unknown"):
        decompress(BODY, COMPRESSED | kind)
    with pytest.raises(ValueError, match=f"no compression has the number 0x{kind:x}"):
        compress(BODY, kind)
