"""Credentials go to brokers and nowhere else: not into plans, logs, progress, files or errors."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.client.blocking import Producer
from cometmq.testing import BlockingEmbeddedBroker

from .drivers import SMALL, Driver
from .sending import options, send

pytestmark = pytest.mark.timeout(600)

SECRETS = {
    "accessKey": "Hale-Bopp-key", "secretKey": "Hyakutake-secret", "securityToken": "Neowise-token",
}  # fmt: skip


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def driver(events: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    kept = {
        **SMALL, "spark.eventLog.enabled": "true", "spark.eventLog.dir": str(events),
        "spark.eventLog.compress": "false",
    }  # fmt: skip
    with Driver(tmp_path_factory.mktemp("driver") / "driver.log", "local[2]", kept) as driver:
        yield driver


def told_secrets(text: str) -> list[str]:
    return [name for name, value in SECRETS.items() if value.lower() in text.lower()]


def test_nothing_shows_them(
    driver: Driver,
    events: Path,
    broker: BlockingEmbeddedBroker,
    producer: Producer,
    tmp_path: Path,
) -> None:
    broker.create_topic("secretive", 2)
    send(producer, "secretive", 10, queues=range(2))
    own = options(broker, topic="secretive", **SECRETS)
    shown = driver.ask("exposed", checkpoint=str(tmp_path / "checkpoint"), level="DEBUG", **own)
    assert [told_secrets(text) for text in shown] == [[]] * len(shown)
    log = driver.log.read_text(errors="replace")
    assert "DEBUG" in log
    assert told_secrets(log) == []
    kept = [path for top in (tmp_path, events) for path in top.rglob("*") if path.is_file()]
    assert {path.parent.name for path in kept} >= {"offsets", "commits"}
    assert any(path.is_relative_to(events) and path.stat().st_size for path in kept)
    for path in kept:
        assert told_secrets(path.read_text(errors="replace")) == [], path


def test_errors_do_not_show_them(driver: Driver, broker: BlockingEmbeddedBroker) -> None:
    said = driver.error_of("batch", **options(broker, topic="nowhere-at-all", **SECRETS))
    assert "there is no topic nowhere-at-all" in said
    assert told_secrets(said) == []
    said = driver.error_of("batch", **options(broker, topic="t", tipoc="x", **SECRETS))
    assert "unknown option tipoc" in said
    assert told_secrets(said) == []
