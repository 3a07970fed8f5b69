"""A Spark session in a process of its own, asked for one run after the other (see runs.py)."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from ..child import ChildFailed
from .runs import Run

STOP_S: Final = 30.0


class SparkProcess:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, run: Run) -> dict[str, float]:
        """Its figures; ChildFailed when there are none."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(msgspec.json.encode(run) + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise ChildFailed(f"{run.kind} of {run.format} gave no figures")
        answer = msgspec.json.decode(line, type=dict[str, float] | str)
        if isinstance(answer, str):
            raise ChildFailed(f"{run.kind} of {run.format}: {answer}")
        return answer


@contextmanager
def spark_process(
    conf: Mapping[str, str], home: Path, *, pure: bool = False
) -> Iterator[SparkProcess]:
    """What it leaves behind when it is killed lies below `home`."""
    settings = msgspec.json.encode({**conf, "spark.local.dir": str(home)}).decode()
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.spark.runs", settings],
        env={**os.environ, "TMPDIR": str(home), "COMETMQ_PURE": "1" if pure else "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield SparkProcess(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()  # Its session ends with its input.
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
