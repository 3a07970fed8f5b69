"""How much goes through a broker: totals, and rates over the last minute, hour and day.

The hot ways add to plain integers; once in ten seconds the totals are copied beside the time. Rates
come from two such copies, so nothing is paid per message but an addition. What Prometheus reads is
made of the same integers when it asks.
"""

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator

import msgspec

from cometmq.histogram import Histogram

SAMPLE_INTERVAL_MS = 10_000
_MINUTE_SAMPLES = 7
_HOUR_EVERY, _HOUR_SAMPLES = 60, 7
_DAY_EVERY, _DAY_SAMPLES = 360, 25
METERS_MAX = 50_000
"""Of all names and keys together; what comes beyond is not counted one by one."""

# Names under which RocketMQ's tools ask for figures.
TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
SEND_BACK_NUMS = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"
# And ours.
COMMITTED_NUMS = "TRANSACTION_COMMIT_NUMS"
ROLLED_BACK_NUMS = "TRANSACTION_ROLLBACK_NUMS"

MESSAGE_BYTES = (1024, 4 * 1024, 512 * 1024, 1024**2, 2 * 1024**2, 4 * 1024**2)
"""Ranges of RocketMQ's rocketmq_message_size."""


class Snapshot(msgspec.Struct, frozen=True):
    sum: int
    tps: float
    avgpt: float


class Meter:
    """One growing total and copies of it at past times."""

    __slots__ = ("_day", "_hour", "_minute", "total")

    def __init__(self) -> None:
        self.total = 0
        self._minute: deque[tuple[int, int]] = deque(maxlen=_MINUTE_SAMPLES)
        self._hour: deque[tuple[int, int]] = deque(maxlen=_HOUR_SAMPLES)
        self._day: deque[tuple[int, int]] = deque(maxlen=_DAY_SAMPLES)

    def sample(self, number: int, now_ms: int) -> None:
        copy = (now_ms, self.total)
        if not self._minute:
            # It began to count since the last round, at 0.
            for samples in (self._minute, self._hour, self._day):
                samples.append((now_ms - SAMPLE_INTERVAL_MS, 0))
        self._minute.append(copy)
        if number % _HOUR_EVERY == 0:
            self._hour.append(copy)
        if number % _DAY_EVERY == 0:
            self._day.append(copy)

    def minute(self, now_ms: int) -> Snapshot:
        return self._since(self._minute, now_ms)

    def hour(self, now_ms: int) -> Snapshot:
        return self._since(self._hour, now_ms)

    def day(self, now_ms: int) -> Snapshot:
        return self._since(self._day, now_ms)

    def rate(self, now_ms: int, back_ms: int) -> float:
        """Per second, over about so long; back to an hour is possible."""
        since_ms = now_ms - back_ms - SAMPLE_INTERVAL_MS
        then = min((s for s in (*self._hour, *self._minute) if s[0] >= since_ms), default=None)
        if then is None or now_ms <= then[0]:
            return 0.0
        return (self.total - then[1]) * 1000 / (now_ms - then[0])

    def _since(self, samples: "deque[tuple[int, int]]", now_ms: int) -> Snapshot:
        then_ms, before = samples[0] if samples else (now_ms - SAMPLE_INTERVAL_MS, 0)
        grown, elapsed_ms = self.total - before, now_ms - then_ms
        return Snapshot(grown, grown * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0, 0.0)


class Mornings:
    """What a total was when today began, and when yesterday did; 0 before the broker's start."""

    def __init__(self) -> None:
        self.today = 0
        self.yesterday = 0
        self._day = (0, 0)

    def sample(self, total: int, now_ms: int) -> None:
        local = time.localtime(now_ms / 1000)
        day = (local.tm_year, local.tm_yday)
        if day != self._day:
            if self._day != (0, 0):
                self.yesterday, self.today = self.today, total
            self._day = day


class TopicTraffic:
    """What goes into one topic: looked up once a request, added to in place."""

    __slots__ = ("put", "put_bytes", "sizes")

    def __init__(self, put: Meter, put_bytes: Meter) -> None:
        self.put = put
        self.put_bytes = put_bytes
        self.sizes = [0] * (len(MESSAGE_BYTES) + 1)
        """How many messages are in each range of MESSAGE_BYTES, and above."""

    def add(self, count: int, size: int) -> None:
        self.put.total += count
        self.put_bytes.total += size
        # As in RocketMQ: those of a batch count with their average.
        self.sizes[bisect_left(MESSAGE_BYTES, size // count)] += count

    def size_histogram(self) -> Histogram:
        return Histogram(MESSAGE_BYTES, self.sizes, self.put_bytes.total)


class Stats:
    def __init__(self, now_ms: int) -> None:
        self.put = Meter()
        self.put_bytes = Meter()
        self.put_failed = Meter()
        self.got = Meter()
        self.got_bytes = Meter()
        self.pulls_found = Meter()
        self.pulls_missed = Meter()
        self._named: dict[tuple[str, str], Meter] = {
            (BROKER_PUT_NUMS, ""): self.put,
            (BROKER_GET_NUMS, ""): self.got,
        }
        self.topics: dict[str, TopicTraffic] = {}
        self.put_mornings = Mornings()
        self.got_mornings = Mornings()
        self._overflow = Meter()
        self._overflow_topic = TopicTraffic(self._overflow, Meter())
        self._samples = 0
        self.sample(now_ms)

    def meter(self, name: str, key: str) -> Meter:
        """The figure that RocketMQ's tools know by this name and key, to be added to."""
        found = self._named.get((name, key))
        if found is None:
            if len(self._named) >= METERS_MAX:
                return self._overflow
            found = self._named[name, key] = Meter()
        return found

    def topic(self, name: str) -> TopicTraffic:
        """What went into a topic so far, to be added to."""
        found = self.topics.get(name)
        if found is None:
            if len(self._named) >= METERS_MAX:
                return self._overflow_topic
            found = self.topics[name] = TopicTraffic(
                self.meter(TOPIC_PUT_NUMS, name), self.meter(TOPIC_PUT_SIZE, name)
            )
        return found

    def totals(self, name: str) -> Iterator[tuple[str, int]]:
        """Key and total of every figure with a name."""
        for (known, key), meter in self._named.items():
            if known == name:
                yield key, meter.total

    def find(self, name: str, key: str) -> Meter | None:
        return self._named.get((name, key))

    def forget(self, key: str) -> None:
        """Drop the figures of a topic or group that is gone."""
        for pair in [p for p in self._named if key in p[1].split("@")]:
            del self._named[pair]
        self.topics.pop(key, None)

    def sample(self, now_ms: int) -> None:
        for meter in self._all():
            meter.sample(self._samples, now_ms)
        self.put_mornings.sample(self.put.total, now_ms)
        self.got_mornings.sample(self.got.total, now_ms)
        self._samples += 1

    def _all(self) -> Iterator[Meter]:
        yield from (self.put_bytes, self.put_failed, self.got_bytes)
        yield from (self.pulls_found, self.pulls_missed)
        yield from self._named.values()
