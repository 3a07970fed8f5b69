"""What a broker tells Prometheus is what happened to it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from cometmq.broker.broker import Broker
from cometmq.web.endpoint import Endpoint
from cometmq.web.pages import of_broker, pages
from tests.broker.brokers import (
    GROUP,
    SUBSCRIPTION,
    SUSPEND,
    TOPIC,
    Client,
    bounded,
    context_of,
    serving,
    until,
)
from tests.replication import pairs
from tests.web.scrapes import scraped

Observed = tuple[Broker, str]


@contextlib.asynccontextmanager
async def watched(broker: Broker) -> AsyncIterator[str]:
    endpoint = Endpoint(pages([of_broker(broker)]))
    address = await endpoint.listen("127.0.0.1", 0)
    try:
        yield str(address)
    finally:
        endpoint.stop()


@contextlib.asynccontextmanager
async def observed(root: Path, **settings: Any) -> AsyncIterator[Observed]:
    settings = {"metricsExporterType": "PROM", **settings}
    async with serving(root, **settings) as broker, watched(broker) as address:
        yield broker, address


@bounded
async def test_what_was_sent_and_read_is_counted(tmp_path: Path) -> None:
    async with observed(tmp_path, metricsLabel="site:berlin,rack:7") as (broker, address):
        client = await Client.to(broker)
        sizes = [10, 2000, 5000]
        for size in sizes:
            await client.send(body=b"x" * size)
        await client.send(topic="others")
        answer = await client.pull()
        found = await scraped(address)
        assert found.value("rocketmq_messages_in_total", topic=TOPIC, is_system="false") == 3
        assert found.value("rocketmq_messages_in_total", topic="others") == 1
        stored = context_of(broker).store.appended.value
        assert sum(found.values("rocketmq_throughput_in_total")) == stored
        buckets = [
            found.value("rocketmq_message_size_bucket", topic=TOPIC, le=bound)
            for bound in ("1024", "4096", "524288", "+Inf")
        ]
        assert buckets == [1, 2, 3, 3]
        read = {"topic": TOPIC, "consumer_group": GROUP, "is_retry": "false"}
        assert found.value("rocketmq_messages_out_total", **read) == 3
        assert found.value("rocketmq_throughput_out_total", **read) == len(answer.body)
        assert found.value("cometmq_pulls_total", result="found") == 1
        assert found.value("cometmq_send_latency_seconds_count") == 4
        labels = found.labels("rocketmq_broker_permission")
        assert labels == [
            {
                "site": "berlin", "rack": "7", "node_type": "broker",
                "cluster": "DefaultCluster", "node_id": "broker-a", "broker_id": "0",
            }
        ]  # fmt: skip


@bounded
async def test_refusals_are_counted(tmp_path: Path) -> None:
    async with observed(tmp_path, maxMessageSize=100) as (broker, address):
        client = await Client.to(broker)
        assert (await client.send(body=b"x" * 101)).code != 0
        found = await scraped(address)
        assert found.value("cometmq_sends_failed_total") == 1
        refused = {"request_code": "send_message_v2", "response_code": "message_illegal"}
        assert found.value("rocketmq_rpc_latency_milliseconds_count", **refused) == 1


@bounded
async def test_lag_is_told_in_messages_and_in_time(tmp_path: Path) -> None:
    async with observed(tmp_path) as (broker, address):
        client = await Client.to(broker)
        for _ in range(5):
            await client.send()
        await client.heartbeat("me", GROUP)
        await client.pull(maxMsgNums=3)
        await client.commit(1)
        found = await scraped(address)
        group = {"consumer_group": GROUP, "topic": TOPIC}
        assert found.value("rocketmq_consumer_lag_messages", **group) == 4
        assert found.value("rocketmq_consumer_inflight_messages", **group) == 2
        assert found.value("rocketmq_consumer_ready_messages", **group) == 2
        first = found.value("rocketmq_consumer_lag_latency_milliseconds", **group)
        await asyncio.sleep(0.05)  # Time is what is measured here.
        later = (await scraped(address)).value(
            "rocketmq_consumer_lag_latency_milliseconds", **group
        )
        assert later >= first + 50
        await client.commit(5)
        found = await scraped(address)
        assert found.value("rocketmq_consumer_lag_messages", **group) == 0
        assert found.value("rocketmq_consumer_lag_latency_milliseconds", **group) == 0


@bounded
async def test_a_group_that_is_offline_keeps_its_lag(tmp_path: Path) -> None:
    async with observed(tmp_path) as (broker, address):
        client = await Client.to(broker)
        await client.send()
        await client.heartbeat("me", GROUP)
        await client.commit(0)
        client.close()
        await until(lambda: context_of(broker).clients.consumer_group(GROUP) is None)
        found = await scraped(address)
        assert found.values("rocketmq_consumer_connections") == []
        assert found.value("rocketmq_consumer_lag_messages", consumer_group=GROUP) == 1


@bounded
async def test_who_is_connected_is_told_by_language_and_version(tmp_path: Path) -> None:
    async with observed(tmp_path) as (broker, address):
        client = await Client.to(broker)
        await client.heartbeat("me", GROUP, producers=["makers"])
        found = await scraped(address)
        kind = {"version": "v5_5_0", "protocol_type": "remoting"}
        assert found.value("rocketmq_producer_connections", **kind) == 1
        mode = {"consumer_group": GROUP, "consume_mode": "push", **kind}
        assert found.value("rocketmq_consumer_connections", **mode) == 1
        assert found.value("cometmq_connections") == 1


@bounded
async def test_long_polls_are_told_while_they_wait_and_afterwards(tmp_path: Path) -> None:
    async with observed(tmp_path) as (broker, address):
        client, other = await Client.to(broker), await Client.to(broker)
        await client.send()
        pull = asyncio.create_task(
            other.pull(offset=1, flag=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=20_000)
        )
        await until(lambda: len(context_of(broker).waiting_pulls))
        assert (await scraped(address)).value("cometmq_long_polls_held") == 1
        await client.send()
        await pull
        found = await scraped(address)
        assert found.value("cometmq_long_polls_held") == 0
        held = {"request_code": "pull_message", "is_long_polling": "true"}
        assert found.value("rocketmq_rpc_latency_milliseconds_count", **held) == 1


@bounded
async def test_requests_that_nobody_knows_are_counted_under_their_number(tmp_path: Path) -> None:
    async with observed(tmp_path) as (broker, address):
        client = await Client.to(broker)
        await client.ask(7777)
        unknown = {"request_code": "7777", "response_code": "request_code_not_supported"}
        found = await scraped(address)
        assert found.value("rocketmq_rpc_latency_milliseconds_count", **unknown) == 1


@bounded
async def test_a_delayed_message_is_counted_where_it_waits_and_then_in_its_topic(
    tmp_path: Path,
) -> None:
    async with observed(tmp_path, messageDelayLevel="1s") as (broker, address):
        client = await Client.to(broker)
        await client.send(properties={"DELAY": "1"})
        found = await scraped(address)
        assert found.value("rocketmq_messages_in_total", message_type="delay") == 1
        assert found.values("rocketmq_messages_in_total", topic=TOPIC) == []
        await client.arrival(TOPIC)
        found = await scraped(address)
        assert found.value("rocketmq_messages_in_total", topic=TOPIC) == 1


@bounded
async def test_dead_letters_are_counted_by_group(tmp_path: Path) -> None:
    async with observed(tmp_path) as (broker, address):
        client = await Client.to(broker)
        placed = await client.send()
        offset = int(placed.text_fields()["msgId"][-16:], 16)
        fields = {"offset": offset, "group": GROUP, "delayLevel": -1, "originMsgId": "x",
                  "originTopic": TOPIC, "unitMode": False, "maxReconsumeTimes": 16}  # fmt: skip
        assert (await client.ask(36, fields)).code == 0
        found = await scraped(address)
        assert found.value("rocketmq_send_to_dlq_messages_total", consumer_group=GROUP) == 1


@bounded
async def test_without_metrics_requests_are_not_timed(tmp_path: Path) -> None:
    async with observed(tmp_path, metricsExporterType="DISABLE") as (broker, address):
        client = await Client.to(broker)
        await client.send()
        assert broker.latencies is None
        assert (await scraped(address)).values("rocketmq_rpc_latency_milliseconds_count") == []


@bounded
async def test_replication_is_told_by_both_ends(tmp_path: Path) -> None:
    async with (
        pairs.master(tmp_path) as leader,
        pairs.slave(tmp_path, leader) as other,
        watched(leader) as leading,
        watched(other) as following,
    ):
        await pairs.send_all(leader, 20)
        await pairs.in_step(leader, other)
        link = next(iter(pairs.slaves_of(leader)))
        await until(lambda: link.acknowledged == pairs.store_of(leader).appended.value)
        await until(lambda: pairs.follower_of(other).behind == 0)
        found = await scraped(leading)
        assert found.value("cometmq_replication_lag_bytes", slave=str(link.peer)) == 0
        assert found.value("cometmq_replication_in_sync", slave=str(link.peer)) == 1
        assert found.values("cometmq_replication_following") == []
        told = await scraped(following)
        assert told.value("cometmq_replication_following", broker_id="1") == 1
        assert told.value("cometmq_replication_behind_bytes") == 0


@bounded
async def test_every_figure_says_what_it_is(tmp_path: Path) -> None:
    async with observed(tmp_path) as (_, address):
        families = (await scraped(address)).families
        assert len(families) > 40
        assert [name for name, family in families.items() if not family.documentation] == []
