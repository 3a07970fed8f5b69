"""CometMQ's servers as processes of a test, with the interface of `interop.rocketmq`'s.

Whatever runs against `rocketmq.NameServer` and `rocketmq.Broker` runs against these unchanged;
only the process behind them is another.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from interop import rocketmq
from interop.rocketmq import ConfigValue, RocketMQError, ServerProcess, conf_text

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0
POLL_INTERVAL_S = 0.01
LOG_TAIL_LINES = 40


class CometServer:
    """One `cometmq` process with its home directory: configuration and output."""

    def __init__(self, role: str, home: Path, environment: Mapping[str, str] | None = None) -> None:
        self.home = home
        self._environment = environment or {}
        self._role = role
        self._output = home / "server.out"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RocketMQError(f"cometmq {self._role} is not running")
        return self._process.pid

    def start(self, config: Mapping[str, ConfigValue], ready: Callable[[], bool]) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        conf = self.home / "server.conf"
        conf.write_text(conf_text(config))
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cometmq.cli.main", "-v", self._role, "-c", str(conf)],
                env={**os.environ, "PYTHONUNBUFFERED": "1", **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until(ready)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ask for an orderly end; anything but exit code 0 is an error."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RocketMQError(
                f"no end {STOP_TIMEOUT_S:.0f} s after SIGTERM\n{self.tail()}"
            ) from None
        self._process = None
        if status != 0:
            raise RocketMQError(f"cometmq {self._role} ended with {status}\n{self.tail()}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None

    def tail(self) -> str:
        return "\n".join(self._output.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])

    def _wait_until(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (b"\nready " in b"\n" + self._output.read_bytes() and ready()):
            if self._process is None or self._process.poll() is not None:
                raise RocketMQError(f"cometmq {self._role} ended while starting\n{self.tail()}")
            if time.monotonic() > deadline:
                raise RocketMQError(f"cometmq {self._role} is not ready\n{self.tail()}")
            time.sleep(POLL_INTERVAL_S)


class NameServer(rocketmq.NameServer):
    """`cometmq namesrv` on a loopback port."""

    def _process(self, home: Path) -> ServerProcess:
        return CometServer("namesrv", home)


class Broker(rocketmq.Broker):
    """`cometmq broker` over a store directory; ready means registered at its name servers."""

    def _process(self, home: Path) -> ServerProcess:
        return CometServer("broker", home)
