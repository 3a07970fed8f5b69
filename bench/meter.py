"""What a client's child process measures: CPU and wall time of messages sent or consumed.

CPU time is that of the whole process: user and system, all threads. A drain has figures only if
each message of the backlog came exactly once.
"""

import itertools
import time
from collections.abc import Callable

from .report import Figures

BODY_BYTES = 128
IN_FLIGHT = 512
BATCH = 32
DRAIN_TIMEOUT_S = 80.0


def body(number: int) -> bytes:
    return number.to_bytes(8, "big") * (BODY_BYTES // 8)


class Meter:
    """Begins when it is made."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._cpu_s, self._wall_s = time.process_time(), time.monotonic()

    def figures(self) -> Figures:
        cpu_s, wall_s = time.process_time() - self._cpu_s, time.monotonic() - self._wall_s
        return {
            "cpu_us_per_msg": cpu_s / self._count * 1e6,
            "msgs_per_s": self._count / wall_s,
            "msgs_per_cpu_s": self._count / cpu_s,
        }


class Drain:
    """Takes a backlog in, from one thread or several; what counts begins after `warm` messages."""

    def __init__(self, warm: int, count: int, ended: Callable[[], object]) -> None:
        self._warm = warm
        self._total = warm + count
        self._meter = Meter(count)
        self._ended = ended
        self._turn = itertools.count(1)
        self._numbers: list[int] = []
        self._figures: Figures = {}

    def take(self, body: bytes) -> None:
        self._numbers.append(int.from_bytes(body[:8], "big"))
        turn = next(self._turn)
        if turn == self._warm:
            self._meter = Meter(self._total - self._warm)
        elif turn == self._total:
            self._figures = self._meter.figures()
            self._ended()

    def figures(self) -> Figures:
        """To be asked for when no handler is at work any more."""
        assert sorted(self._numbers) == list(range(self._total)), "messages lost or repeated"
        return self._figures


def latency_figures(took_ns: list[int]) -> Figures:
    ordered = sorted(took_ns)
    return {
        "p50_us": ordered[len(ordered) // 2] / 1000,
        "p99_us": ordered[len(ordered) * 99 // 100] / 1000,
    }
