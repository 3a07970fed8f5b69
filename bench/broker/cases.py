"""What is measured: one table of cases, with the aims of each.

A case is a run of the Java client or of the raw load generator against a broker that serves
already, or a measurement of its own (`runs.py`). Aims are ratios, ours to RocketMQ's.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from interop.rocketmq import ConfigValue

from cometmq.files import files_allowed

KIB: Final = 1024
CPU, SPEED = "cpu_us_per_msg", "msgs_per_s"
P50, P99, P999 = "p50_us", "p99_us", "p999_us"
MEMORY, SECONDS = "mib", "s"
LATENCY: Final = (P50, P99, P999)
MANY_QUEUES: Final = min(10_000, files_allowed() // 2)
"""A queue of ours takes a file, and two fifths of those that a process may have are for others."""
SYNC_FLUSH: Final[Mapping[str, ConfigValue]] = {"flushDiskType": "SYNC_FLUSH"}


class Aim(msgspec.Struct, frozen=True):
    most: float | None = None
    least: float | None = None

    def is_met(self, ratio: float) -> bool:
        return (self.most is None or ratio <= self.most) and (
            self.least is None or ratio >= self.least
        )

    def __str__(self) -> str:
        return f"≤ {self.most}" if self.most is not None else f"≥ {self.least}"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """`run` names a function of `runs.py`; `warm` messages come before the `count` that count."""

    run: str = "java"
    kind: str = ""
    """What the Java program does."""
    warm: int = 60_000
    count: int = 60_000
    together: int = 1
    body: int = 128
    queues: int = 8
    connections: int = 1
    units: tuple[str, ...] = (CPU, SPEED)
    config: Mapping[str, ConfigValue] = {}
    alone: bool = False
    """Wants a broker with an empty store for itself."""
    plain: bool = False
    """Is measured in plain Python, too."""
    aims: Mapping[str, Aim] = {}
    small: str = ""
    """A case that this one should cost hardly more than, ours against ours."""


def _fast(cpu: float, speed: float = 1.0) -> dict[str, Aim]:
    return {CPU: Aim(most=cpu), SPEED: Aim(least=speed)}


def _sync(threads: int, warm: int, count: int, **more: object) -> Case:
    settings: dict[str, object] = {
        "kind": "sync", "together": threads, "warm": warm, "count": count,
        "units": (CPU, SPEED, *LATENCY), "aims": {SPEED: Aim(least=1.0)}, **more,
    }  # fmt: skip
    return Case(**settings)  # type: ignore[arg-type]


_AT_ONCE: Final = {SPEED: Aim(least=1.0)}
_QUICKER: Final = {P50: Aim(most=0.6), P99: Aim(most=0.6)}

CASES: Final[Mapping[str, Case]] = {
    "async_512": Case(kind="async", together=512, plain=True, aims=_fast(0.22, 1.5)),
    "async_512_1k": Case(kind="async", together=512, body=KIB, aims=_AT_ONCE),
    # Long, so that the client's compiler has come to rest: it takes cores that others wait for.
    "sync_1": _sync(1, 40_000, 20_000, aims={**_QUICKER, SPEED: Aim(least=1.0)}),
    "ping": Case(
        run="ping", warm=8_000, count=12_000, units=(CPU, SPEED, *LATENCY),
        aims={**_QUICKER, **_AT_ONCE},
    ),
    "sync_16": _sync(16, 30_000, 30_000),
    "sync_64": _sync(64, 40_000, 40_000, plain=True, aims=_fast(0.22, 1.5)),
    "sync_64_1k": _sync(64, 40_000, 40_000, body=KIB),
    "one_way": Case(kind="one_way", aims=_fast(0.22)),
    "batch_32": Case(kind="batch", warm=150_000, count=150_000, aims=_fast(0.25)),
    "push": Case(run="drain", kind="push", warm=150_000, count=250_000, aims=_fast(0.3)),
    "end_to_end": Case(
        kind="end_to_end", together=2000, warm=10_000, count=10_000, units=(CPU, *LATENCY),
        aims=_QUICKER,
    ),
    "raw": Case(
        run="raw", warm=150_000, count=300_000, connections=4, plain=True,
        together=512, aims=_AT_ONCE,
    ),
    "raw_1k": Case(
        run="raw", warm=60_000, count=120_000, connections=4, together=512, body=KIB, aims=_AT_ONCE
    ),
    "connections_1": Case(run="raw", count=150_000, together=256, aims=_AT_ONCE),
    "connections_100": Case(
        run="raw", count=150_000, connections=100, together=32, aims=_AT_ONCE
    ),
    "connections_1000": Case(
        run="raw", count=150_000, connections=1000, together=8, aims=_AT_ONCE
    ),  # More of them, and RocketMQ refuses some: its sends wait in a queue of 10,000.
    "queues_1": Case(kind="async", together=512, queues=1, aims=_AT_ONCE),
    "queues_100": Case(kind="async", together=512, queues=100, aims=_AT_ONCE, small="queues_1"),
    "queues_many": Case(
        kind="async", together=512, queues=MANY_QUEUES, aims=_AT_ONCE, small="queues_1", alone=True
    ),
    "waiting_1000": Case(
        run="waiting", kind="async", together=512, aims=_AT_ONCE, small="queues_1", alone=True
    ),
    "sync_flush_1": _sync(1, 1_000, 2_000, config=SYNC_FLUSH),
    "sync_flush_64": _sync(
        64, 20_000, 30_000, config=SYNC_FLUSH, aims={SPEED: Aim(least=1.2)}
    ),
    "pull_old": Case(
        run="old", kind="push", warm=50_000, count=250_000, body=KIB, aims=_AT_ONCE, alone=True
    ),
    "memory_idle": Case(
        run="memory_idle", units=(MEMORY,), aims={MEMORY: Aim(most=0.1)}, alone=True
    ),
    "memory_load": Case(
        run="memory_load", kind="async", together=512, units=(MEMORY,),
        aims={MEMORY: Aim(most=0.1)}, alone=True,
    ),
    "start_up": Case(run="start_up", units=(SECONDS,), aims={SECONDS: Aim(most=0.2)}, alone=True),
    "recovery": Case(run="recovery", units=(SECONDS,), aims={SECONDS: Aim(most=0.7)}, alone=True),
    "growth": Case(
        run="growth", warm=30_000, count=150_000, connections=4, together=512, alone=True,
        units=("first_gib", "last_gib"),
    ),
}  # fmt: skip
OWN_AIM: Final = Aim(most=1.2)
"""Of a case against its own small one, and of the last GiB of a log against the first."""
