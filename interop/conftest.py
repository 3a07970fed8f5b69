"""Fixtures of the interop tests: the prepared class path and running RocketMQ servers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop import kinds_table, mqadmin_table, systems, toolchain
from interop.go_client import GoClient
from interop.java_client import KINDS, NEWEST, JavaClient, Kind
from interop.line_client import QUEUES
from interop.node_client import NodeClient
from interop.rocketmq import Broker, ConfigValue, NameServer
from interop.systems import Cluster, System

StartBroker = Callable[..., Broker]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: not part of the short set, COMETMQ_INTEROP_SET=short")
    config.pluginmanager.register(mqadmin_table.Recorder())
    config.pluginmanager.register(kinds_table.Recorder())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if systems.IS_SHORT:
        for item in items:
            if item.get_closest_marker("full"):
                item.add_marker(pytest.mark.skip(reason="in the full set only"))


@pytest.fixture(scope="session")
def rocketmq_classpath() -> str:
    """RocketMQ's jars and the compiled peer; the first use on a machine takes a minute."""
    return toolchain.classpath()


@pytest.fixture(scope="session")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    """One real name server for the whole run."""
    with NameServer(tmp_path_factory.mktemp("namesrv")) as server:
        yield server


@pytest.fixture
def start_broker(namesrv: NameServer, tmp_path: Path) -> Iterator[StartBroker]:
    """Start brokers at the session's name server; those still running at the end are killed.

    Call it with a store directory and configuration keys, as in
    `start_broker(store, flushDiskType="SYNC_FLUSH")`.
    """
    started: list[Broker] = []

    def start(store: Path, **config: ConfigValue) -> Broker:
        home = tmp_path / f"broker-home-{len(started)}"
        broker = Broker(home, store, namesrv.address, config=config)
        broker.start()
        started.append(broker)
        return broker

    yield start
    for broker in started:
        broker.kill()


@pytest.fixture(scope="session", params=systems.chosen(), ids=lambda system: system.name)
def system(request: pytest.FixtureRequest) -> System:
    """CometMQ, then the real RocketMQ: every test that asks for it runs against both."""
    chosen: System = request.param
    return chosen


@pytest.fixture(scope="session")
def cluster(system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running cluster that tests share; they keep apart by their own topics and groups."""
    with systems.running(system, tmp_path_factory.mktemp(system.name)) as started:
        yield started


@pytest.fixture(scope="module")
def admin_cluster(system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """For tests that administrate: a module's own, since it changes what others would see."""
    home = tmp_path_factory.mktemp(f"admin-{system.name}")
    # RocketMQ deletes no topic without timers.
    with systems.running(system, home, {"timerWheelEnable": True}) as started:
        yield started


@pytest.fixture(
    scope="module",
    params=[
        NEWEST,
        *(
            pytest.param(kind, marks=pytest.mark.full)
            for kind in KINDS
            if kind.headers == NEWEST.headers and kind != NEWEST
        ),
    ],
    ids=str,
)
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaClient]:
    """The Java client with JSON headers: the newest, and in the full set the older one, too."""
    kind: Kind = request.param
    with JavaClient(kind, tmp_path_factory.mktemp(str(kind))) as running:
        yield running


@pytest.fixture
def unique_name(request: pytest.FixtureRequest) -> str:
    """A name for the topic and the group of this test alone: the test's own."""
    name: str = request.node.name
    return re.sub("[^A-Za-z0-9]+", "_", name.removeprefix("test_")).strip("_")


@pytest.fixture(scope="session")
def go(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoClient]:
    """The Go client at the shared cluster: one process for all tests."""
    with GoClient(cluster.namesrv.address, tmp_path_factory.mktemp("go")) as client:
        yield client


@pytest.fixture(scope="session")
def node(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeClient]:
    """The Node.js client at the shared cluster: one process for all tests."""
    with NodeClient(cluster.namesrv.address, tmp_path_factory.mktemp("node")) as client:
        yield client


@pytest.fixture
def topic(go: GoClient, cluster: Cluster, unique_name: str) -> str:
    """A topic of this test alone, for clients that cannot have one made by sending to it."""
    go.create_topic(unique_name, cluster.broker.address, read_queues=QUEUES, write_queues=QUEUES)
    assert len(go.write_queues(unique_name)) == QUEUES
    return unique_name
