"""One broker for all tests of commands; they keep apart by their own topics and groups."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.client import blocking
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .program import Program

NAME = "broker-a"


@pytest.fixture(scope="session")
def cluster() -> Iterator[BlockingEmbeddedBroker]:
    with EmbeddedBroker(settings={"enablePropertyFilter": True}) as broker:
        yield broker


@pytest.fixture
def cometmq(cluster: BlockingEmbeddedBroker, tmp_path: Path) -> Program:
    return Program(tmp_path, cluster.namesrv)


@pytest.fixture
def lonely(tmp_path: Path) -> Program:
    """With no cluster in its environment."""
    return Program(tmp_path)


@pytest.fixture(scope="session")
def admin(cluster: BlockingEmbeddedBroker) -> Iterator[blocking.Admin]:
    with blocking.Admin(cluster.namesrv) as admin:
        yield admin


@pytest.fixture(scope="session")
def producer(cluster: BlockingEmbeddedBroker) -> Iterator[blocking.Producer]:
    with blocking.Producer(cluster.namesrv, group="tests") as producer:
        yield producer
