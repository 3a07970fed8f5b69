"""Master and slave of two makes: a real RocketMQ 5.5.0 follows our master, and ours follows a real
one. The logs are the same to the last byte, what was acknowledged is at the slave, and each slave
serves reads, also when its master is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.broker.brokers import Client, bodies_in

from cometmq.transport.loop import run
from interop import comet, rocketmq
from interop.asking import (
    GET_ALL_DELAY_OFFSET,
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    HA_STATUS,
    acknowledged,
    ask,
    knows_topic,
    log_end,
    progress_of,
    table_of,
)
from interop.java_client import wait_until
from interop.rocketmq import Broker, ConfigValue, NameServer

FILE_BYTES = 1 << 20
CONFIG: Mapping[str, ConfigValue] = {
    "mappedFileSizeCommitLog": FILE_BYTES,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
    "slaveReadEnable": True,
    "timerWheelEnable": True,
    "haSendHeartbeatInterval": 1000,
    "registerNameServerPeriod": 10_000,
    # One acknowledgement is enough to need the slave.
    "inSyncReplicas": 2,
    "slaveTimeout": 20_000,
}
TOPIC, GROUP = "orders", "billing"
QUEUES = 4
MESSAGES = 3000
# RocketMQ 5 copies tables a minute after its start, and then every minute.
TABLES_WAIT_S = 100.0


@dataclass(frozen=True)
class Pair:
    master: Broker
    slave: Broker
    slave_is_ours: bool


MAKES = {
    "rocketmq follows cometmq": (comet.NameServer, comet.Broker, rocketmq.Broker),
    "cometmq follows rocketmq": (rocketmq.NameServer, rocketmq.Broker, comet.Broker),
}


@pytest.fixture(params=MAKES, ids=lambda name: name.replace(" ", "-"))
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """A NameServer, a master that waits for its slave, and the slave."""
    names, leader, follower = MAKES[request.param]
    with ExitStack() as stack:
        name_server: NameServer = names(tmp_path / "namesrv")
        stack.callback(name_server.kill)
        name_server.start()

        def start(make: type[Broker], place: str, **role: ConfigValue) -> Broker:
            broker = make(
                tmp_path / place,
                tmp_path / f"{place}-store",
                name_server.address,
                config={**CONFIG, **role},
            )
            stack.callback(broker.kill)
            broker.start()
            return broker

        master = start(leader, "master", brokerRole="SYNC_MASTER", brokerId=0)
        slave = start(follower, "slave", brokerRole="SLAVE", brokerId=1)
        yield Pair(master, slave, follower is comet.Broker)


# -- what brokers say ------------------------------------------------------------------------------


def send(broker: Broker, start: int, count: int) -> list[int]:
    """Messages of all sizes, one behind the other in each queue; the answers' codes."""

    async def sent() -> list[int]:
        client = await Client.to(broker.address)
        try:
            sends = (
                client.send(
                    TOPIC, body_of(number), queue_id=number % QUEUES,
                    properties={"KEYS": f"key-{number}", "TAGS": "a" if number % 2 else "b"},
                )
                for number in range(start, start + count)
            )  # fmt: skip
            return [answer.code for answer in await asyncio.gather(*sends)]
        finally:
            client.close()

    return run(sent())


def body_of(number: int) -> bytes:
    return b"%06d" % number + b"." * (number * 37 % 1500)


def read(broker: Broker) -> list[bytes]:
    """All messages of the topic, as this broker gives them out."""

    async def pulled() -> list[bytes]:
        client = await Client.to(broker.address)
        found: list[bytes] = []
        try:
            for queue_id in range(QUEUES):
                offset = 0
                while True:
                    answer = await client.pull(TOPIC, queue_id, offset)
                    if answer.code != 0:
                        break
                    got = bodies_in(answer)
                    found += got
                    offset += len(got)
        finally:
            client.close()
        return sorted(found)

    return run(pulled())


def log_bytes(broker: Broker, end: int) -> dict[str, bytes]:
    files = {}
    for path in sorted((broker.store / "commitlog").iterdir()):
        if path.name.isdigit() and int(path.name) < end:
            files[path.name] = path.read_bytes()[: end - int(path.name)]
    return files


def in_step(pair: Pair) -> int:
    end = log_end(pair.master)
    wait_until(lambda: log_end(pair.slave) >= end, f"the slave's log at {end}")
    return end


def following(pair: Pair) -> None:
    """The first message that the slave acknowledges."""
    wait_until(lambda: send(pair.master, 0, 1) == [0], "a message that is at the slave")


# -- tests -----------------------------------------------------------------------------------------


def test_the_slaves_log_is_the_masters_and_it_serves_reads(pair: Pair) -> None:
    following(pair)
    assert set(send(pair.master, 1, MESSAGES)) == {0}
    end = in_step(pair)
    assert end > 2 * FILE_BYTES
    assert log_bytes(pair.master, end) == log_bytes(pair.slave, end)
    everything = read(pair.master)
    assert len(everything) >= MESSAGES + 1
    wait_until(lambda: knows_topic(pair.slave, TOPIC), "the topic at the slave", TABLES_WAIT_S)
    wait_until(lambda: read(pair.slave) == everything, "all messages at the slave")
    pair.master.kill()
    assert read(pair.slave) == everything


def test_what_was_acknowledged_is_at_a_slave_that_was_killed_in_between(pair: Pair) -> None:
    following(pair)
    send(pair.master, 1, 500)
    pair.slave.kill()
    send_without_slave(pair.master, 200)
    pair.slave.start()
    following(pair)
    assert set(send(pair.master, 1000, 500)) == {0}
    end = in_step(pair)
    assert log_bytes(pair.master, end) == log_bytes(pair.slave, end)


def send_without_slave(broker: Broker, count: int) -> None:
    """These are at the master alone, and their senders do not wait for more."""

    async def sent() -> None:
        client = await Client.to(broker.address)
        try:
            for number in range(count):
                await client.send(TOPIC, body_of(number), properties={"WAIT": "false"})
        finally:
            client.close()

    run(sent())


def test_a_slave_follows_a_master_that_was_killed(pair: Pair) -> None:
    following(pair)
    assert set(send(pair.master, 1, 500)) == {0}
    pair.master.kill()
    pair.master.start()
    following(pair)
    assert set(send(pair.master, 1000, 500)) == {0}
    end = in_step(pair)
    assert log_bytes(pair.master, end) == log_bytes(pair.slave, end)


def test_tables_and_progress_are_copied(pair: Pair) -> None:
    following(pair)
    create_group(pair.master)
    commit(pair.master, 0, 1)
    delay_one(pair.master)
    wait_until(
        lambda: progress_of(pair.slave, GROUP, TOPIC) == {"0": 1},
        "the group's offset",
        TABLES_WAIT_S,
    )
    wait_until(lambda: knows_topic(pair.slave, TOPIC), "the topic", TABLES_WAIT_S)
    # A slave asks for one table after the other: that one is there says nothing of the next.
    wait_until(lambda: GROUP in groups_of(pair.slave), "the group", TABLES_WAIT_S)
    assert groups_of(pair.slave)[GROUP]["retryMaxTimes"] == 3
    delivered = delays_of(pair.master)
    assert delivered.get("1") == 1
    wait_until(lambda: delays_of(pair.slave) == delivered, "the delays' progress", TABLES_WAIT_S)


def groups_of(broker: Broker) -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = table_of(broker, GET_ALL_SUBSCRIPTIONGROUP_CONFIG)[
        "subscriptionGroupTable"
    ]
    return groups


def delays_of(broker: Broker) -> dict[str, int]:
    """How far each delay level is; those at which nothing ever waited are left out."""
    table = table_of(broker, GET_ALL_DELAY_OFFSET)["offsetTable"]
    return {level: int(offset) for level, offset in table.items() if int(offset)}


def create_group(broker: Broker) -> None:
    async def created() -> None:
        client = await Client.to(broker.address)
        try:
            answer = await client.ask(200, {}, {"groupName": GROUP, "retryMaxTimes": 3})
            assert answer.code == 0, answer.remark
        finally:
            client.close()

    run(created())


def commit(broker: Broker, queue_id: int, offset: int) -> None:
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue_id, "commitOffset": offset}
    assert ask(broker, 15, fields).code == 0


def delay_one(broker: Broker) -> None:
    """A message that waits for a second, and is delivered by the master."""

    async def sent() -> None:
        client = await Client.to(broker.address)
        try:
            answer = await client.send(TOPIC, b"late", properties={"DELAY": "1"})
            assert answer.code == 0, answer.remark
        finally:
            client.close()

    before = log_end(broker)
    run(sent())
    wait_until(lambda: log_end(broker) > before + 300, "the delayed message's delivery")


def test_the_master_says_how_its_slave_does(pair: Pair) -> None:
    following(pair)
    end = in_step(pair)
    wait_until(lambda: acknowledged(pair.master) == [log_end(pair.master)], "the slave's report")
    as_slave = table_of(pair.slave, HA_STATUS)
    assert as_slave["master"] is False
    assert int(as_slave["haClientRuntimeInfo"]["maxOffset"]) >= end
