"""Dashboard, alerts and documentation name figures and labels that servers really tell."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from cometmq.namesrv.config import NamesrvConfig
from cometmq.namesrv.server import NameServer
from cometmq.observed import MetricsExporter
from cometmq.web.pages import Observable, of_broker, of_name_server, pages
from tests.broker.brokers import Client
from tests.replication import pairs

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "cometmq.json").read_text())
ALERTS = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
FIGURE = re.compile(r"\b(?:rocketmq|cometmq|process)_\w+")
PROMETHEUS_LABELS = {"instance", "job", "le"}


class Told(NamedTuple):
    names: set[str]
    """As Prometheus stores them: a histogram is three."""
    families: set[str]
    labels: set[str]


async def page_of(*servers: Observable) -> str:
    return (await pages(servers)["/metrics"]()).body.decode()


async def told_pages(root: Path) -> str:
    """Of a NameServer, a master with traffic and clients, and its slave."""
    prom: dict[str, Any] = {"metricsExporterType": "PROM"}
    namesrv = NameServer(NamesrvConfig(port=0, metrics_exporter=MetricsExporter.PROM))
    await namesrv.start()
    address = str(namesrv.address)
    try:
        async with (
            pairs.master(root, namesrvAddr=address, **prom) as leader,
            pairs.slave(root, leader, namesrvAddr=address, **prom) as other,
        ):
            client = await Client.to(leader)
            await client.heartbeat("me", "billing", producers=["makers"])
            await client.send()
            await client.pull()
            await client.commit(0)
            told = await page_of(of_name_server(namesrv), of_broker(leader)) + await page_of(
                of_broker(other)
            )
            client.close()
            return told
    finally:
        await namesrv.stop()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    page = asyncio.run(told_pages(tmp_path_factory.mktemp("told")))
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    names = {
        name + suffix
        for name, kind in kinds.items()
        for suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))
    }
    labels = set(re.findall(r'[{,](\w+)="', page))
    return Told(names, set(kinds), labels | PROMETHEUS_LABELS)


def expressions() -> Iterator[tuple[str, str]]:
    """Every query there is, with where it stands."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]
    for group in ALERTS["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


QUERIES = {f"{number}-{title}": query for number, (title, query) in enumerate(expressions())}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_query_names_figures_and_labels_that_exist(query: str, told: Told) -> None:
    named = set(FIGURE.findall(query))
    assert named or query.startswith("up{")
    assert named <= told.names
    grouped = [group.split(",") for group in re.findall(r"\bby \(([^)]*)\)", query)]
    matched = re.findall(r'[{,](\w+)(?:=~|!=|=|!~)"', query)
    assert {label.strip() for group in grouped for label in group} | {*matched} <= told.labels


def test_legends_name_labels_that_exist(told: Told) -> None:
    legends = " ".join(
        target["legendFormat"]
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
    )
    assert set(re.findall(r"{{(\w+)}}", legends)) <= told.labels


def test_the_dashboard_shows_what_an_operator_needs() -> None:
    shown = " ".join(QUERIES.values())
    for figure in (
        "rocketmq_messages_in_total", "rocketmq_messages_out_total",
        "rocketmq_throughput_in_total", "rocketmq_throughput_out_total",
        "rocketmq_consumer_lag_messages", "rocketmq_consumer_lag_latency_milliseconds",
        "cometmq_long_polls_held", "rocketmq_storage_flush_behind_bytes",
        "rocketmq_storage_dispatch_behind_bytes", "cometmq_storage_disk_headroom_bytes",
        "cometmq_connections", "cometmq_replication_lag_bytes",
        "cometmq_send_latency_seconds_bucket",
    ):  # fmt: skip
        assert figure in shown


def test_panels_have_places_and_numbers_of_their_own() -> None:
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(taken)) == len(taken)


def test_the_documentation_lists_every_figure_and_no_other(told: Told) -> None:
    listed = set(re.findall(r"^\| `((?:rocketmq|cometmq|process)_\w+)`", OPERATIONS, re.MULTILINE))
    assert listed == told.families
