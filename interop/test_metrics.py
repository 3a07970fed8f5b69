"""Metrics under RocketMQ's names: the real 5.5.0 and ours tell the same of the same messages."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.broker.brokers import Client

from interop import comet, rocketmq
from interop.rocketmq import Broker

MESSAGES = 10
TOPIC, GROUP = "orders", "readers"
OF_THE_NODE = {"cluster", "node_id", "node_type", "otel_scope_name", "broker_id"}
BOTH = """
rocketmq_broker_permission rocketmq_consumer_connections rocketmq_consumer_group_number
rocketmq_consumer_inflight_messages rocketmq_consumer_lag_latency_milliseconds
rocketmq_consumer_lag_messages rocketmq_consumer_queueing_latency_milliseconds
rocketmq_consumer_ready_messages rocketmq_message_size rocketmq_messages_in_total
rocketmq_messages_out_total rocketmq_processor_watermark rocketmq_producer_connections
rocketmq_rpc_latency_milliseconds rocketmq_storage_dispatch_behind_bytes
rocketmq_storage_flush_behind_bytes rocketmq_storage_message_reserve_time_milliseconds
rocketmq_storage_size_bytes rocketmq_throughput_in_total rocketmq_throughput_out_total
rocketmq_topic_number
"""
MAKES = {
    "rocketmq": (rocketmq.NameServer, rocketmq.Broker),
    "cometmq": (comet.NameServer, comet.Broker),
}


async def work(client: Client) -> None:
    """What both are asked to do: take messages, hand them out, keep a group's place."""
    for _ in range(MESSAGES):
        assert (await client.send(TOPIC, b"x" * 100)).code == 0
    await client.heartbeat("me", GROUP, topics={TOPIC: "*"}, producers=["makers"])
    while (await client.pull(TOPIC, group=GROUP)).code != 0:
        await asyncio.sleep(0.1)
    await client.commit(4, TOPIC, group=GROUP)


def page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return str(answer.read().decode())


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for name, labels, value in re.findall(r"^(\w+)\{(.*)\} (\S+)$", text, re.MULTILINE):
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        found.setdefault(name, []).append((pairs, float(value)))
    return found


def told_by(make: str, home: Path) -> str:
    names, brokers = MAKES[make]
    port = rocketmq.free_port()
    with ExitStack() as stack:
        name_server = names(home / "namesrv")
        stack.callback(name_server.kill)
        name_server.start()
        broker: Broker = brokers(
            home / "broker", home / "store", name_server.address,
            config={
                "metricsExporterType": "PROM", "metricsPromExporterPort": port,
                "metricsPromExporterHost": "127.0.0.1", "mappedFileSizeCommitLog": 1 << 20,
            },
        )  # fmt: skip
        stack.callback(broker.kill)
        broker.start()

        async def worked() -> str:
            client = await Client.to(broker.address)
            try:
                await work(client)
                return await asyncio.to_thread(page, port)
            finally:
                client.close()
                await asyncio.sleep(0)  # The loop lets go of its socket.

        return asyncio.run(worked())


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {make: told_by(make, tmp_path_factory.mktemp(make)) for make in MAKES}


def test_both_have_the_same_names_of_the_same_kinds(told: dict[str, str]) -> None:
    kinds = {
        make: dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
        for make, text in told.items()
    }
    for name in BOTH.split():
        assert kinds["cometmq"][name] == kinds["rocketmq"][name], name


def test_ours_has_every_label_of_theirs(told: dict[str, str]) -> None:
    ours, theirs = samples(told["cometmq"]), samples(told["rocketmq"])
    for family in BOTH.split():
        name = family if family in theirs else f"{family}_count"
        wanted = {label for labels, _ in theirs[name] for label in labels} - OF_THE_NODE
        assert wanted <= {label for labels, _ in ours[name] for label in labels}, name


def test_both_count_the_same(told: dict[str, str]) -> None:
    for text in told.values():
        found = samples(text)

        def value(name: str, found: dict[str, list[tuple[dict[str, str], float]]] = found) -> float:
            (one,) = [v for labels, v in found[name] if labels.get("topic") == TOPIC]
            return one

        assert value("rocketmq_messages_in_total") == MESSAGES
        assert value("rocketmq_messages_out_total") == MESSAGES
        assert value("rocketmq_message_size_count") == MESSAGES
        assert value("rocketmq_consumer_lag_messages") == MESSAGES - 4
        assert value("rocketmq_consumer_inflight_messages") == MESSAGES - 4
