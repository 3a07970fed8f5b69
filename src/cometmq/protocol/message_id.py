"""The two ids of a message, both upper-case hex.

An offset id tells where the broker keeps it: packed host, port, physical offset.
A unique id is made by the producer: IP, process, a number of this program, milliseconds
since the month began, a counter.
"""

import calendar
import itertools
import os
import socket
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

from .errors import MalformedRecord
from .host import Host, unpack_host
from .message import Appended

_OFFSET_ID_BYTES = (16, 28)
_UNIQUE_ID_BYTES = (16, 28)
_OFFSET_MASK = 2**64 - 1


def offset_id(store_host: bytes, physical_offset: int) -> str:
    return (store_host + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


def offset_ids(store_host: bytes, placed: Sequence[Appended]) -> str:
    """Those of several messages at one broker, commas between them."""
    host = store_host.hex().upper()
    return ",".join([f"{host}{where.physical_offset & _OFFSET_MASK:016X}" for where in placed])


def parse_offset_id(text: str) -> tuple[Host, int]:
    raw = _from_hex(text, _OFFSET_ID_BYTES, "an offset message id")
    return unpack_host(raw[:-8]), int.from_bytes(raw[-8:], "big", signed=True)


class UniqueIds:
    """Makes unique ids; `seed` stands where Java puts its class loader's hash."""

    def __init__(self, ip: bytes, seed: int, pid: int | None = None) -> None:
        process = os.getpid() if pid is None else pid
        prefix = ip + struct.pack(">HI", process & 0xFFFF, seed & 0xFFFFFFFF)
        self._prefix = prefix.hex().upper()
        self._counter = itertools.count()
        self._month_start_ms = 0
        self._month_end_ms = 0
        self._last = (-1, "")
        """All ids of one millisecond begin alike; one value, so that threads may share it."""

    def make(self, now_ms: int) -> str:
        return f"{self._begin(now_ms)}{next(self._counter) & 0xFFFF:04X}"

    def make_several(self, now_ms: int, count: int) -> list[str]:
        beginning, counter = self._begin(now_ms), self._counter
        return [f"{beginning}{next(counter) & 0xFFFF:04X}" for _ in range(count)]

    def _begin(self, now_ms: int) -> str:
        made_ms, beginning = self._last
        if made_ms == now_ms:
            return beginning
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._month_start_ms, self._month_end_ms = _month_around(now_ms)
        elapsed = now_ms - self._month_start_ms
        beginning = f"{self._prefix}{elapsed & 0xFFFFFFFF:08X}"
        self._last = (now_ms, beginning)
        return beginning


class UniqueIdParts(NamedTuple):
    ip: str
    pid: int
    created_ms: int
    counter: int


def parse_unique_id(text: str, now_ms: int) -> UniqueIdParts:
    """What a unique id tells; the month is the latest one that does not lie in the future."""
    raw = _from_hex(text, _UNIQUE_ID_BYTES, "a unique message id")
    family = socket.AF_INET6 if len(raw) == 28 else socket.AF_INET
    pid, _, elapsed, counter = struct.unpack(">HIIH", raw[-12:])
    start, _ = _month_around(now_ms)
    if start + elapsed > now_ms:
        start, _ = _month_around(start - 1)
    return UniqueIdParts(socket.inet_ntop(family, raw[:-12]), pid, start + elapsed, counter)


def _month_around(now_ms: int) -> tuple[int, int]:
    """Local month, as in Java: both sides of a cluster share the producer's id, not its zone."""
    local = time.localtime(now_ms / 1000)
    days = calendar.monthrange(local.tm_year, local.tm_mon)[1]
    start = time.mktime((local.tm_year, local.tm_mon, 1, 0, 0, 0, 0, 0, -1))
    end = time.mktime((local.tm_year, local.tm_mon, days + 1, 0, 0, 0, 0, 0, -1))
    return int(start * 1000), int(end * 1000)


def _from_hex(text: str, sizes: tuple[int, ...], what: str) -> bytes:
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) not in sizes or len(text) != len(raw) * 2:
        wanted = " or ".join(str(size * 2) for size in sizes)
        raise MalformedRecord(f"{text!r} is not {what}: {wanted} hex digits are")
    return raw
