"""A real Kafka, one node, and Spark's own connector to it.

Their jars are named in `java/`, fetched by Maven and kept as those of `interop` are. The server is
started as Kafka's scripts start it, on loopback, and does not outlive this process.
"""

import contextlib
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from interop import toolchain
from interop.rocketmq import HOST, free_port

POMS: Final = Path(__file__).parent / "java"
VERSION: Final = "4.1.1"
START_S: Final = 180.0
STOP_S: Final = 20.0
FORMAT_S: Final = 180.0
POLL_INTERVAL_S: Final = 0.1
# What Kafka's own scripts set, but for remote administration.
JVM: Final = (
    "-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)  # fmt: skip


class KafkaError(RuntimeError):
    """Kafka does not do what it is asked to; the message holds what it said."""


class Kafka(NamedTuple):
    address: str
    pid: int


def connector_jars() -> list[Path]:
    """Spark's Kafka source and sink, for `spark.jars`."""
    return sorted(toolchain.jars("spark-kafka", POMS / "connector-pom.xml").glob("*.jar"))


@contextmanager
def running(home: Path, *, partitions: int) -> Iterator[Kafka]:
    """A server whose topics have so many partitions and come with the first message."""
    home.mkdir()
    port = free_port()
    settings = home / "server.properties"
    settings.write_text(_settings(home, port, free_port(), partitions))
    jars = toolchain.jars("kafka", POMS / "kafka-pom.xml")
    java = [toolchain.tools().java, *JVM, "-cp", f"{toolchain.launcher()}:{jars}/*"]
    _format(java, settings)
    output = home / "server.out"
    with output.open("wb") as out:
        process = subprocess.Popen(
            [*java, "cometmq.interop.Launch", "kafka.Kafka", str(settings)],
            stdin=subprocess.PIPE,  # Launch ends the JVM when we no longer hold this pipe.
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_for(port, process, output)
        yield Kafka(f"{HOST}:{port}", process.pid)
    finally:
        process.kill()
        process.wait(STOP_S)
        assert process.stdin is not None
        process.stdin.close()


def _settings(home: Path, port: int, controller_port: int, partitions: int) -> str:
    values = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": home / "logs",
        "num.partitions": partitions,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _format(java: list[str], settings: Path) -> None:
    tool = [*java, "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(settings)]
    done = subprocess.run(tool, capture_output=True, text=True, timeout=FORMAT_S, check=False)
    if done.returncode:
        raise KafkaError(f"Kafka's storage cannot be formatted: {done.stdout}{done.stderr}")


def _cluster_id() -> str:
    # Kafka writes a UUID in 22 characters; any that does not begin with `-` will do.
    return "c" + uuid.uuid4().hex[:21]


def _wait_for(port: int, process: "subprocess.Popen[bytes]", output: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
            return
        time.sleep(POLL_INTERVAL_S)
    raise KafkaError(f"Kafka did not start: {output.read_text(errors='replace')[-2000:]}")
