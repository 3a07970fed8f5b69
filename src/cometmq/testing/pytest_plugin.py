"""Fixtures with a real broker, for every pytest run in which CometMQ is installed.

    def test_an_order_arrives(cometmq_broker):
        cometmq_broker.create_topic("orders")
        ...  # clients connect to the NameServer at cometmq_broker.namesrv

The servers run in a thread of their own, so synchronous and asynchronous tests use them alike.
Nothing of CometMQ is imported before a test asks for a fixture.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .blocking import BlockingEmbeddedBroker

_INI_BOOLS = {
    "in_memory": "keep the brokers' files in memory",
    "through_proxy": "lead clients through proxies that can be made to fail",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("cometmq_brokers", "how many brokers the fixtures have", default="1")
    parser.addini("cometmq_flush", "async, or sync: acknowledged is on disk", default="async")
    parser.addini("cometmq_settings", "RocketMQ's keys: key=value, one a line", "linelist")
    for name, text in _INI_BOOLS.items():
        parser.addini(f"cometmq_{name}", text, "bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "cometmq(brokers=1, in_memory=False, flush='async', through_proxy=False, settings={...}, "
        "...): how the broker of the fixture cometmq_broker is; see EmbeddedBroker",
    )


@pytest.fixture
def cometmq_broker(request: pytest.FixtureRequest) -> "Iterator[BlockingEmbeddedBroker]":
    """A fresh broker for this test."""
    yield from _running(_marked(_from_ini(request.config), request.node.iter_markers("cometmq")))


@pytest.fixture(scope="session")
def cometmq_shared_broker(request: pytest.FixtureRequest) -> "Iterator[BlockingEmbeddedBroker]":
    """One broker for all tests that ask for it; only the ini file has a say in how it is."""
    yield from _running(_from_ini(request.config))


def _running(options: dict[str, Any]) -> "Iterator[BlockingEmbeddedBroker]":
    from .embedded import EmbeddedBroker

    with EmbeddedBroker(**options) as broker:
        yield broker


def _from_ini(config: pytest.Config) -> dict[str, Any]:
    brokers = config.getini("cometmq_brokers")
    if not brokers.isdecimal():
        raise pytest.UsageError(f"cometmq_brokers={brokers}: a number is expected")
    return {
        "brokers": int(brokers),
        "flush": config.getini("cometmq_flush"),
        "settings": dict(_setting(line) for line in config.getini("cometmq_settings")),
        **{name: config.getini(f"cometmq_{name}") for name in _INI_BOOLS},
    }


def _setting(line: str) -> tuple[str, str]:
    key, separator, value = line.partition("=")
    if not separator:
        raise pytest.UsageError(f"cometmq_settings: {line!r} is not key=value")
    return key.strip(), value.strip()


def _marked(options: dict[str, Any], markers: Iterable[pytest.Mark]) -> dict[str, Any]:
    """Options with what markers say: those nearer to the test win, settings key by key."""
    for marker in reversed(list(markers)):
        if marker.args:
            raise pytest.UsageError("@pytest.mark.cometmq takes named options only: brokers=2, …")
        settings = {**options["settings"], **marker.kwargs.get("settings", {})}
        options = {**options, **marker.kwargs, "settings": settings}
    return options
