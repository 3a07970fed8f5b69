"""Spark Connect: a server, and a client that has neither Java nor a session of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .clusters import HOST, SparkProcess, connect_server
from .drivers import Driver
from .same_results import (
    COUNT,
    Orders,
    orders,
    test_a_batch,
    test_a_batch_with_a_filter_and_split_queues,
    test_a_batch_written,
    test_a_join_and_a_shuffle,
    test_a_stores_files,
    test_a_stream,
    test_a_stream_from_topic_to_topic,
    test_what_is_wrong_is_told,
)
from .streaming import until
from .test_secrets import SECRETS, told_secrets

__all__ = [
    "orders",
    "test_a_batch",
    "test_a_batch_with_a_filter_and_split_queues",
    "test_a_batch_written",
    "test_a_join_and_a_shuffle",
    "test_a_stores_files",
    "test_a_stream",
    "test_a_stream_from_topic_to_topic",
    "test_what_is_wrong_is_told",
]


pytestmark = pytest.mark.timeout(900)  # Several Java processes start on whatever machine this is.


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, events: Path) -> Iterator[SparkProcess]:
    pytest.importorskip("grpc", reason="needs grpcio: pip install 'cometmq[connect]'")
    kept = {
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": str(events),
        "spark.eventLog.compress": "false",
    }  # fmt: skip
    process = connect_server(tmp_path_factory.mktemp("connect") / "server.log", kept)
    yield process
    process.stop()


@pytest.fixture(scope="module")
def driver(server: SparkProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    log = tmp_path_factory.mktemp("client") / "client.log"
    no_java = {"JAVA_HOME": str(log.parent), "PATH": str(log.parent)}
    with Driver(log, f"sc://{HOST}:{server.told()}", {}, environment=no_java) as client:
        yield client
    assert "Warning" not in log.read_text()


def test_the_server_has_our_code(driver: Driver) -> None:
    ours, *workers = driver.ask("codec")
    assert workers == [ours]


def test_the_doctor_asks_the_server(server: SparkProcess, driver: Driver) -> None:
    what, _, advice = driver.ask("doctor", master=f"sc://{HOST}:{server.told()}")
    assert what.startswith("workers at sc://")
    assert not advice


def test_the_server_shows_no_keys(
    server: SparkProcess, driver: Driver, orders: Orders, events: Path, checkpoint: str
) -> None:
    own = {**orders.options, **SECRETS}
    name = orders.topic.replace("-", "_")
    assert len(driver.ask("batch", **own)) == COUNT
    streamed = {**own, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "80"}
    assert len(driver.ask("stream", name=name, checkpoint=checkpoint, **streamed)) == COUNT
    assert driver.ask("view", **own) == COUNT

    def kept() -> str:
        return "".join(path.read_text(errors="replace") for path in events.rglob("events_*"))

    until(lambda: "CREATE OR REPLACE TEMPORARY VIEW said" in kept())
    assert "*********(redacted)" in kept()
    assert told_secrets(kept() + server.log.read_text(errors="replace")) == []
