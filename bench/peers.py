"""The clients that are measured side by side, and how a run of each is started.

A peer is made for a running cluster; what it needs beside (class path, packages, a proxy) is
prepared then. What cannot be prepared raises, and the benchmark says so instead of its figures.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from interop import toolchain
from interop.rocketmq import HOST, JVM_SERVER, RocketMQError, free_port
from interop.systems import Cluster

from .child import Task, run_child, run_command

JAVA_VERSION = toolchain.JAVA_CLIENT_VERSIONS[-1]
JAVA_RUNS = Path(__file__).parent / "java" / "ClientRuns.java"
CPP_PACKAGE = "rocketmq==0.4.4"
CPP_APART_PACKAGE = "rocketmq-client-python==2.0.0"
GRPC_PACKAGE = "rocketmq-python-client==5.1.2"
PROXY_START_S = 60.0
PROXY_STOP_S = 10.0
POLL_INTERVAL_S = 0.1

Run = Callable[[str, Task], dict[str, float]]
"""One run of a measurement in a process of its own."""


class Place(NamedTuple):
    """Where a peer runs. What it starts there ends with `stack`."""

    cluster: Cluster
    home: Path
    stack: ExitStack


class Peer(NamedTuple):
    name: str
    cases: Mapping[str, str]
    """The benchmark's cases that it has, and what it calls them."""
    make: Callable[[Place], Run]
    share: float = 1.0
    """Of the messages: who is slow enough can be measured with less."""
    system: str = ""
    """Runs against this system only."""


def ours(name: str, task: Task) -> dict[str, float]:
    return run_child("bench.client_runs", name, task)


def _on_asyncio(_: Place) -> Run:
    return lambda name, task: ours(name, {**task, "uvloop": False})


def _java(place: Place) -> Run:
    classpath = toolchain.java_client_classpath(JAVA_VERSION)
    # The machine's own choice of collector and compilers, as a user has it.
    options = ["-Xmx512m", f"-Duser.home={place.home}", f"-Dinterop.log={os.devnull}"]
    command = [toolchain.tools().java, *options, "-cp", classpath, str(JAVA_RUNS)]

    def run(name: str, task: Task) -> dict[str, float]:
        arguments = [str(task[key]) for key in ("namesrv", "topic", "warm", "count")]
        return run_command([*command, name, *arguments], f"Java's {name}", {})

    return run


def _python(packages: Path, module: str, home: Path) -> Run:
    """With its packages in front; its logs go below `home`."""
    environment = {"PYTHONPATH": str(packages), "HOME": str(home)}

    def run(name: str, task: Task) -> dict[str, float]:
        command = [sys.executable, "-m", module, name, msgspec.json.encode(task).decode()]
        return run_command(command, f"{module}'s {name}", environment)

    return run


def _cpp(place: Place) -> Run:
    return _python(toolchain.python_packages(CPP_PACKAGE), "bench.cpp_client_runs", place.home)


def _cpp_apart(place: Place) -> Run:
    """Its C++ library is in no package index: it has to be installed by hand."""
    packages = toolchain.python_packages(CPP_APART_PACKAGE)
    found = subprocess.run(
        [sys.executable, "-c", "import rocketmq.client"],
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        raise toolchain.ToolchainError(found.stderr.splitlines()[-1])
    return _python(packages, "bench.cpp_client_runs", place.home)


def _grpc(place: Place) -> Run:
    packages = toolchain.python_packages(GRPC_PACKAGE)
    address = place.stack.enter_context(proxy(place.cluster.namesrv.address, place.home))
    run = _python(packages, "bench.grpc_client_runs", place.home)
    return lambda name, task: run(name, {**task, "namesrv": address})


@contextmanager
def proxy(namesrv: str, home: Path) -> Iterator[str]:
    """RocketMQ's gRPC proxy in front of a cluster; its address."""
    port = free_port()
    config = home / "rmq-proxy.json"
    settings = {
        "rocketMQClusterName": "interop",
        "grpcServerPort": port,
        "remotingListenPort": free_port(),
    }
    config.write_text(json.dumps(settings))
    properties = [f"-Duser.home={home}", f"-Dinterop.log={home / 'proxy.log'}"]
    jvm = [toolchain.tools().java, *JVM_SERVER, *properties, "-cp", toolchain.proxy_classpath()]
    main = ["cometmq.interop.Launch", "org.apache.rocketmq.proxy.ProxyStartup"]
    with (home / "proxy.out").open("wb") as output:
        process = subprocess.Popen(
            [*jvm, *main, "-pm", "CLUSTER", "-n", namesrv, "-pc", str(config)],
            env={**os.environ, "ROCKETMQ_HOME": str(home)},
            stdin=subprocess.PIPE,  # Launch ends the JVM when we no longer hold this pipe.
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_for(port, process)
        yield f"{HOST}:{port}"
    finally:
        process.kill()
        process.wait(PROXY_STOP_S)
        assert process.stdin is not None
        process.stdin.close()


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PROXY_START_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
            return
        time.sleep(POLL_INTERVAL_S)
    raise RocketMQError("RocketMQ's proxy did not start")


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_JAVA_CASES = _same(
    "sync", "in_flight", "auto_batch", "batch_32", "one_way", "push", "push_batch", "pull_poll",
    "latency",
)  # fmt: skip
_ALL = _same(
    "sync", "in_flight", "in_tasks", "auto_batch", "batch_32", "one_way", "push", "push_batch",
    "push_plain", "pull_poll", "pull_for", "latency",
)  # fmt: skip
COMETMQ = Peer("ours", _ALL, lambda _: ours)
PEERS = {
    "asyncio": Peer("ours on asyncio's own loop", _ALL, _on_asyncio),
    "java": Peer(f"Java client {JAVA_VERSION}", {**_JAVA_CASES, "push_plain": "push"}, _java),
    "cpp": Peer(f"{CPP_PACKAGE} (C++)", _same("sync", "in_flight", "one_way"), _cpp, 0.1),
    "cpp_apart": Peer(CPP_APART_PACKAGE, _same("sync", "one_way"), _cpp_apart, 0.1),
    "grpc": Peer(f"{GRPC_PACKAGE} (gRPC)", _same("sync", "in_flight"), _grpc, 0.05, "rocketmq"),
}
