"""What a new leader has beside the messages: topics, groups, offsets, delays, timers, halves."""

import asyncio
import shutil
from pathlib import Path

from cometmq.broker.broker import Broker
from tests.broker.brokers import Client, context_of, until
from tests.quorum.groups import Group, group_of, read_all, send_all, store_of

LOOPS = ["uvloop"]


async def fail_over(group: Group) -> str:
    """Kill the leader; the next one."""
    first = await group.leader()
    await group.kill(first)
    second = await group.leader()
    assert second != first
    return second


async def test_topics_and_groups_that_were_made_are_there(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        client = await Client.to(group.up[leader])
        fields = {"topic": "invoices", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}
        assert (await client.ask(17, {**fields, "topicFilterType": "SINGLE_TAG"})).code == 0
        assert (await client.ask(200, {}, {"groupName": "clerks", "retryMaxTimes": 3})).code == 0
        await client.send("orders", b"x")
        second = await fail_over(group)
        context = context_of(group.up[second])
        topic, clerks = context.topics.get("invoices"), context.groups.get("clerks")
        assert topic is not None
        assert topic.write_queue_nums == 3
        assert clerks is not None
        assert clerks.retry_max_times == 3
        assert context.topics.get("orders") is not None
        assert context.topics.version.state_version == group.quorum(second).epoch


async def test_a_member_that_starts_has_what_its_log_tells(tmp_path: Path) -> None:
    """Its tables were not saved after the changes, and there is nobody to tell them again."""
    async with group_of(tmp_path) as group:
        await group.start()
        client = await Client.to(group.up[await group.leader()])
        member = group.followers()[0]
        tables = tmp_path / member / "config"
        await until(tables.is_dir)
        shutil.copytree(tables, tmp_path / "before")
        fields = {"topic": "invoices", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}
        assert (await client.ask(17, {**fields, "topicFilterType": "SINGLE_TAG"})).code == 0
        assert (await client.ask(200, {}, {"groupName": "billing", "retryMaxTimes": 3})).code == 0
        await client.commit(7, "invoices", 2)
        await until(lambda: offset_at(group.up[member]) == 7)
        await group.stop()
        shutil.rmtree(tables)
        shutil.move(tmp_path / "before", tables)
        await group.start(member)
        context = context_of(group.up[member])
        topic, billing = context.topics.get("invoices"), context.groups.get("billing")
        assert topic is not None
        assert topic.write_queue_nums == 3
        assert billing is not None
        assert billing.retry_max_times == 3
        assert offset_at(group.up[member]) == 7


def offset_at(broker: Broker) -> int | None:
    return context_of(broker).offsets.get("billing", "invoices", 2)


async def test_a_topic_that_was_deleted_stays_so(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        await send_all(group.up[leader], 40)
        client = await Client.to(group.up[leader])
        assert (await client.ask(215, {"topic": "orders"})).code == 0
        again = await send_all(group.up[leader], 8, first=40)
        await group.in_step()
        second = await fail_over(group)
        assert await read_all(group.up[second]) == again


async def test_groups_go_on_within_a_hundred_messages(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        await send_all(group.up[leader], 4)
        client = await Client.to(group.up[leader])
        await client.pull("orders")  # So that the group is known.
        consumed = 0
        for consumed in range(1, 2000, 20):
            client.tell(15, {"consumerGroup": "billing", "topic": "orders", "queueId": 0,
                             "commitOffset": consumed})  # fmt: skip
            await asyncio.sleep(0.01)
        second = await fail_over(group)
        found = await (await Client.to(group.up[second])).offset_of("orders")
        assert consumed - 100 <= found <= consumed


async def test_offsets_that_rest_are_exact(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        await send_all(group.up[leader], 4)
        client = await Client.to(group.up[leader])
        await client.pull("orders")  # So that the group is known.
        for queue_id in range(4):
            await client.commit(100 + queue_id, "orders", queue_id)
        await asyncio.sleep(0.15)
        await group.in_step()
        second = await fail_over(group)
        other = await Client.to(group.up[second])
        assert [await other.offset_of("orders", q) for q in range(4)] == [100, 101, 102, 103]


async def test_delayed_messages_come_once_and_not_early(tmp_path: Path) -> None:
    async with group_of(tmp_path, messageDelayLevel="3s 5s") as group:
        await group.start()
        leader = await group.leader()
        client = await Client.to(group.up[leader])
        bodies = [b"%03d" % n for n in range(30)]
        for n, body in enumerate(bodies):
            answer = await client.send("orders", body, properties={"DELAY": str(1 + n % 2)})
            assert answer.code == 0
        second = await fail_over(group)
        store = store_of(group.up[second])
        await until(lambda: store.max_offset("orders", 0) >= 30, 20)
        assert await read_all(group.up[second]) == bodies
        third = await fail_over_with(group, second)
        await asyncio.sleep(1.5)
        assert await read_all(group.up[third]) == bodies


async def fail_over_with(group: Group, leader: str) -> str:
    """Bring back who is down, then let the leader go."""
    for member in group.ports:
        if member not in group.up:
            await group.start(member)
    await group.in_step()
    await group.kill(leader)
    return await group.leader()


async def test_timed_messages_come_once(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        client = await Client.to(group.up[leader])
        bodies = [b"%03d" % n for n in range(20)]
        for n, body in enumerate(bodies):
            properties = {"TIMER_DELAY_MS": str(1000 + 150 * n)}
            assert (await client.send("orders", body, properties=properties)).code == 0
        # Some are delivered by the first leader, some by the second.
        store = store_of(group.up[leader])
        await until(lambda: store.max_offset("orders", 0) >= 3, 20)
        second = await fail_over(group)
        heir = store_of(group.up[second])
        await until(lambda: heir.max_offset("orders", 0) >= 20, 20)
        await asyncio.sleep(0.3)
        assert await read_all(group.up[second]) == bodies


async def test_an_open_transaction_can_be_decided_at_the_next_leader(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        client = await Client.to(group.up[leader])
        half = await client.send(
            "orders", b"half", properties={"TRAN_MSG": "true", "PGROUP": "bank"}, f=4
        )
        assert half.code == 0
        fields = half.text_fields()
        second = await fail_over(group)
        duties = group.up[second].parts.duties
        assert len(duties.transactions.halves) == 1
        physical = int(fields["msgId"][-16:], 16)
        other = await Client.to(group.up[second])
        answer = await other.ask(37, {
            "producerGroup": "bank", "tranStateTableOffset": fields["queueOffset"],
            "commitLogOffset": physical, "commitOrRollback": 8, "fromTransactionCheck": False,
            "msgId": fields["transactionId"], "transactionId": fields["transactionId"],
        })  # fmt: skip
        assert answer.code == 0, answer.remark
        assert await read_all(group.up[second]) == [b"half"]
