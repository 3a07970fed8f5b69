"""Tables and progress at a slave, and what they are worth when it becomes the master."""

import asyncio
from pathlib import Path
from typing import Any

from cometmq.broker.broker import Broker
from cometmq.broker.slave.copies import Copies
from cometmq.testing import FaultProxy
from tests.broker.brokers import Client, broker_of, context_of, until
from tests.replication.pairs import (
    QUICK,
    doomed,
    follower_of,
    in_step,
    master,
    name_server,
    pair,
    send_all,
    slave,
    store_of,
    stranger,
)


def copies_of(broker: Broker) -> Copies:
    found = broker.parts.copies
    assert found is not None
    return found


async def copied(leader: Broker, follower: Broker) -> None:
    """Copy now what the slave would copy within ten seconds."""
    await in_step(leader, follower)
    await copies_of(follower).copy(str(leader.address))


async def ask(broker: Broker, code: int, fields: dict[str, Any], body: Any = b"") -> None:
    client = await Client.to(broker)
    answer = await client.ask(code, fields, body)
    client.close()
    assert answer.code == 0, answer.remark


async def test_topics_groups_and_offsets_are_copied_by_themselves(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names, pair(tmp_path, names) as (leader, follower):
        await send_all(leader, 4)
        await ask(leader, 200, {}, {"groupName": "billing", "retryMaxTimes": 3})
        await ask(
            leader, 15, {"consumerGroup": "billing", "topic": "orders", "queueId": 0,
                         "commitOffset": 1},
        )  # fmt: skip
        copies_of(follower).hurry()
        ours, theirs = context_of(leader), context_of(follower)
        await until(lambda: theirs.offsets.get("billing", "orders", 0) == 1)
        group = theirs.groups.get("billing")
        assert group is not None
        assert group.retry_max_times == 3
        assert theirs.topics.content() == ours.topics.content()
        assert theirs.groups.content() == ours.groups.content()
        assert copies_of(follower).rounds >= 1


async def test_copied_tables_are_in_the_files(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names, master(tmp_path, namesrvAddr=names) as leader:
        async with slave(tmp_path, namesrvAddr=names) as follower:
            await send_all(leader, 4)
            await copied(leader, follower)
            await follower.abandon()
        async with slave(tmp_path, waits=False, haMasterAddress="127.0.0.1:1") as again:
            assert context_of(again).topics.get("orders") == context_of(leader).topics.get("orders")


async def test_a_topic_that_is_deleted_at_the_master_is_deleted_here(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names, pair(tmp_path, names) as (leader, follower):
        await send_all(leader, 4)
        await copied(leader, follower)
        await ask(leader, 215, {"topic": "orders"})
        await copied(leader, follower)
        assert context_of(follower).topics.get("orders") is None
        await send_all(leader, 8)
        await copied(leader, follower)
        assert store_of(follower).max_offset("orders", 0) == 2


async def test_many_topics_and_groups_come_page_by_page(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names, pair(tmp_path, names) as (leader, follower):
        topics = [{"topicName": f"topic-{n}", "readQueueNums": 1} for n in range(2500)]
        groups = [{"groupName": f"group-{n}"} for n in range(2500)]
        await ask(leader, 18, {}, {"topicConfigList": topics})
        await ask(leader, 225, {}, {"groupConfigList": groups})
        await copied(leader, follower)
        ours, theirs = context_of(leader), context_of(follower)
        assert theirs.topics.content() == ours.topics.content()
        assert theirs.groups.content() == ours.groups.content()


async def test_a_new_topic_is_noticed_at_once(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names, pair(tmp_path, names) as (leader, follower):
        await until(lambda: copies_of(follower).rounds)
        await send_all(leader, 4, topic="fresh")
        # Not after ten seconds: its first message told of it.
        await until(lambda: context_of(follower).topics.get("fresh"), 5)


async def test_progress_is_not_taken_over_before_the_log_has_it(tmp_path: Path) -> None:
    async with (
        name_server(tmp_path) as names,
        master(tmp_path, namesrvAddr=names) as leader,
        FaultProxy(context_of(leader).ha_address) as proxy,
        slave(tmp_path, proxy.address, namesrvAddr=names) as follower,
    ):
        await send_all(leader, 4)
        await copied(leader, follower)
        await ask(leader, 200, {}, {"groupName": "billing"})
        proxy.stall()
        await send_all(leader, 40)
        await ask(
            leader, 15, {"consumerGroup": "billing", "topic": "orders", "queueId": 0,
                         "commitOffset": 11},
        )  # fmt: skip
        copying = asyncio.create_task(copies_of(follower).copy(str(leader.address)))
        await until(lambda: store_of(follower).dispatched.awaited)
        assert context_of(follower).offsets.get("billing", "orders", 0) is None
        proxy.resume()
        await copying
        assert context_of(follower).offsets.get("billing", "orders", 0) == 11


# -- taking over ---------------------------------------------------------------------------------

WAITS: dict[str, Any] = {"messageDelayLevel": "2s 3s", "timerRollWindowSlot": 3600}


async def promoted(tmp_path: Path, names: str, **settings: Any) -> Broker:
    """The slave's store with a broker that is the master now."""
    broker = broker_of(tmp_path / "slave-1", **QUICK, namesrvAddr=names, **settings)
    await broker.start()
    return broker


async def test_a_slave_that_takes_over_delivers_what_waits_exactly_once(tmp_path: Path) -> None:
    async with (
        name_server(tmp_path) as names,
        doomed(tmp_path, namesrvAddr=names, **WAITS) as leader,
    ):
        client = await Client.to(leader)
        async with slave(tmp_path, namesrvAddr=names, **WAITS) as follower:
            now_ms = context_of(leader).clock.now_ms
            for count in range(5):
                await client.send("orders", b"early %d" % count, properties={"DELAY": "1"})
                due = {"TIMER_DELIVER_MS": str(now_ms() + 2000)}
                await client.send("orders", b"timed early %d" % count, properties=due)
            await until(lambda: delivered(leader) == 10)
            for count in range(5):
                await client.send("orders", b"late %d" % count, properties={"DELAY": "2"})
                due = {"TIMER_DELIVER_MS": str(now_ms() + 3000)}
                await client.send("orders", b"timed late %d" % count, properties=due)
            await copied(leader, follower)
            await leader.abandon()
        client.close()
        heir = await promoted(tmp_path, names, **WAITS)
        try:
            await until(lambda: delivered(heir) == 20, 15)
            await asyncio.sleep(1)
            bodies = await all_bodies(heir)
            assert sorted(bodies) == sorted(set(bodies))
            assert len(bodies) == 20
        finally:
            await heir.stop()


def delivered(broker: Broker) -> int:
    return sum(store_of(broker).max_offset("orders", queue_id) for queue_id in range(4))


async def all_bodies(broker: Broker) -> list[bytes]:
    client = await Client.to(broker)
    found = [m.body for queue_id in range(4) for m in await client.pulled("orders", queue_id)]
    client.close()
    return found


async def test_a_slave_that_takes_over_asks_about_open_transactions(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names, doomed(tmp_path, namesrvAddr=names) as leader:
        client = await Client.to(leader)
        half = {"TRAN_MSG": "true", "PGROUP": "shop"}
        async with slave(tmp_path, namesrvAddr=names) as follower:
            decided = await client.send("orders", b"decided", properties=half, f=4)
            await client.send("orders", b"open", properties=half, f=4)
            told = decided.text_fields()
            await ask(
                leader, 37,
                {"producerGroup": "shop", "tranStateTableOffset": told["queueOffset"],
                 "commitLogOffset": int(told["msgId"][-16:], 16), "commitOrRollback": 8,
                 "fromTransactionCheck": False, "msgId": "", "transactionId": ""},
            )  # fmt: skip
            await copied(leader, follower)
            await leader.abandon()
        client.close()
        heir = await promoted(tmp_path, names)
        try:
            assert len(heir.parts.duties.transactions.halves) == 1
            assert await all_bodies(heir) == [b"decided"]
        finally:
            await heir.stop()


async def test_consumers_of_a_slave_that_takes_over_go_on_where_they_were(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names, doomed(tmp_path, namesrvAddr=names) as leader:
        async with slave(tmp_path, namesrvAddr=names) as follower:
            await send_all(leader, 400)
            client = await Client.to(leader)
            await client.heartbeat("me", "billing")
            assert (await client.commit(73)).code == 0
            client.close()
            await copied(leader, follower)
            await leader.abandon()
        heir = await promoted(tmp_path, names)
        try:
            client = await Client.to(heir)
            assert await client.offset_of() == 73
            client.close()
            assert await send_all(heir, 4) == [0] * 4
        finally:
            await heir.stop()


async def test_a_diverged_slave_copies_nothing(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names:
        async with pair(tmp_path, names) as (leader, follower):
            await send_all(leader, 100)
            await copied(leader, follower)
        async with stranger(tmp_path, namesrvAddr=names) as other:
            await send_all(other, 4, topic="others")
            async with slave(tmp_path, namesrvAddr=names) as follower:
                await until(lambda: follower_of(follower).trouble)
                copies_of(follower).hurry()
                await asyncio.sleep(1.5)
                assert context_of(follower).topics.get("others") is None
