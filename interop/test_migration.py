"""From a real RocketMQ 5.5.0 to CometMQ through a slave, by the steps of docs/operations.md, under
the same Java clients all the way: nothing that was acknowledged is lost.
"""

from __future__ import annotations

import random
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.cli.program import Program

from interop import comet, rocketmq
from interop.asking import acknowledged, knows_topic, log_end, progress_of
from interop.java_client import (
    NEWEST,
    POLL_INTERVAL_S,
    Admin,
    ClientError,
    JavaClient,
    Message,
    Producer,
    PushConsumer,
    bodies,
    wait_until,
)
from interop.message_kinds import State, TransactionProducer, in_transaction
from interop.rocketmq import Broker, ConfigValue, NameServer, free_port

NAME, TOPIC, GROUP = "broker-a", "Orders", "billing"
DELAY_LEVEL = 2
FILE_BYTES = 1 << 20
SHARED: Mapping[str, ConfigValue] = {
    "brokerName": NAME,
    "mappedFileSizeCommitLog": FILE_BYTES,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
    "messageDelayLevel": "1s 15s",
}
MASTER: Mapping[str, ConfigValue] = {
    **SHARED,
    "brokerRole": "ASYNC_MASTER",
    "brokerId": 0,
    # It leaves its open transaction to who comes after it.
    "transactionCheckInterval": 600_000,
}
OURS: Mapping[str, ConfigValue] = {
    **SHARED,
    "metricsExporterType": "PROM",
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
}
ATTEMPTS_MAX = 100


@dataclass(frozen=True)
class Site:
    """NameServer and old master, the new broker in either role, and Java clients that stay."""

    namesrv: NameServer
    master: Broker
    slave: Broker
    successor: Broker
    """The slave's store and address, with the settings of a master."""
    client: JavaClient
    cometmq: Program
    metrics_port: int
    """Of the new broker."""

    def consumer(self, group: str) -> PushConsumer:
        return PushConsumer(self.client, self.namesrv.address, group, TOPIC)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """The NameServer, the master and the clients run."""
    namesrv = NameServer(tmp_path / "namesrv")
    address, port, metrics_port = namesrv.address, free_port(-2, 1), free_port()

    def ours(**role: ConfigValue) -> Broker:
        config = {**OURS, "metricsPromExporterPort": metrics_port, **role}
        home, store = tmp_path / "ours", tmp_path / "ours-store"
        return comet.Broker(home, store, address, config=config, port=port)

    master = rocketmq.Broker(tmp_path / "theirs", tmp_path / "theirs-store", address, config=MASTER)
    slave = ours(brokerRole="SLAVE", brokerId=1)
    successor = ours(brokerRole="ASYNC_MASTER", brokerId=0)
    with ExitStack() as stack:
        for server in (namesrv, master, slave, successor):
            stack.callback(server.kill)
        namesrv.start()
        master.start()
        client = stack.enter_context(JavaClient(NEWEST, tmp_path / "client"))
        cometmq = Program(tmp_path, address)
        yield Site(namesrv, master, slave, successor, client, cometmq, metrics_port)


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError:
        return False


def texts(name: str, count: int = 20) -> list[bytes]:
    return [f"{name}-{number}".encode() for number in range(count)]


def send(producer: Producer, messages: list[bytes]) -> None:
    results = producer.send(*(Message(TOPIC, text) for text in messages))
    assert {result["status"] for result in results} == {"SEND_OK"}


def is_taken(producer: Producer, text: bytes) -> bool:
    try:
        send(producer, [text])
    except ClientError:
        return False
    return True


def taken_until_refused(producer: Producer) -> list[bytes]:
    """What was acknowledged before the client saw that it may not write any more."""
    taken: list[bytes] = []
    for text in texts("just before the end", ATTEMPTS_MAX):
        if not is_taken(producer, text):
            return taken
        taken.append(text)
        time.sleep(POLL_INTERVAL_S)
    raise TimeoutError("the producer goes on as if it might")


def copy_of_the_stopped_masters_store(site: Site) -> None:
    """A slave that begins with nothing begins with the master's last file."""
    site.master.stop()
    assert len(list((site.master.store / "commitlog").iterdir())) > 1
    shutil.copytree(site.master.store, site.slave.store, ignore=lambda *_: {"lock", "abort"})
    site.master.start()


@pytest.mark.parametrize(
    "has_older_files", [False, pytest.param(True, marks=pytest.mark.full)], ids=["new", "old"]
)
def test_the_documented_steps_lose_nothing(site: Site, has_older_files: bool) -> None:
    address = site.namesrv.address
    with Admin(site.client, address) as admin:
        admin.create_topic(TOPIC, site.master.address)
    with (
        Producer(site.client, address, "tills") as producer,
        TransactionProducer(site.client, address, "bank") as bank,
        site.consumer(GROUP) as consumer,
    ):
        before = texts("before the slave")
        if has_older_files:
            before += [random.randbytes(FILE_BYTES // 8) for _ in range(20)]
        send(producer, before)
        consumer.wait_for_bodies(before)
        consumer.persist()

        # 1. and 2.: a slave that has the log and the tables.
        if has_older_files:
            copy_of_the_stopped_masters_store(site)
        site.slave.start()
        wait_until(lambda: is_ready(site.metrics_port), "the slave is ready")
        wait_until(lambda: knows_topic(site.slave, TOPIC), "the topic at the slave")
        consumed = progress_of(site.master, GROUP, TOPIC)
        wait_until(lambda: progress_of(site.slave, GROUP, TOPIC) == consumed, "the offsets, too")
        followed = texts("with a slave")
        send(producer, followed)
        producer.send(Message(TOPIC, b"later", settings={"delayTimeLevel": DELAY_LEVEL}))
        bank.send(in_transaction(TOPIC, b"undecided", State.UNKNOWN, State.COMMIT))

        # 3.: nobody writes any more.
        site.cometmq("broker", "writes", NAME, "forbid")
        followed += taken_until_refused(producer)

        # 4.: the slave has everything; the master goes, readers stay.
        wait_until(lambda: acknowledged(site.master) == [log_end(site.master)], "all is copied")
        site.master.stop()
        with site.consumer("auditors") as auditors:
            auditors.wait_for_bodies(before + followed)
            assert {m["brokerName"] for m in auditors.received()} == {NAME}

            # 5.: the slave is the master.
            site.slave.stop()
            site.successor.start()
            wait_until(lambda: is_ready(site.metrics_port), "the new master is ready")
            wait_until(lambda: is_taken(producer, b"first"), "the producer sees its new master")
            after = texts("with the new master")
            send(producer, after)
            everything = [*before, *followed, b"later", b"undecided", b"first", *after]
            heard = bodies(consumer.wait_for_bodies(everything))
            auditors.wait_for_bodies(everything)
    assert [heard.count(text) for text in before] == [1] * len(before), "its place was kept"
    assert [heard.count(text) for text in (b"later", b"undecided")] == [1, 1]
