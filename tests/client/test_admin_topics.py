"""Operators look at topics and change them."""

import pytest

from cometmq.client.admin.topics import Permission
from cometmq.client.errors import IllegalArgument, InvalidParameter, TopicNotFound
from tests.client.shop import BROKERS, CLUSTER, IN_EACH, OFFLINE, ONLINE, QUEUES, TOPIC, open_shop


async def test_topics_are_listed_without_those_of_the_system() -> None:
    async with open_shop() as shop:
        topics = shop.admin.topics
        assert await topics.names() == [TOPIC]
        assert await topics.names(cluster=CLUSTER) == [TOPIC]
        everything = await topics.names(internal=True)
        assert {TOPIC, f"%RETRY%{ONLINE}", "TBW102", CLUSTER, *BROKERS} <= set(everything)


async def test_a_topic_is_created_at_all_brokers_and_found_in_its_route() -> None:
    async with open_shop() as shop:
        attributes = {"message.type": "FIFO"}
        await shop.admin.topics.create("made", read_queues=3, write_queues=2, attributes=attributes)
        route = await shop.admin.topics.route("made")
        assert {d.broker_name: d.broker_addrs[0] for d in route.broker_datas} == dict(
            zip(BROKERS, shop.embedded.addresses, strict=True)
        )
        queues = {(d.broker_name, d.read_queue_nums, d.write_queue_nums) for d in route.queue_datas}
        assert queues == {(broker, 3, 2) for broker in BROKERS}
        configs = await shop.admin.topics.config("made")
        found = {name: config.attributes for name, config in configs.items()}
        assert found == dict.fromkeys(BROKERS, attributes)
        assert await shop.admin.topics.clusters("made") == [CLUSTER]


async def test_a_topic_is_created_at_one_broker_by_name_or_address() -> None:
    async with open_shop() as shop:
        await shop.admin.topics.create("by_name", brokers=["broker-b"])
        both = [shop.embedded.address, "broker-a"]
        await shop.admin.topics.create("by_address", brokers=both)
        assert list(await shop.admin.topics.config("by_name")) == ["broker-b"]
        assert list(await shop.admin.topics.config("by_address")) == ["broker-a"]


async def test_a_change_leaves_what_is_not_named() -> None:
    async with open_shop() as shop:
        topics = shop.admin.topics
        await topics.create("made", queues=3, attributes={"message.type": "FIFO"})
        await topics.update("made", permission=Permission.READ)
        for config in (await topics.config("made")).values():
            assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 3, 4)
            assert config.attributes == {"message.type": "FIFO"}
        await topics.update("made", write_queues=5, attributes={"message.type": None})
        for config in (await topics.config("made")).values():
            assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 5, 4)
            assert config.attributes == {}
        with pytest.raises(TopicNotFound, match="no broker has topic nothing"):
            await topics.update("nothing", permission=Permission.READ)


async def test_a_deleted_topic_is_gone_everywhere() -> None:
    async with open_shop() as shop:
        topics = shop.admin.topics
        await topics.set_order(TOPIC, {"broker-a": 2})
        await topics.delete(TOPIC)
        assert await topics.names() == []
        assert await topics.order(TOPIC) == {}
        with pytest.raises(TopicNotFound):
            await topics.route(TOPIC)
        with pytest.raises(TopicNotFound, match=f"no broker has topic {TOPIC}"):
            await topics.config(TOPIC)
        await topics.delete(TOPIC)  # Once more does no harm.


async def test_an_ordered_topic_has_its_queues_in_the_name_server() -> None:
    async with open_shop() as shop:
        topics = shop.admin.topics
        await topics.set_order("lined_up", {"elsewhere": 1})
        await topics.create("lined_up", queues=3, ordered=True)
        assert await topics.order("lined_up") == {"elsewhere": 1, "broker-a": 3, "broker-b": 3}
        assert all(config.order for config in (await topics.config("lined_up")).values())
        await topics.set_order("lined_up", None)
        assert await topics.order("lined_up") == {}


async def test_stats_have_every_queue_of_every_broker() -> None:
    async with open_shop() as shop:
        before_ms = shop.embedded.clock.now_ms()
        stats = await shop.admin.topics.stats(TOPIC)
        assert {q: (s.min_offset, s.max_offset) for q, s in stats.queues.items()} == dict.fromkeys(
            QUEUES, (0, IN_EACH)
        )
        assert stats.messages == len(QUEUES) * IN_EACH
        assert 0 < stats.last_update_timestamp <= before_ms
        with pytest.raises(TopicNotFound):
            await shop.admin.topics.stats("nothing")


async def test_the_groups_of_a_topic_are_those_online_and_offline() -> None:
    async with open_shop() as shop:
        assert await shop.admin.topics.groups(TOPIC) == [OFFLINE, ONLINE]


async def test_what_no_broker_would_take_is_refused_before_it_is_sent() -> None:
    async with open_shop(online=False) as shop:
        create = shop.admin.topics.create
        with pytest.raises(IllegalArgument, match="only letters, digits"):
            await create("with blank")
        with pytest.raises(IllegalArgument, match="0 queues: a topic has 1 to"):
            await create("made", queues=0)
        with pytest.raises(IllegalArgument, match="permission 8"):
            await create("made", permission=8)
        with pytest.raises(IllegalArgument, match=r"no such broker: nowhere; there are: broker-a"):
            await create("made", brokers=["nowhere"])
        with pytest.raises(InvalidParameter, match="conflict with system topic"):
            await create("TBW102")
        assert await shop.admin.topics.names() == [TOPIC]
