"""CometMQ's servers as processes of a test, with the interface of `interop.rocketmq`'s.

Whatever runs against `rocketmq.NameServer` and `rocketmq.Broker` runs against these unchanged:
the same constructor, the same configuration keys, `start`, `stop`, `kill`, `pid`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from interop.rocketmq import BROKER_DEFAULTS, HOST, ConfigValue, RocketMQError, conf_text, free_port

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0
POLL_INTERVAL_S = 0.01
LOG_TAIL_LINES = 40


class _Server:
    """One `cometmq` process with its home directory: configuration and output."""

    def __init__(self, role: str, home: Path) -> None:
        self.home = home
        self._role = role
        self._output = home / "server.out"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RocketMQError(f"cometmq {self._role} is not running")
        return self._process.pid

    def start(self, config: Mapping[str, ConfigValue]) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        conf = self.home / "server.conf"
        conf.write_text(conf_text(config))
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cometmq.cli.main", "-v", self._role, "-c", str(conf)],
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_ready()
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

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not any(
            line.startswith(b"ready ") for line in self._output.read_bytes().split(b"\n")
        ):
            if self._process is None or self._process.poll() is not None:
                raise RocketMQError(f"cometmq {self._role} ended while starting\n{self.tail()}")
            if time.monotonic() > deadline:
                raise RocketMQError(f"cometmq {self._role} is not ready\n{self.tail()}")
            time.sleep(POLL_INTERVAL_S)


class NameServer:
    """`cometmq namesrv` on a loopback port."""

    def __init__(self, home: Path, *, port: int | None = None) -> None:
        self.port = port or free_port()
        self.address = f"{HOST}:{self.port}"
        self._server = _Server("namesrv", home)

    @property
    def pid(self) -> int:
        return self._server.pid

    def start(self) -> None:
        self._server.start({"listenPort": self.port, "bindAddress": HOST})

    def stop(self) -> None:
        self._server.stop()

    def kill(self) -> None:
        self._server.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Broker:
    """`cometmq broker` over a store directory; ready means registered at its name servers."""

    def __init__(
        self,
        home: Path,
        store: Path,
        namesrv: str,
        *,
        config: Mapping[str, ConfigValue] | None = None,
        port: int | None = None,
    ) -> None:
        self.store = store
        self.port = port or free_port(-2, 1)
        self.address = f"{HOST}:{self.port}"
        self._server = _Server("broker", home)
        self._config: dict[str, ConfigValue] = {
            **BROKER_DEFAULTS,
            "namesrvAddr": namesrv,
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "storePathRootDir": str(store),
            **(config or {}),
        }

    @property
    def pid(self) -> int:
        return self._server.pid

    def stopped_in_order(self) -> bool:
        return not (self.store / "abort").exists()

    def start(self) -> None:
        self._server.start(self._config)

    def stop(self) -> None:
        self._server.stop()

    def kill(self) -> None:
        self._server.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()
