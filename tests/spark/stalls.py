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
    for pid in below(java_pid):
        process = Path(f"/proc/{pid}")
        command = _read(process / "cmdline").replace("\0", " ")
        cpu = " ".join(_read(process / "stat").rpartition(")")[2].split()[11:13])
        print(f"{pid} {_read(process / 'wchan')} cpu {cpu}: {command}", file=sys.stderr)


def below(pid: int) -> Iterator[int]:
    """What a process has started, and what that has."""
    # Each thread has children of its own.
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _read(task).split():
            yield int(child)
            yield from below(int(child))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # It has ended.
        return ""
