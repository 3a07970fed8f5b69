"""Bits of a message's sysFlag, and the values derived from them."""

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
TRANSACTION_MASK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_MASK = 0x700
COMPRESSION_LZ4 = 0x100
COMPRESSION_ZSTD = 0x200
COMPRESSION_ZLIB = 0x300
"""Old clients set COMPRESSED alone (type bits 0), which also means zlib."""


def is_queued(sys_flag: int) -> bool:
    """Prepared and rolled-back messages stay in the log; no ConsumeQueue ever points to them."""
    return sys_flag & TRANSACTION_MASK in (0, TRANSACTION_COMMIT)
