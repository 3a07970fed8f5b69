"""Fixtures of the interop tests: the prepared class path and running RocketMQ servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop import systems, toolchain
from interop.rocketmq import Broker, ConfigValue, NameServer
from interop.systems import Cluster, System

StartBroker = Callable[..., Broker]


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
