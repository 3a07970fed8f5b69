"""What a slave does for clients, with its master and without, and what it leaves to the master."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cometmq.broker.broker import Broker
from cometmq.client import ConsumeFrom, Message, Producer, PullConsumer
from cometmq.client.errors import ClientError
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.routes import TopicRoute
from cometmq.protocol.topic_config import PERM_WRITE
from tests.broker.brokers import (
    SUBSCRIPTION,
    SUSPEND,
    Client,
    context_of,
    messages_in,
    number,
    send_fields,
    until,
)
from tests.replication.pairs import (
    doomed,
    follower_of,
    in_step,
    master,
    name_server,
    pair,
    read_all,
    send_all,
    slave,
    store_of,
)

GROUP_FIELDS = {"consumerGroup": "billing", "topic": "orders", "queueId": 0}


async def knowing_slave(leader: Broker, follower: Broker) -> None:
    """Wait until it has all messages and the topics they are of."""
    await in_step(leader, follower)
    await until(lambda: context_of(follower).topics.get("orders"))


# -- reads ---------------------------------------------------------------------------------------


async def test_a_slave_sends_readers_who_find_nothing_to_the_master(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names, pair(tmp_path, names) as (leader, follower):
        await send_all(leader, 4)
        await knowing_slave(leader, follower)
        client = await Client.to(follower)
        found = await client.pull("orders", 0, 0)
        assert (found.code, number(found, "suggestWhichBrokerId")) == (0, 0)
        for offset in (1, 50):  # At its end, and far behind it.
            answer = await client.pull(
                "orders", 0, offset, flag=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=20_000
            )
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert number(answer, "suggestWhichBrokerId") == 0
            assert number(answer, "nextBeginOffset") == offset
        client.close()


async def test_without_a_master_a_slave_serves_alone(tmp_path: Path) -> None:
    async with (
        name_server(tmp_path) as names,
        doomed(tmp_path, namesrvAddr=names) as leader,
        slave(tmp_path, namesrvAddr=names) as follower,
    ):
        await send_all(leader, 40)
        await knowing_slave(leader, follower)
        everything = await read_all(leader)
        await leader.abandon()
        assert await read_all(follower) == everything != []
        await until(lambda: not follower_of(follower).is_following)
        client = await Client.to(follower)
        # A reader at the end, or beyond what came here in time, waits and is not moved.
        for offset in (10, 50):
            answer = await client.pull(
                "orders", 0, offset, flag=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=300
            )
            assert answer.code == ResponseCode.PULL_NOT_FOUND
            assert number(answer, "nextBeginOffset") == offset
        client.close()


async def test_readers_who_wait_at_a_slave_hear_that_the_master_is_back(tmp_path: Path) -> None:
    async with (
        name_server(tmp_path) as names,
        doomed(tmp_path, namesrvAddr=names) as leader,
        slave(tmp_path, namesrvAddr=names) as follower,
    ):
        await send_all(leader, 4)
        await knowing_slave(leader, follower)
        await leader.stop()
        await until(lambda: not follower_of(follower).is_following)
        client = await Client.to(follower)
        waiting = asyncio.create_task(
            client.pull("orders", 0, 1, flag=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=60_000)
        )
        await until(lambda: len(context_of(follower).waiting_pulls) == 1)
        async with master(tmp_path, namesrvAddr=names) as back:
            await send_all(back, 4)
            answer = await waiting
            found = answer.code == 0 and len(messages_in(answer)) == 1
            assert found or answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        client.close()


async def test_a_master_suggests_the_slave_to_who_is_far_behind(tmp_path: Path) -> None:
    settings = {"slaveReadEnable": True, "accessMessageInMemoryMaxRatio": 0}
    async with (
        name_server(tmp_path) as names,
        master(tmp_path, namesrvAddr=names, **settings) as leader,
        slave(tmp_path, namesrvAddr=names, accessMessageInMemoryMaxRatio=0) as follower,
    ):
        await send_all(leader, 400)
        await knowing_slave(leader, follower)
        for broker in (leader, follower):
            client = await Client.to(broker)
            answer = await client.pull("orders", 0, 0)
            assert number(answer, "suggestWhichBrokerId") == 1
            client.close()


async def test_without_leave_a_master_suggests_nobody(tmp_path: Path) -> None:
    async with master(tmp_path, accessMessageInMemoryMaxRatio=0) as leader:
        await send_all(leader, 400)
        client = await Client.to(leader)
        assert number(await client.pull("orders", 0, 0), "suggestWhichBrokerId") == 0
        client.close()


async def test_a_consumer_goes_on_at_the_slave_and_back_at_the_master(tmp_path: Path) -> None:
    async with (
        name_server(tmp_path) as names,
        doomed(tmp_path, namesrvAddr=names) as leader,
        slave(tmp_path, namesrvAddr=names) as follower,
    ):
        async with Producer(names, group="shop") as producer:
            for count in range(40):
                await producer.send(Message("orders", b"%d" % count))
        await knowing_slave(leader, follower)
        async with PullConsumer(
            names, group="billing", topics="orders", consume_from=ConsumeFrom.FIRST
        ) as consumer:
            got = {m.body for m in await polled(consumer, 10)}
            await leader.abandon()
            while len(got) < 40:
                got |= {m.body for m in await polled(consumer, 1)}
        assert got == {b"%d" % count for count in range(40)}


async def polled(consumer: PullConsumer, at_least: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(45):
        while len(found) < at_least:
            try:
                found += await consumer.poll(timeout_s=1)
            except ClientError:
                await asyncio.sleep(0.1)
    return found


# -- writes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [10, 310, 320, 324, 325, 36])
async def test_a_slave_takes_no_messages(tmp_path: Path, code: int) -> None:
    async with master(tmp_path) as leader, slave(tmp_path, leader) as follower:
        client = await Client.to(follower)
        answer = await client.ask(code, send_fields("new-topic"), b"no")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "slave" in (answer.remark or "")
        assert context_of(follower).topics.get("new-topic") is None
        client.close()


@pytest.mark.parametrize("code", [37, 370])
async def test_a_slave_decides_nothing(tmp_path: Path, code: int) -> None:
    async with master(tmp_path) as leader, slave(tmp_path, leader) as follower:
        client = await Client.to(follower)
        assert (await client.ask(code, {})).code == ResponseCode.SLAVE_NOT_AVAILABLE
        client.close()


@pytest.mark.parametrize("code", [17, 18, 215, 200, 225, 207, 353, 316, 222, 314])
async def test_a_slave_lets_nobody_change_its_tables(tmp_path: Path, code: int) -> None:
    async with master(tmp_path) as leader, slave(tmp_path, leader) as follower:
        client = await Client.to(follower)
        answer = await client.ask(code, {"topic": "orders", **GROUP_FIELDS})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "slave broker" in (answer.remark or "")
        client.close()


# -- duties --------------------------------------------------------------------------------------


async def test_delays_timers_and_transactions_are_left_to_the_master(tmp_path: Path) -> None:
    """A slave that did anything by itself would have another log."""
    settings: dict[str, Any] = {"messageDelayLevel": "1s 1s", "transactionTimeOut": 100}
    async with (
        name_server(tmp_path) as names,
        doomed(tmp_path, namesrvAddr=names, **settings) as leader,
        slave(tmp_path, namesrvAddr=names, **settings) as follower,
    ):
        client = await Client.to(leader)
        due_ms = context_of(leader).clock.now_ms() + 1500
        await client.send("orders", b"delayed", properties={"DELAY": "1"})
        await client.send("orders", b"timed", properties={"TIMER_DELIVER_MS": str(due_ms)})
        await client.send("orders", b"half", properties={"TRAN_MSG": "true", "PGROUP": "shop"}, f=4)
        client.close()
        await in_step(leader, follower)
        end = store_of(follower).appended.value
        await leader.abandon()
        await asyncio.sleep(2.5)
        assert store_of(follower).appended.value == end


# -- acting as master ----------------------------------------------------------------------------


async def test_a_slave_stands_in_for_a_lost_master_as_far_as_reads_go(tmp_path: Path) -> None:
    acting: dict[str, Any] = {"enableSlaveActingMaster": True}
    async with (
        name_server(tmp_path, support_acting_master=True) as names,
        doomed(tmp_path, namesrvAddr=names, **acting) as leader,
        slave(tmp_path, namesrvAddr=names, **acting) as follower,
    ):
        await send_all(leader, 10)
        await knowing_slave(leader, follower)
        assert await route(names) == ({0: str(leader.address), 1: str(follower.address)}, True)
        await leader.abandon()
        lost = await route(names)
        assert lost == ({0: str(follower.address)}, False)
        async with master(tmp_path, namesrvAddr=names, **acting) as back:
            both = ({0: str(back.address), 1: str(follower.address)}, True)
            async with asyncio.timeout(10):
                while await route(names) != both:
                    await asyncio.sleep(0.05)


async def route(names: str) -> tuple[dict[int, str], bool]:
    """The brokers of the topic as clients see them, and whether they may write there."""
    client = await Client.to(names)
    try:
        answer = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
    finally:
        client.close()
    told = msgspec.json.decode(answer.body, type=TopicRoute, strict=False)
    (broker,), (queues,) = told.broker_datas, told.queue_datas
    return broker.broker_addrs, bool(queues.perm & PERM_WRITE)
