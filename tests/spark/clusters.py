"""Spark's own servers as processes: a standalone master with workers, and a Spark Connect server.

All from the installed pyspark, on loopback and free ports. Leaving them ends every process.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import pyspark

from cometmq.spark.java import find_java

from .drivers import SMALL, tail

HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 240.0
END_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.05
SPARK_HOME: Final = Path(pyspark.__file__).parent


class SparkProcess:
    """One Java process of Spark, which says by a line of its output that it is ready."""

    def __init__(
        self, log: Path, command: Sequence[str], ready: str, more: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        self._ready = ready
        environment = {
            **os.environ, "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m", "PYSPARK_PYTHON": sys.executable, **(more or {}),
        }  # fmt: skip
        # These scripts become the Java that they start, so the process is the server itself.
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [SPARK_HOME / "bin" / command[0], *command[1:]],
                env=environment, cwd=log.parent, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT,
            )  # fmt: skip

    def told(self) -> str:
        """Waits until it is ready; what the pattern's group is."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while (found := re.search(self._ready, self.log.read_text(errors="replace"))) is None:
            assert self._process.poll() is None, f"it ended\n{tail(self.log)}"
            assert time.monotonic() < deadline, f"it is not ready\n{tail(self.log)}"
            time.sleep(POLL_S)
        return found[1]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(END_TIMEOUT_S)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()


class StandaloneCluster:
    """A master and two workers, with room for an application with two cores beside a small one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()
        self.workers: list[SparkProcess] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.master = self._start_master(stack)
            self.workers = [self._start_worker(stack, number) for number in range(2)]
            for worker in self.workers:
                worker.told()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_master(self, stack: ExitStack) -> str:
        process = SparkProcess(
            self._directory / "master.log",
            ["spark-class", "org.apache.spark.deploy.master.Master", "--host", HOST, "--port", "0",
             "--webui-port", "0"],
            r"Starting Spark master at (spark://\S+)[^$]*New state: ALIVE",
            {"SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"},
        )  # fmt: skip
        stack.callback(process.stop)
        return process.told()

    def _start_worker(self, stack: ExitStack, number: int) -> SparkProcess:
        work = self._directory / f"worker-{number}"
        process = SparkProcess(
            self._directory / f"worker-{number}.log",
            ["spark-class", "org.apache.spark.deploy.worker.Worker", "--host", HOST, "--port", "0",
             "--webui-port", "0", "--cores", "3", "--memory", "2g", "--work-dir", str(work),
             self.master],
            r"Successfully registered with master (\S+)",
        )  # fmt: skip
        stack.callback(process.stop)
        return process


def connect_server(log: Path, settings: Mapping[str, str]) -> SparkProcess:
    """What it tells is its port."""
    own = {
        **SMALL, "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": HOST, "spark.connect.grpc.binding.port": "0",
        **settings,
    }  # fmt: skip
    conf = [text for item in own.items() for text in ("--conf", "=".join(item))]
    return SparkProcess(
        log,
        ["spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
         "--master", "local[2]", *conf, "spark-internal"],
        rf"Spark Connect server started at: {HOST}:(\d+)",
        # Its memory is a daemon's, whatever is set for drivers.
        {"SPARK_DAEMON_MEMORY": "1g"},
    )  # fmt: skip
