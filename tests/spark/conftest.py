"""One Spark session and one broker for all tests here. Coroutine tests run as the transport's."""

import importlib.util
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.client.blocking import Producer
from cometmq.testing import BlockingEmbeddedBroker
from tests.transport.conftest import pytest_generate_tests, pytest_pyfunc_call

from .stalls import told_when_stalled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["pytest_generate_tests", "pytest_pyfunc_call"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed: pip install 'cometmq[spark]'")
    from cometmq.spark import session

    logging.getLogger("py4j").setLevel(logging.WARNING)
    directory = tmp_path_factory.mktemp("spark")
    running = session(
        "cometmq-tests",
        "local[2]",
        **{
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": 2,
            "spark.ui.showConsoleProgress": False,
            "spark.sql.warehouse.dir": directory / "warehouse",
            "spark.sql.streaming.pollingDelay": "50ms",
        },
    )
    running.sparkContext.setLogLevel("OFF")
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """What a command or a session sets there is not for the next test: it may silence a server that
    has to say that it is ready."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(autouse=True)
def stalls(request: pytest.FixtureRequest) -> Iterator[None]:
    if "spark" not in request.fixturenames:
        yield
        return
    gateway = request.getfixturevalue("spark").sparkContext._gateway
    with told_when_stalled(gateway.proc.pid):
        yield


@pytest.fixture(scope="session")
def owners() -> dict[str, str]:
    """Which test has taken which topic of the shared broker."""
    return {}


@pytest.fixture
def broker(
    cometmq_shared_broker: BlockingEmbeddedBroker,
    owners: dict[str, str],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> BlockingEmbeddedBroker:
    """Tests take topics of their own: with another test's, they would find its messages there."""
    create, test = cometmq_shared_broker.create_topic, request.node.nodeid

    def create_own(name: str, *args: Any, **more: Any) -> None:
        assert owners.setdefault(name, test) == test, f"topic {name} is taken by {owners[name]}"
        create(name, *args, **more)

    monkeypatch.setattr(cometmq_shared_broker, "create_topic", create_own)
    return cometmq_shared_broker


@pytest.fixture
def producer(broker: BlockingEmbeddedBroker) -> Iterator[Producer]:
    with Producer(broker.namesrv, group="spark-tests") as producer:
        yield producer


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
