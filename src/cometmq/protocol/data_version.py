"""Which state of a table somebody has: RocketMQ compares these before it sends the whole."""

import msgspec


class DataVersion(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def next(self, now_ms: int) -> "DataVersion":
        return DataVersion(self.state_version, now_ms, self.counter + 1)
