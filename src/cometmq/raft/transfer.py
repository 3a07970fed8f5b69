"""A leader on its way to hand over: it takes no appends until its successor has everything."""

from msgspec import Struct


class Transfer(Struct, frozen=True):
    to: str
    ends_ms: int
