"""The Python admin: every operation shows and does the same at CometMQ and at the real RocketMQ.

It looks at the shop of `test_mqadmin`, made and kept online by Java clients: a topic with twelve
messages, its producer, a group that is online and has not finished the last two, a group that went
offline before them. It has a cluster to itself, since it changes settings for everybody, and since
the real broker deletes no topic without timers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from cometmq.client.admin import Admin
from cometmq.client.admin.topics import Permission
from cometmq.client.errors import (
    ClientError,
    ConsumerNotOnline,
    GroupNotFound,
    IllegalArgument,
    InvalidParameter,
    NotFound,
    TopicNotFound,
)
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.message_queue import MessageQueue
from interop import systems
from interop.mqadmin import Message, MqAdmin, Place, eventually
from interop.systems import Cluster, System

CLUSTER = "interop"
BROKER = "broker-a"
TOPIC = "Shop"
PRODUCER = "shop_producer"
ONLINE = "shop_billing"
OFFLINE = "shop_archive"
ORDERS = [
    Message(i % 4, f"order-{i} äöü", f"order-{i} every", "Odd" if i % 2 else "Even")
    for i in range(10)
]
HELD = [Message(queue, f"held-{queue}", f"held-{queue} every", "Held") for queue in (0, 1)]
MESSAGES = [*ORDERS, *HELD]
QUEUES = [MessageQueue(TOPIC, BROKER, number) for number in range(4)]
# Of every queue: what is consumed, and where it ends with the messages that are held.
DONE = dict(zip(QUEUES, (3, 3, 2, 2), strict=True))
ENDS = dict(zip(QUEUES, (4, 4, 2, 2), strict=True))
BEGINNINGS = dict.fromkeys(QUEUES, 0)
EVENTUALLY_LIMIT_S = 15.0
POLL_INTERVAL_S = 0.1

T = TypeVar("T")


@dataclass(frozen=True)
class Shop:
    """What there is to see, an admin, and the loop it lives in."""

    system: System
    admin: Admin
    run: Callable[[Coroutine[Any, Any, Any]], Any]
    namesrv: str
    broker: str
    sent: list[Place]
    client_id: str
    held_since_ms: int
    clients: MqAdmin


@pytest.fixture(scope="module")
def clients(admin_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqAdmin]:
    """A Java process for the clients that are looked at."""
    home = tmp_path_factory.mktemp("clients") / "home"
    with MqAdmin(admin_cluster.namesrv.address, home) as started:
        yield started


@pytest.fixture(scope="module")
def shop(admin_cluster: Cluster, clients: MqAdmin) -> Iterator[Shop]:
    with asyncio.Runner() as runner:
        admin = Admin(admin_cluster.namesrv.address)
        runner.run(admin.start())
        try:
            yield filled(admin_cluster, clients, admin, runner)
        finally:
            runner.run(admin.stop())


def filled(cluster: Cluster, clients: MqAdmin, admin: Admin, runner: asyncio.Runner) -> Shop:
    runner.run(admin.topics.create(TOPIC, queues=4))
    sent = clients.produce(PRODUCER, TOPIC, ORDERS)
    clients.consume(OFFLINE, TOPIC, len(ORDERS))
    clients.leave(OFFLINE)
    clients.consume(ONLINE, TOPIC, len(ORDERS))
    held_since_ms = int(time.time() * 1000)
    sent += clients.produce(PRODUCER, TOPIC, HELD)
    client_id = clients.consume(ONLINE, TOPIC, len(MESSAGES))["clientId"]

    def is_done() -> bool:
        # Asking a consumer again has it send its offsets again; they go one way.
        clients.consume(ONLINE, TOPIC, len(MESSAGES))
        return bool(runner.run(admin.offsets.committed(ONLINE, TOPIC)) == DONE)

    eventually(is_done, lambda: f"{ONLINE} has not come as far as it should")
    return Shop(
        cluster.system, admin, runner.run, cluster.namesrv.address, cluster.broker.address,
        sent, client_id, held_since_ms, clients,
    )  # fmt: skip


async def wait_for(fact: Callable[[], Awaitable[object]]) -> None:
    """Wait for what a server does in its own time; an error until then is not the last word."""
    last: object = None
    async with asyncio.timeout(EVENTUALLY_LIMIT_S):
        while True:
            try:
                last = await fact()
            except ClientError as error:
                last = error
            if last and not isinstance(last, ClientError):
                return
            await asyncio.sleep(POLL_INTERVAL_S)


async def listed(messages: AsyncIterator[ReceivedMessage]) -> list[ReceivedMessage]:
    return [message async for message in messages]


def assert_is(message: ReceivedMessage, number: int, shop: Shop) -> None:
    wanted, place = MESSAGES[number], shop.sent[number]
    assert message.body.decode() == wanted.body
    assert message.properties["KEYS"] == wanted.keys
    assert message.tags == wanted.tags
    assert (message.queue, message.queue_offset) == (QUEUES[place.queue_id], place.queue_offset)
    assert (message.message_id, message.offset_message_id) == (place.msg_id, place.offset_msg_id)
    assert str(message.store_host) == shop.broker


# -- topics --------------------------------------------------------------------------------------


def test_topics_are_listed_with_their_groups_and_clusters(shop: Shop) -> None:
    async def look() -> None:
        topics = shop.admin.topics
        assert TOPIC in await topics.names()
        assert TOPIC in await topics.names(cluster=CLUSTER)
        internal = {f"%RETRY%{ONLINE}", f"%RETRY%{OFFLINE}", "TBW102", CLUSTER, BROKER}
        assert not internal & set(await topics.names())
        assert internal <= set(await topics.names(internal=True))
        assert await topics.groups(TOPIC) == [OFFLINE, ONLINE]
        assert await topics.clusters(TOPIC) == [CLUSTER]

    shop.run(look())


def test_a_topic_is_created_changed_and_deleted(shop: Shop) -> None:
    async def change() -> None:
        topics = shop.admin.topics
        fifo = {"message.type": "FIFO"}
        await topics.create("Made", read_queues=3, write_queues=2, attributes=fifo)
        await wait_for(lambda: topics.route("Made"))
        (data,) = (await topics.route("Made")).queue_datas
        assert (data.read_queue_nums, data.write_queue_nums, data.perm) == (3, 2, 6)
        assert (await topics.config("Made"))[BROKER].attributes == fifo
        await topics.update("Made", permission=Permission.READ, read_queues=4)
        config = (await topics.config("Made", brokers=[shop.broker]))[BROKER]
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (4, 2, 4)
        assert config.attributes == fifo
        await topics.delete("Made")
        with pytest.raises(TopicNotFound):
            await topics.route("Made")
        with pytest.raises(TopicNotFound):
            await topics.config("Made")
        with pytest.raises(InvalidParameter):
            await topics.create("TBW102")
        await topics.delete("NeverMade")

    shop.run(change())


def test_an_ordered_topic_has_its_queues_in_the_name_server(shop: Shop) -> None:
    async def change() -> None:
        topics = shop.admin.topics
        assert await topics.order("InOrder") == {}
        await topics.set_order("InOrder", {"elsewhere": 1})
        await topics.create("InOrder", queues=3, ordered=True)
        assert await topics.order("InOrder") == {"elsewhere": 1, BROKER: 3}
        assert (await topics.config("InOrder"))[BROKER].order
        await topics.delete("InOrder")
        assert await topics.order("InOrder") == {}

    shop.run(change())


def test_stats_of_a_topic_have_every_queue(shop: Shop) -> None:
    stats = shop.run(shop.admin.topics.stats(TOPIC))
    assert {queue: found.max_offset for queue, found in stats.queues.items()} == ENDS
    assert stats.messages == len(MESSAGES)
    assert stats.last_update_timestamp >= shop.held_since_ms
    assert stats.put_tps >= 0


# -- groups --------------------------------------------------------------------------------------


def test_a_group_is_created_changed_and_deleted(shop: Shop) -> None:
    async def change() -> None:
        groups = shop.admin.groups
        with pytest.raises(GroupNotFound):
            await groups.config("made")
        assert "made" not in await groups.names()  # Looking did not create it.
        await groups.create("made", retry_max_times=7, retry_queue_nums=2)
        await groups.update("made", consume_enable=False)
        config = (await groups.config("made"))[BROKER]
        assert (config.retry_max_times, config.retry_queue_nums) == (7, 2)
        assert not config.consume_enable
        assert {"made", ONLINE, OFFLINE} <= set(await groups.names())
        assert "TOOLS_CONSUMER" not in await groups.names()
        await shop.admin.offsets.clone(OFFLINE, "made", TOPIC)
        assert await shop.admin.offsets.committed("made", TOPIC) == DONE
        await groups.delete("made")
        assert await shop.admin.offsets.committed("made", TOPIC) == {}
        # The real broker makes it anew at once, with defaults, while it deletes it.
        again = await groups.config("made") if "made" in await groups.names() else {}
        assert {config.retry_max_times for config in again.values()} <= {16}

    shop.run(change())


@pytest.mark.parametrize("group", [ONLINE, OFFLINE])
def test_progress_of_a_group_has_every_queue_and_the_lag(shop: Shop, group: str) -> None:
    progress = shop.run(shop.admin.groups.progress(group, TOPIC))
    found = {q: (p.broker_offset, p.consumer_offset) for q, p in progress.queues.items()}
    assert found == {queue: (ENDS[queue], DONE[queue]) for queue in QUEUES}
    assert progress.lag == len(HELD)
    assert all(queue.last_timestamp > 0 for queue in progress.queues.values())
    everything = shop.run(shop.admin.groups.progress(group))
    # The topic of its retries, too, once its members have committed there.
    assert {TOPIC} <= set(everything.topics) <= {TOPIC, f"%RETRY%{group}"}


def test_what_a_group_reads_and_how_long_messages_wait(shop: Shop) -> None:
    async def look() -> None:
        groups = shop.admin.groups
        assert {TOPIC} <= set(await groups.topics(OFFLINE)) <= {TOPIC, f"%RETRY%{OFFLINE}"}
        subscription = await groups.subscription(ONLINE, TOPIC)
        assert subscription is not None
        assert (subscription.topic, subscription.sub_string) == (TOPIC, "*")
        assert await groups.subscription(OFFLINE, TOPIC) is None
        spans = {span.message_queue: span for span in await groups.time_spans(OFFLINE, TOPIC)}
        assert spans.keys() == set(QUEUES)
        assert spans[QUEUES[0]].max_time_stamp >= shop.held_since_ms
        assert (spans[QUEUES[0]].delay_time > 0, spans[QUEUES[2]].delay_time) == (True, 0)

    shop.run(look())


def test_members_tell_who_they_are_and_what_they_do(shop: Shop) -> None:
    async def look() -> None:
        members = shop.admin.members
        online = await members.of_group(ONLINE)
        (member,) = online.connection_set
        assert (member.client_id, member.language) == (shop.client_id, "JAVA")
        assert online.subscription_table.keys() == {TOPIC, f"%RETRY%{ONLINE}"}
        assert (online.consume_type, online.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
        with pytest.raises(ConsumerNotOnline):
            await members.of_group(OFFLINE)
        info = await members.running_info(ONLINE, shop.client_id, stacks=True)
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        cached = {q: s.cached_msg_count for q, s in info.queues.items() if q.topic == TOPIC}
        assert cached == {queue: ENDS[queue] - DONE[queue] for queue in QUEUES}
        assert {s.topic for s in info.subscriptions} == {TOPIC, f"%RETRY%{ONLINE}"}
        assert TOPIC in info.topics
        assert f"ConsumeMessageThread_{ONLINE}_" in info.stacks
        with pytest.raises(ConsumerNotOnline, match="no member nobody"):
            await members.running_info(ONLINE, "nobody")

    shop.run(look())


def test_producers_are_told_by_their_groups(shop: Shop) -> None:
    async def look() -> None:
        (member,) = await shop.admin.members.producers_of(PRODUCER)
        assert member.client_id.endswith(f"@{PRODUCER}")
        assert await shop.admin.members.producers_of("nobody") == []
        (producer,) = (await shop.admin.members.producers())[PRODUCER]
        assert (producer.client_id, producer.language) == (member.client_id, "JAVA")

    shop.run(look())


# -- offsets -------------------------------------------------------------------------------------


def test_offsets_of_a_topic_are_found_by_time(shop: Shop) -> None:
    async def look() -> None:
        offsets = shop.admin.offsets
        assert (await offsets.min(QUEUES[0]), await offsets.max(QUEUES[0])) == (0, 4)
        assert await offsets.search_topic(TOPIC, "earliest") == BEGINNINGS
        assert await offsets.search_topic(TOPIC, "latest") == ENDS
        assert await offsets.search_topic(TOPIC, shop.held_since_ms) == DONE
        assert await offsets.committed(OFFLINE, TOPIC) == DONE
        assert await offsets.committed("nobody", TOPIC) == {}

    shop.run(look())


def test_a_group_is_moved(shop: Shop) -> None:
    async def move() -> None:
        offsets, group = shop.admin.offsets, "moved"
        with pytest.raises(GroupNotFound):
            await offsets.reset("nobody", TOPIC, "latest")
        await shop.admin.groups.create(group)
        for to, wanted in (
            ("latest", ENDS), (shop.held_since_ms, DONE), ("earliest", BEGINNINGS),
        ):  # fmt: skip
            assert await offsets.reset(group, TOPIC, to) == wanted  # type: ignore[arg-type]
            assert await offsets.committed(group, TOPIC) == wanted
        assert await offsets.skip(group, TOPIC) == ENDS
        await offsets.set(group, {QUEUES[1]: 2})
        assert await offsets.committed(group, TOPIC) == {**ENDS, QUEUES[1]: 2}
        with pytest.raises(IllegalArgument, match="offset 9 is not in 0 to 4"):
            await offsets.set(group, {QUEUES[1]: 9})
        await shop.admin.groups.create("committed")
        await offsets.commit("committed", {QUEUES[0]: 1})
        assert await offsets.committed("committed", TOPIC) == {QUEUES[0]: 1}
        for made in (group, "committed"):
            await shop.admin.groups.delete(made)

    shop.run(move())


# -- messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [3, 11])
def test_a_message_is_found_by_place_and_id(shop: Shop, number: int) -> None:
    async def look() -> None:
        messages, place = shop.admin.messages, shop.sent[number]
        assert_is(await messages.view(place.offset_msg_id), number, shop)
        assert_is(await messages.at(QUEUES[place.queue_id], place.queue_offset), number, shop)
        (found,) = await messages.by_id(TOPIC, place.msg_id)
        assert_is(found, number, shop)

    shop.run(look())


def test_messages_are_found_by_key_and_time(shop: Shop) -> None:
    async def look() -> None:
        messages = shop.admin.messages
        found = await messages.by_key(TOPIC, "every")
        assert {m.message_id for m in found} == {place.msg_id for place in shop.sent}
        late = await messages.by_key(TOPIC, "every", begin=shop.held_since_ms)
        assert {m.body.decode() for m in late} == {message.body for message in HELD}
        (one,) = await messages.by_key(TOPIC, "order-3")
        assert_is(one, 3, shop)
        assert len(await messages.by_key(TOPIC, "every", limit=4)) == 4
        assert await messages.by_key(TOPIC, "no-such-key") == []
        assert await messages.by_id(TOPIC, "0" * 32) == []
        with pytest.raises(NotFound):
            await messages.at(QUEUES[0], 99)

    shop.run(look())


def test_a_topic_is_read_without_a_trace(shop: Shop) -> None:
    async def look() -> None:
        messages = shop.admin.messages
        both = zip(shop.sent, MESSAGES, strict=True)
        places = sorted((p.queue_id, p.queue_offset, m.body) for p, m in both)
        read = await listed(messages.read_topic(TOPIC))
        assert [(m.queue.queue_id, m.queue_offset, m.body.decode()) for m in read] == places
        held = await listed(messages.read_topic(TOPIC, begin=shop.held_since_ms))
        assert [m.body.decode() for m in held] == [message.body for message in HELD]
        odd = await listed(messages.read(QUEUES[1], tags="Odd", start=1))
        assert [m.body.decode() for m in odd] == [ORDERS[5].body, ORDERS[9].body]
        assert await shop.admin.topics.groups(TOPIC) == [OFFLINE, ONLINE]

    shop.run(look())


def test_a_message_is_handed_to_one_consumer(shop: Shop) -> None:
    async def hand_over() -> None:
        place = shop.sent[3].offset_msg_id
        consumed = await shop.admin.messages.consume_directly(ONLINE, shop.client_id, place)
        assert consumed.consume_result == "CR_SUCCESS"

    shop.run(hand_over())
    bodies = shop.clients.consume(ONLINE, TOPIC, len(MESSAGES) + 1)["bodies"]
    assert bodies[-1] == MESSAGES[3].body


def test_what_a_producer_reported_is_found(shop: Shop) -> None:
    async def trace() -> None:
        await shop.admin.topics.create("Traces", queues=2)
        await shop.admin.topics.create("Traced", queues=4)
        await wait_for(lambda: shop.admin.topics.route("Traced"))
        produce = ("traced_producer", "Traced", ORDERS[:1], "Traces")
        (place,) = await asyncio.to_thread(shop.clients.produce, *produce)
        messages = shop.admin.messages
        await wait_for(lambda: messages.trace(place.msg_id, trace_topic="Traces"))
        (sent,) = await messages.trace(place.msg_id, trace_topic="Traces")
        assert (sent.kind, sent.group, sent.topic) == ("Pub", "traced_producer", "Traced")
        assert (sent.message_id, sent.success) == (place.msg_id, True)

    shop.run(trace())


# -- brokers and name servers --------------------------------------------------------------------


def test_brokers_tell_of_themselves(shop: Shop) -> None:
    async def look() -> None:
        brokers = shop.admin.brokers
        (node,) = await brokers.nodes(cluster=CLUSTER)
        told = (node.cluster, node.name, node.broker_id, node.address)
        assert told == (CLUSTER, BROKER, 0, shop.broker)
        info = (await brokers.runtime_info())[BROKER]
        assert info.version == "V5_5_0"
        assert info.put_today >= len(MESSAGES)
        assert info.get_today >= len(MESSAGES) + len(ORDERS)
        assert info.commit_log_max_offset > shop.sent[-1].log_offset
        assert info.commit_log_min_offset == 0
        assert 0 < info.disk_ratio <= 1
        assert info.boot_timestamp <= shop.held_since_ms
        progress = (await brokers.progress())[BROKER]
        lags = {group: progress.groups[group].lag for group in (ONLINE, OFFLINE)}
        assert lags == {ONLINE: len(HELD), OFFLINE: len(HELD)}
        assert progress.lag == sum(group.lag for group in progress.groups.values())
        stats = await brokers.stats(BROKER, "TOPIC_PUT_NUMS", TOPIC)
        assert stats.stats_day.sum >= 0

    shop.run(look())


def test_settings_of_running_servers_are_changed(shop: Shop) -> None:
    async def change() -> None:
        brokers, namesrvs = shop.admin.brokers, shop.admin.namesrvs
        await brokers.update_config({"fileReservedTime": 51})
        config = (await brokers.config(brokers=[BROKER]))[BROKER]
        wanted = {
            "fileReservedTime": "51", "brokerName": BROKER, "brokerClusterName": CLUSTER,
            "messageDelayLevel": systems.SHORT_DELAYS,
        }  # fmt: skip
        assert config | wanted == config
        for value in (True, False):
            await namesrvs.update_config({"orderMessageEnable": value})
            config = (await namesrvs.config())[shop.namesrv]
            assert config["orderMessageEnable"] == str(value).lower()

    shop.run(change())


def test_values_in_the_name_server_are_set_shown_and_removed(shop: Shop) -> None:
    async def change() -> None:
        namesrvs = shop.admin.namesrvs
        assert await namesrvs.get("space", "key") is None
        assert await namesrvs.values("space") == {}
        await namesrvs.put("space", "key", "a:1;b:2")
        assert await namesrvs.get("space", "key") == "a:1;b:2"
        assert await namesrvs.values("space") == {"key": "a:1;b:2"}
        await namesrvs.delete("space", "key")
        assert await namesrvs.get("space", "key") is None

    shop.run(change())


def test_writes_are_forbidden_and_allowed_again(shop: Shop) -> None:
    async def change() -> None:
        count = len(await shop.admin.topics.names(internal=True))
        assert await shop.admin.brokers.forbid_writes(BROKER) == {shop.namesrv: count}
        (data,) = (await shop.admin.topics.route(TOPIC)).queue_datas
        assert data.perm == Permission.READ
        assert await shop.admin.brokers.allow_writes(BROKER) == {shop.namesrv: count}
        (data,) = (await shop.admin.topics.route(TOPIC)).queue_datas
        assert data.perm == Permission.READ_WRITE

    shop.run(change())


def test_cleaning_up_leaves_what_is_in_use(shop: Shop) -> None:
    async def clean() -> None:
        await shop.admin.brokers.clean_expired_queues()
        await shop.admin.brokers.clean_unused_topics()
        await shop.admin.brokers.delete_expired_log()
        assert (await shop.admin.topics.stats(TOPIC)).messages == len(MESSAGES)

    shop.run(clean())
