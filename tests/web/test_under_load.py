"""A real server is scraped while messages go through: the figures agree with what was sent."""

import asyncio
import re
import signal
from pathlib import Path

import msgspec

from cometmq.client import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage
from tests.broker.brokers import bounded
from tests.cli.test_servers import Start, start
from tests.web.scrapes import Scrape, fetched, scraped

__all__ = ["start"]
READY = re.compile(r"ready namesrv=(\S+) brokers=(\S+) metrics=(\S+)\n")
TOPICS = ("orders", "payments")
MESSAGES = 1500
"""Of each topic."""
IN = "rocketmq_messages_in_total"


def arguments(data: Path, *more: object) -> list[object]:
    small = ("--set", "mappedFileSizeCommitLog=8388608")
    ports = ("--namesrv-port", 0, "--broker-port", 0, "--metrics-port", 0)
    return ["standalone", "--data-dir", data, *ports, *small, *more]


async def produce(namesrv: str, topic: str) -> None:
    async with Producer(namesrv, group=f"makers-{topic}") as producer:
        waiting: list[asyncio.Future[object]] = []
        for number in range(MESSAGES):
            body = b"%d" % number * (1 + number % 50)
            waiting.append(asyncio.ensure_future(producer.send(Message(topic, body))))
            if len(waiting) == 100:
                await asyncio.gather(*waiting)
                waiting.clear()
        await asyncio.gather(*waiting)


class Readers:
    def __init__(self) -> None:
        self.got = dict.fromkeys(TOPICS, 0)
        self.all = asyncio.Event()

    async def take(self, message: ReceivedMessage) -> None:
        self.got[message.topic] += 1
        if sum(self.got.values()) == MESSAGES * len(TOPICS):
            self.all.set()


async def scrape_until(address: str, done: asyncio.Task[None]) -> list[Scrape]:
    scrapes = [await scraped(address)]
    while not done.done():
        scrapes.append(await scraped(address))
        await asyncio.sleep(0.02)
    return scrapes


@bounded
async def test_the_figures_agree_with_what_was_sent_and_read(tmp_path: Path, start: Start) -> None:
    server = start(*arguments(tmp_path))
    found = READY.fullmatch(server.line())
    assert found
    namesrv, _, address = found.groups()
    readers = Readers()
    async with PushConsumer(
        namesrv, group="readers", topics=dict.fromkeys(TOPICS, "*"), handler=readers.take,
        consume_from=ConsumeFrom.FIRST,
    ):  # fmt: skip

        async def load() -> None:
            await asyncio.gather(*(produce(namesrv, topic) for topic in TOPICS))
            await readers.all.wait()

        scrapes = await scrape_until(address, asyncio.ensure_future(load()))
    assert len(scrapes) > 5, "some of them while messages went through"
    seen = [sum(scrape.values(IN, is_system="false")) for scrape in scrapes]
    assert seen == sorted(seen)
    assert any(0 < count < MESSAGES * len(TOPICS) for count in seen), "also in the middle"
    last = await scraped(address)
    for topic in TOPICS:
        assert last.value(IN, topic=topic) == MESSAGES
        assert last.value("rocketmq_message_size_count", topic=topic) == MESSAGES
        out = {"topic": topic, "consumer_group": "readers"}
        assert last.value("rocketmq_messages_out_total", **out) == MESSAGES
        size = last.value("rocketmq_throughput_in_total", topic=topic)
        assert last.value("rocketmq_throughput_out_total", **out) == size
        assert last.value("rocketmq_consumer_lag_messages", **out) == 0
    assert last.value("cometmq_send_latency_seconds_count") >= MESSAGES * len(TOPICS)
    assert last.value("cometmq_namesrv_topics") >= len(TOPICS)
    assert last.value("cometmq_namesrv_brokers", cluster="DefaultCluster") == 1
    assert (await fetched(address, "/ready")).body == b"ready\n"


@bounded
async def test_every_broker_of_a_cluster_has_its_own_endpoint(tmp_path: Path, start: Start) -> None:
    server = start(*arguments(tmp_path, "--brokers", 2))
    found = READY.fullmatch(server.line())
    assert found
    addresses = found[3].split(",")
    scrapes = [await scraped(address) for address in addresses]
    assert scrapes[0].value("cometmq_namesrv_brokers") == 2
    assert [scrape.labels("cometmq_ready") for scrape in scrapes[1:]] == [
        [
            {
                "node_type": "broker", "cluster": "DefaultCluster", "node_id": name,
                "broker_id": "0",
            }
        ]
        for name in ("broker-a", "broker-b")
    ]  # fmt: skip


@bounded
async def test_a_port_that_is_taken_is_named_and_ends_it(tmp_path: Path, start: Start) -> None:
    taken = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    server = start("namesrv", "--port", 0, "--set", "metricsExporterType=PROM",
                   "--set", f"metricsPromExporterPort={port}")  # fmt: skip
    assert await asyncio.to_thread(server.ended) == 1
    assert f"cometmq: no metrics at 127.0.0.1:{port}: " in server.errors
    taken.close()


def test_a_json_log_is_a_line_for_each_event(tmp_path: Path, start: Start) -> None:
    server = start("broker", "--port", 0, "--data-dir", tmp_path / "store", "--set",
                   "log.format=json", "--set", "log.level=INFO", "--set",
                   "mappedFileSizeCommitLog=1048576")  # fmt: skip
    assert server.line().startswith("ready broker=")
    assert server.ended(signal.SIGTERM) == 0
    said = [msgspec.json.decode(line) for line in server.errors.splitlines()]
    assert {line["node"] for line in said} == {"broker-a"}
    assert any(line["message"].startswith("broker broker-a serves at") for line in said)
