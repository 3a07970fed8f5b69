"""Figures of the process itself, under the names that all Prometheus clients use."""

import os
import resource
import time
from functools import cache
from pathlib import Path

from cometmq import __version__
from cometmq.protocol import hot

from .exposition import Family, counter, gauge

_PROC = Path("/proc/self")


def process_families() -> list[Family]:
    times = os.times()
    codec = "compiled" if hot.COMPILED else "python"
    found = [
        gauge(
            "cometmq_build_info", "Always 1; its labels say what runs", 1,
            version=__version__, codec=codec,
        ),
        counter(
            "process_cpu_seconds_total", "CPU time used, user and system",
            times.user + times.system,
        ),
        gauge("process_start_time_seconds", "When the process began", _started()),
        gauge(
            "process_max_fds", "Files that may be open",
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        ),
    ]  # fmt: skip
    return found + (_of_linux() if _PROC.is_dir() else [])


def _of_linux() -> list[Family]:
    pages = int((_PROC / "statm").read_text().split()[1])
    return [
        gauge(
            "process_resident_memory_bytes", "Memory in use, mapped files included",
            pages * os.sysconf("SC_PAGE_SIZE"),
        ),
        gauge("process_open_fds", "Files that are open", len([*(_PROC / "fd").iterdir()])),
    ]  # fmt: skip


@cache
def _started() -> float:
    """Once: the clock on the wall may be set later."""
    if not _PROC.is_dir():
        return time.time()
    since_boot = int((_PROC / "stat").read_text().rpartition(")")[2].split()[19])
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - uptime_s + since_boot / os.sysconf("SC_CLK_TCK")
