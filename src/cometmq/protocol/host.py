"""Host addresses as records carry them: packed IP (4 or 16 bytes), then the port as int32."""

import ipaddress
import struct
from typing import NamedTuple


class Host(NamedTuple):
    ip: str
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


def pack_host(ip: str, port: int) -> bytes:
    return ipaddress.ip_address(ip).packed + struct.pack(">i", port)


def unpack_host(packed: bytes) -> Host:
    address = ipaddress.ip_address(packed[:-4])
    return Host(str(address), int.from_bytes(packed[-4:], "big", signed=True))
