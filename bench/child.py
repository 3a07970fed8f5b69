"""One run of a measurement in a process of its own, so that no run warms up the next.

The child's module has a `MEASUREMENTS` table and calls `serve` on it; its figures come back as
JSON on its stdout. `COMETMQ_PURE` decides which twin of the hot functions it uses.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

import msgspec

from .report import Figures

Task = Mapping[str, str | int | float | bool]
Measurement = Callable[..., Figures]

TIMEOUT_S = 90
"""A child should end within 20 s; a machine with other work on it may need longer."""


class ChildFailed(Exception):
    """A run gave no figures; its own stderr said why."""


def run_child(module: str, name: str, task: Task, *, pure: bool = False) -> dict[str, float]:
    """Run one measurement; a child that takes too long is killed."""
    command = [sys.executable, "-m", module, name, msgspec.json.encode(task).decode()]
    return run_command(command, name, {"COMETMQ_PURE": "1" if pure else "0"})


def run_command(
    command: Sequence[str], name: str, environment: Mapping[str, str]
) -> dict[str, float]:
    """Run what prints a measurement's figures, in whatever it is written."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise ChildFailed(f"{name} took longer than {TIMEOUT_S} s") from late
    if done.returncode:
        raise ChildFailed(f"{name} ended with {done.returncode}")
    return msgspec.json.decode(done.stdout, type=dict[str, float])


def serve(measurements: Mapping[str, Measurement]) -> None:
    """The child's side: measure what the command line names, print it and leave at once.

    Nothing is closed: a store that is left like this looks like one whose process was killed.
    """
    name, task = sys.argv[1], msgspec.json.decode(sys.argv[2], type=dict[str, object])
    figures = measurements[name](**task)
    sys.stdout.write(msgspec.json.encode(figures).decode())
    sys.stdout.flush()
    os._exit(0)
