"""What Spark is doing when a test takes far too long: nobody can ask it afterwards."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONG_S = 100.0
"""Less than tests wait for something to become true (`streaming.WAIT_S`)."""


@contextmanager
def told_when_stalled(java_pid: int) -> Iterator[None]:
    """Print where Java's threads and the Python processes below it are, once, after a long time."""
    timer = threading.Timer(LONG_S, _tell, [java_pid])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _tell(java_pid: int) -> None:
    os.kill(java_pid, signal.SIGQUIT)  # Java prints the stacks of all its threads, and goes on.
    for pid in _below(java_pid):
        command = _read(pid, "cmdline").replace("\0", " ")
        cpu = " ".join(_read(pid, "stat").rpartition(")")[2].split()[11:13])
        print(f"{pid} {_read(pid, 'wchan')} cpu {cpu}: {command}", file=sys.stderr)


def _below(pid: int) -> Iterator[int]:
    # Each thread has children of its own.
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield int(child)
            yield from _below(int(child))


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""
