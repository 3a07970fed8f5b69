"""Spark drivers as processes of their own, to be killed at any moment and started again."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cometmq.client.blocking import Producer
from cometmq.client.names import Message
from cometmq.protocol.message_queue import MessageQueue

from .streaming import POLL_S, WAIT_S, until

SMALL: Final = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": 2,
    "spark.ui.showConsoleProgress": False,
}
QUEUES: Final = 4
SENT_AT_ONCE: Final = 500
BODY_BYTES: Final = 128
BATCHES_S: Final = 300.0
"""For a driver to start and do its first batches, on however busy a machine."""


def say(line: str) -> None:
    print(line, flush=True)


class Driver:
    """`python -m tests.spark.MODULE ARGUMENTS`, with all that it starts."""

    def __init__(self, module: str, *arguments: object) -> None:
        command = [sys.executable, "-m", f"tests.spark.{module}", *map(str, arguments)]
        # Files, not pipes: what a driver started may hold its ends for a while when it is dead.
        self._directory = tempfile.TemporaryDirectory()
        self._out, self._err = (Path(self._directory.name, name) for name in ("out", "err"))
        self._is_killed = False
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                command, stdout=out, stderr=err, start_new_session=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._is_killed:
            self.kill()
        self._directory.cleanup()

    def kill(self, *, alone: bool = False) -> None:
        """`alone`: its Java lives on for the moment that it takes to notice."""
        with contextlib.suppress(ProcessLookupError):
            if alone:
                self._process.kill()
            else:
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._is_killed = True

    @property
    def is_gone(self) -> bool:
        """With all that it started."""
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    @property
    def said(self) -> list[str]:
        return self._out.read_text().splitlines()

    @property
    def errors(self) -> str:
        return self._err.read_text()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def batches(self) -> int:
        return sum(line.startswith("batch") for line in self.said)

    def wait_for(self, batches: int) -> None:
        """Until so many batches are done, or it has ended."""
        deadline = time.monotonic() + BATCHES_S
        while not (self.has_ended or ("begun" in self.said and self.batches >= batches)):
            told = f"said: {self.said}, errors: {self.errors}"
            assert time.monotonic() < deadline, f"no {batches} batches in {BATCHES_S} s; {told}"
            time.sleep(POLL_S)

    def finish(self, timeout_s: float = WAIT_S) -> None:
        self._process.wait(timeout_s)
        assert self._process.returncode == 0, self.errors
        assert self.said[-1:] == ["done"]

    def workers(self) -> list[int]:
        """Processes in which tasks run: those that Spark's daemon has made."""
        parents = _parents()
        daemons = {pid for pid in parents if _is_daemon(pid) and self._owns(pid, parents)}
        return sorted(pid for pid in daemons if parents.get(pid) in daemons)

    def _owns(self, pid: int, parents: dict[int, int]) -> bool:
        while pid in parents and pid != self._process.pid:
            pid = parents[pid]
        return pid == self._process.pid


class Killer:
    """Kills drivers at moments that its seed decides: behind some batches, and a moment later."""

    def __init__(self, seed: int, moment_s: float) -> None:
        self._chance = random.Random(seed)
        self._moment_s = moment_s
        self._struck: list[Driver] = []
        self.kills = 0

    def strike(self, driver: Driver, batches_max: int = 2) -> None:
        driver.wait_for(self._chance.randint(0, batches_max))
        time.sleep(self._chance.uniform(0, self._moment_s))
        self.kills += not driver.has_ended
        driver.kill(alone=self._chance.random() < 0.3)
        self._struck.append(driver)

    def bury(self) -> None:
        """Wait until nothing is left of whom it struck."""
        until(lambda: all(driver.is_gone for driver in self._struck))

    def strike_a_worker(self, driver: Driver) -> None:
        """In the middle of a task, if chance wants it."""
        driver.wait_for(1)
        until(lambda: driver.workers() or driver.has_ended)
        time.sleep(self._chance.uniform(0, self._moment_s))
        for pid in driver.workers()[:1]:
            os.kill(pid, signal.SIGKILL)
            self.kills += 1


def send_many(producer: Producer, topic: str, first: int, last: int) -> None:
    """Numbers from `first` up to `last`, spread over the queues."""
    for begin in range(first, last, SENT_AT_ONCE):
        numbers = range(begin, min(begin + SENT_AT_ONCE, last))
        queue = MessageQueue(topic, "broker-a", begin // SENT_AT_ONCE % QUEUES)
        messages = [Message(topic, b"%010d" % number + _PADDING) for number in numbers]
        producer.send_batch(messages, queue=queue)


_PADDING: Final = b"." * (BODY_BYTES - 10)


def check_exact(rows: pa.Table, ends: dict[int, int], count: int) -> None:
    """Every queue's messages once and no others; and every number that was sent."""
    assert sum(ends.values()) == count
    queues, offsets = (rows.column(name).to_numpy() for name in ("queueId", "queueOffset"))
    found = np.sort(queues.astype(np.int64) << 40 | offsets)
    wanted = np.concatenate([(q << 40) + np.arange(ends[q]) for q in sorted(ends)])
    assert len(found) == len(wanted), f"{len(found)} rows for {len(wanted)} messages"
    assert np.array_equal(found, wanted)
    if "body" in rows.column_names:
        texts = pc.binary_slice(rows.column("body"), 0, 10).cast(pa.string())
        assert np.array_equal(np.sort(texts.cast(pa.int64()).to_numpy()), np.arange(count))


def _parents() -> dict[int, int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(_stat(entry)[1])
            except (OSError, IndexError):
                continue
    return parents


def _stat(entry: Path) -> list[str]:
    """Fields of a process behind its name, which may have anything in it."""
    return (entry / "stat").read_text().rpartition(")")[2].split()


def _is_daemon(pid: int) -> bool:
    try:
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
