"""Which state of a table somebody has: RocketMQ compares these before it sends the whole."""

import msgspec

from .numbers import Int64


class DataVersion(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    state_version: Int64 = 0
    timestamp: Int64 = 0
    counter: Int64 = 0

    def next(self, now_ms: int) -> "DataVersion":
        return DataVersion(self.state_version, now_ms, self.counter + 1)
