"""CPU time of processes, with all that they started: a Spark session is a JVM and many Pythons.

Spark's daemon does not wait for its workers, so what they used is nowhere to be found once they are
gone. The processes are looked at again and again instead; the last moments of one may be missed.
"""

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

LOOK_INTERVAL_S: Final = 0.25
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class CpuMeter:
    """CPU time of a process and its descendants while the meter is entered."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = _ticks_of_all(pid)
        self._after: dict[int, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="cpu-meter")

    @property
    def seconds(self) -> float:
        ticks = sum(after - self._before.get(pid, 0) for pid, after in self._after.items())
        return ticks / _TICKS_PER_S

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._after |= _ticks_of_all(self._pid)

    def _look(self) -> None:
        while not self._ended.wait(LOOK_INTERVAL_S):
            self._after |= _ticks_of_all(self._pid)


def _ticks_of_all(pid: int) -> dict[int, int]:
    """User and system time of each process."""
    ticks, waiting = dict[int, int](), [pid]
    while waiting:
        pid = waiting.pop()
        stat = _text(Path(f"/proc/{pid}/stat"))
        if not stat:
            continue
        # Behind the name, which may have anything in it.
        fields = stat.rpartition(")")[2].split()
        ticks[pid] = int(fields[11]) + int(fields[12])
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            waiting += map(int, _text(children).split())
    return ticks


def _text(path: Path) -> str:
    """Nothing if the process, or only that thread of it, has just ended."""
    try:
        return path.read_text()
    except OSError:
        return ""
