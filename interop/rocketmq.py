"""Real RocketMQ servers and the Java peer as processes of a test.

`NameServer` and `Broker` are context managers that return when the server is ready and never leave
a process behind; the ports stay the same over restarts of one object, since RocketMQ writes
the broker's address into every record. `peer` runs one command of the Java client.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from interop import toolchain

JsonObject = dict[str, Any]
ConfigValue = str | int | bool
FlagValue = str | int | Sequence[str]

HOST = "127.0.0.1"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
PEER_TIMEOUT_S = 120.0
POLL_INTERVAL_S = 0.05
ANSWER_TIMEOUT_S = 2.0
LOG_TAIL_LINES = 30
PORT_ATTEMPTS_MAX = 200
# Below the range from which the kernel takes ports for outgoing connections.
PORT_RANGE = (12000, 32000)
GET_BROKER_CLUSTER_INFO = 106

JVM_COMMON = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8")
JVM_SERVER = (
    "-Xms256m",
    "-Xmx512m",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    # Otherwise every start makes two RSA keys for test certificates: three seconds.
    "-Dtls.server.mode=disabled",
)

# Keys that decide sizes or content of store files are left as RocketMQ ships them.
BROKER_DEFAULTS: Mapping[str, ConfigValue] = {
    "brokerClusterName": "interop",
    "brokerName": "broker-a",
    "brokerIP1": HOST,
    "brokerIP2": HOST,
    "bindAddress": HOST,
    # Timer files are not needed and their threads slow the shutdown; pop consumption needs them.
    "timerWheelEnable": False,
    # A slow test machine must not look like a busy broker (the default is 200 ms).
    "waitTimeMillsInSendQueue": 10_000,
    "osPageCacheBusyTimeOutMills": 10_000,
    # Larger pulls, so that a dump of a big topic takes fewer round trips.
    "maxTransferCountOnMessageInMemory": 1024,
    "maxTransferCountOnMessageInDisk": 1024,
    "maxTransferBytesOnMessageInMemory": 4 << 20,
    "maxTransferBytesOnMessageInDisk": 4 << 20,
    # A nearly full disk must not delete the files under test.
    "cleanFileForciblyEnable": False,
    "diskMaxUsedSpaceRatio": 95,
}


class RocketMQError(RuntimeError):
    """A server or the peer did not do what was asked; the message holds the end of its log."""


class ServerProcess(Protocol):
    """A server as the tests handle it, in whatever it is written."""

    @property
    def pid(self) -> int: ...
    def start(self, config: Mapping[str, ConfigValue], ready: Callable[[], bool]) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


class JvmServer:
    """One JVM with its home directory: configuration, logs and output of a server."""

    def __init__(
        self, main_class: str, home: Path, jvm: Sequence[str] = (*JVM_COMMON, *JVM_SERVER)
    ) -> None:
        self.home = home
        self._jvm = jvm
        self._main_class = main_class
        self._output = home / "server.out"
        self._log = home / "rocketmq.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RocketMQError(f"{self._main_class} is not running")
        return self._process.pid

    def start(self, config: Mapping[str, ConfigValue], ready: Callable[[], bool]) -> None:
        """Start the JVM and return when `ready` says so; on any failure end it and raise."""
        if self._process is not None:
            raise RocketMQError(f"{self._main_class} is already running as {self.pid}")
        self.home.mkdir(parents=True, exist_ok=True)
        conf = self.home / "server.conf"
        conf.write_text(conf_text(config))
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                self._command(conf),
                env={**os.environ, "ROCKETMQ_HOME": str(self.home)},
                stdin=subprocess.PIPE,  # Launch ends the JVM when we no longer hold this pipe.
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for pytest, which then stops us in order.
            )
        try:
            self._wait_until(ready)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ask for an orderly shutdown and wait; a JVM that does not end is killed and reported."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            tail = self._tail()
            self.kill()
            raise RocketMQError(f"no end {STOP_TIMEOUT_S:.0f} s after SIGTERM\n{tail}") from None
        self._forget()

    def kill(self) -> None:
        """End the JVM at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
            self._forget()

    def _forget(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    def _command(self, conf: Path) -> list[str]:
        java = toolchain.tools().java
        # RocksDB and some loggers write below user.home whatever else is configured.
        properties = [f"-Duser.home={self.home}", f"-Dinterop.log={self._log}"]
        jvm = [java, *self._jvm, *properties, "-cp", toolchain.classpath()]
        return [*jvm, "cometmq.interop.Launch", self._main_class, "-c", str(conf)]

    def _wait_until(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (b"boot success" in self._output.read_bytes() and ready()):
            if self._process is None or self._process.poll() is not None:
                raise RocketMQError(f"{self._main_class} ended while starting\n{self._tail()}")
            if time.monotonic() > deadline:
                raise RocketMQError(f"{self._main_class} is not ready\n{self._tail()}")
            time.sleep(POLL_INTERVAL_S)

    def _tail(self) -> str:
        output, log = _lines(self._output), _lines(self._log)
        # RocketMQ goes on talking after it said what is wrong, so its warnings come separately.
        warnings = [line for line in log if " WARN " in line or " ERROR " in line]
        parts = {self._output: output, "warnings": warnings, self._log: log}
        return "\n".join(
            f"--- {name}\n" + "\n".join(lines[-LOG_TAIL_LINES:]) for name, lines in parts.items()
        )


class NameServer:
    """`NamesrvStartup` on a loopback port. It keeps nothing on disk, so leaving it kills it."""

    def __init__(self, home: Path, *, port: int | None = None) -> None:
        self.port = port or free_port()
        self.address = f"{HOST}:{self.port}"
        self._server = self._process(home)

    def _process(self, home: Path) -> ServerProcess:
        return JvmServer("org.apache.rocketmq.namesrv.NamesrvStartup", home)

    @property
    def pid(self) -> int:
        return self._server.pid

    def start(self) -> None:
        config: dict[str, ConfigValue] = {"listenPort": self.port, "bindAddress": HOST}
        self._server.start(config, lambda: cluster_info(self.address) is not None)

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
    """`BrokerStartup` over a store directory, registered at a name server.

    Leaving it stops it in order (some eight seconds, so that `abort` goes and files are flushed),
    or kills it when the test failed. A test that needs no clean store saves time with `kill()`.
    """

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
        self._namesrv = namesrv
        self._server = self._process(home)
        self._config: dict[str, ConfigValue] = {
            **BROKER_DEFAULTS,
            "namesrvAddr": namesrv,
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "storePathRootDir": str(store),
            **(config or {}),
        }

    def _process(self, home: Path) -> ServerProcess:
        return JvmServer("cometmq.interop.BrokerMain", home)

    @property
    def pid(self) -> int:
        return self._server.pid

    def stopped_in_order(self) -> bool:
        """RocketMQ's own mark: `abort` exists while a broker runs and after it crashed."""
        return not (self.store / "abort").exists()

    def start(self) -> None:
        self._server.start(self._config, self._is_registered)

    def stop(self) -> None:
        self._server.stop()

    def kill(self) -> None:
        self._server.kill()

    def _is_registered(self) -> bool:
        # At every name server that is there; a test may have killed one of several.
        answers = [cluster_info(address) for address in self._namesrv.split(";")]
        running = [answer for answer in answers if answer is not None]
        return bool(running) and all(f'"{self.address}"'.encode() in info for info in running)

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


class Peer:
    """A running command of the Java peer; iterating gives its JSON lines as they come.

    It is killed after `timeout_s`, and on leaving the `with` block if it still runs.
    """

    def __init__(
        self,
        subcommand: str,
        *,
        lines: Iterable[str] = (),
        timeout_s: float = PEER_TIMEOUT_S,
        log: Path | None = None,
        **flags: FlagValue,
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        # A file and not a pipe: the peer may answer before it has read everything.
        with tempfile.TemporaryFile() as stdin:
            stdin.write("".join(f"{line}\n" for line in lines).encode())
            stdin.seek(0)
            self._process = subprocess.Popen(
                _peer_command(subcommand, flags, log),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=self._errors,
            )
        self._timer = threading.Timer(timeout_s, self._process.kill)
        self._timer.daemon = True
        self._timer.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def __iter__(self) -> Iterator[JsonObject]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield json.loads(line)

    def finish(self) -> None:
        """Wait for the end and raise if the command failed or had to be killed."""
        status = self._process.wait()
        if status != 0:
            self._errors.seek(0)
            errors = self._errors.read().decode(errors="replace").strip()
            raise RocketMQError(f"peer exited with {status}: {errors or 'killed or timed out'}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


def peer(
    subcommand: str,
    *,
    lines: Iterable[str] = (),
    timeout_s: float = PEER_TIMEOUT_S,
    log: Path | None = None,
    **flags: FlagValue,
) -> list[JsonObject]:
    """Run a command of the Java peer to its end: `peer("dump", namesrv=..., topic=["a", "b"])`."""
    with Peer(subcommand, lines=lines, timeout_s=timeout_s, log=log, **flags) as running:
        answers = list(running)
        running.finish()
    return answers


def cluster_info(namesrv: str) -> bytes | None:
    """Ask a name server for its brokers; None when it does not answer.

    The body is left as bytes: RocketMQ writes maps with bare numbers as keys, which is not JSON.
    """
    host, port = namesrv.rsplit(":", 1)
    header = json.dumps({"code": GET_BROKER_CLUSTER_INFO, "language": "PYTHON", "flag": 0}).encode()
    try:
        with socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT_S) as connection:
            connection.sendall(struct.pack(">II", 4 + len(header), len(header)) + header)
            with connection.makefile("rb") as answer:
                frame_bytes, header_bytes = struct.unpack(">II", answer.read(8))
                return answer.read(frame_bytes - 4)[header_bytes & 0xFFFFFF :]
    except (OSError, struct.error):
        return None


def free_port(*neighbours: int) -> int:
    """Find a port that is free together with the ports at these distances from it."""
    for _ in range(PORT_ATTEMPTS_MAX):
        port = random.randint(*PORT_RANGE)
        if all(_is_free(port + distance) for distance in (0, *neighbours)):
            return port
    raise RocketMQError(f"no free ports in {PORT_RANGE}")


def _is_free(port: int) -> bool:
    # On all addresses, since the replication port cannot be bound to loopback alone.
    with contextlib.closing(socket.socket()) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").split("\n") if path.exists() else []


def conf_text(config: Mapping[str, ConfigValue]) -> str:
    """Settings as a RocketMQ properties file."""
    return "".join(f"{key}={_conf(value)}\n" for key, value in config.items())


def _conf(value: ConfigValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _peer_command(subcommand: str, flags: Mapping[str, FlagValue], log: Path | None) -> list[str]:
    java = toolchain.tools().java
    properties = [f"-Dinterop.log={log or os.devnull}", "-Xmx512m"]
    command = [java, *JVM_COMMON, *properties, "-cp", toolchain.classpath()]
    command += ["cometmq.interop.Peer", subcommand]
    for name, value in flags.items():
        values = [str(value)] if isinstance(value, str | int) else value
        for each in values:
            command += [f"--{name}", each]
    return command
