"""Which bodies travel packed, and how."""

import sys
from typing import Literal

from cometmq.protocol.compression import compress
from cometmq.protocol.flags import COMPRESSION_LZ4, COMPRESSION_ZLIB, COMPRESSION_ZSTD

Compression = Literal["zlib", "lz4", "zstd"]
COMPRESSIONS = {"zlib": COMPRESSION_ZLIB, "lz4": COMPRESSION_LZ4, "zstd": COMPRESSION_ZSTD}


class Packing:
    def __init__(self, kind: Compression | None, over_bytes: int, level: int) -> None:
        """None packs nothing."""
        self._kind = COMPRESSIONS[kind] if kind is not None else 0
        self.over_bytes = over_bytes if kind is not None else sys.maxsize
        """From so many bytes on a body is packed."""
        self._level = level

    def packed(self, body: bytes) -> tuple[bytes, int]:
        """The body as it travels, and its sysFlag; unpacked if packing makes it no shorter."""
        if len(body) < self.over_bytes:
            return body, 0
        packed, flag = compress(body, self._kind, self._level)
        return (packed, flag) if len(packed) < len(body) else (body, 0)
