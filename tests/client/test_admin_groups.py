"""Operators look at groups and their members, and change groups."""

import pytest

from cometmq.client.errors import ConsumerNotOnline, GroupNotFound, IllegalArgument
from tests.client.shop import (
    BROKERS,
    CLIENT_ID,
    IN_EACH,
    OFFLINE,
    ONLINE,
    QUEUES,
    SELLERS,
    TOPIC,
    open_shop,
)


async def test_groups_are_listed_without_those_of_the_system() -> None:
    async with open_shop() as shop:
        assert await shop.admin.groups.names() == [OFFLINE, ONLINE]
        assert "TOOLS_CONSUMER" in await shop.admin.groups.names(internal=True)


async def test_a_group_is_created_and_changed_at_all_brokers() -> None:
    async with open_shop() as shop:
        groups = shop.admin.groups
        await groups.create("made", retry_max_times=7, retry_queue_nums=2)
        await groups.update("made", consume_enable=False)
        configs = await groups.config("made")
        assert list(configs) == list(BROKERS)
        for config in configs.values():
            assert (config.retry_max_times, config.retry_queue_nums) == (7, 2)
            assert not config.consume_enable
        await groups.create("made")
        assert (await groups.config("made"))["broker-a"].retry_max_times == 16


async def test_a_setting_that_is_none_or_of_another_kind_is_refused() -> None:
    async with open_shop(online=False) as shop:
        groups = shop.admin.groups
        with pytest.raises(IllegalArgument, match="no setting of a group: retries; there are: con"):
            await groups.create("made", retries=3)
        with pytest.raises(IllegalArgument, match="no setting of a group: group_name"):
            await groups.update(OFFLINE, group_name="other")
        with pytest.raises(IllegalArgument, match="retryMaxTimes"):
            await groups.create("made", retry_max_times="many")
        with pytest.raises(GroupNotFound, match="no broker has group made"):
            await groups.config("made")


async def test_a_deleted_group_loses_offsets_and_topics() -> None:
    async with open_shop() as shop:
        groups, topics = shop.admin.groups, shop.admin.topics
        await topics.create(f"%RETRY%{OFFLINE}", queues=1)
        await topics.create(f"%DLQ%{OFFLINE}", queues=1)
        await groups.delete(OFFLINE)
        assert await groups.names() == [ONLINE]
        assert await shop.admin.offsets.committed(OFFLINE, TOPIC) == {}
        assert not {f"%RETRY%{OFFLINE}", f"%DLQ%{OFFLINE}"} & set(await topics.names(internal=True))


async def test_a_deleted_group_keeps_what_it_is_to_keep() -> None:
    async with open_shop() as shop:
        await shop.admin.topics.create(f"%DLQ%{OFFLINE}", queues=1)
        await shop.admin.groups.delete(OFFLINE, keep_offsets=True, keep_topics=True)
        kept = await shop.admin.offsets.committed(OFFLINE, TOPIC)
        assert kept == dict.fromkeys(QUEUES, 1)
        assert f"%DLQ%{OFFLINE}" in await shop.admin.topics.names(internal=True)


async def test_progress_has_every_queue_and_the_lag() -> None:
    async with open_shop() as shop:
        progress = await shop.admin.groups.progress(OFFLINE)
        found = {q: (p.broker_offset, p.consumer_offset) for q, p in progress.queues.items()}
        assert found == dict.fromkeys(QUEUES, (IN_EACH, 1))
        assert progress.topics == [TOPIC]
        assert progress.lag == len(QUEUES) * (IN_EACH - 1)
        assert progress.in_flight == 0
        assert all(queue.last_timestamp > 0 for queue in progress.queues.values())
        of_topic = await shop.admin.groups.progress(ONLINE, TOPIC)
        assert of_topic.lag == len(QUEUES)
        nobody = await shop.admin.groups.progress("nobody")
        assert (nobody.queues, nobody.lag) == ({}, 0)


async def test_the_topics_of_a_group_are_those_with_offsets() -> None:
    async with open_shop() as shop:
        assert await shop.admin.groups.topics(OFFLINE) == [TOPIC]
        assert await shop.admin.groups.topics("nobody") == []


async def test_a_time_span_tells_where_a_group_is() -> None:
    async with open_shop() as shop:
        spans = await shop.admin.groups.time_spans(OFFLINE, TOPIC)
        assert [span.message_queue for span in spans] == QUEUES
        for span in spans:
            assert 0 < span.min_time_stamp <= span.consume_time_stamp <= span.max_time_stamp
            assert span.delay_time >= 0


async def test_members_are_told_once_with_what_they_want() -> None:
    async with open_shop() as shop:
        members = await shop.admin.members.of_group(ONLINE)
        (member,) = members.connection_set
        assert (member.client_id, member.language) == (CLIENT_ID, "PYTHON")
        assert member.client_addr.startswith("127.0.0.1:")
        assert members.subscription_table[TOPIC].tags_set == ["even", "odd"]
        assert (members.consume_type, members.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
        subscription = await shop.admin.groups.subscription(ONLINE, TOPIC)
        assert subscription is not None
        assert subscription.sub_string == "even || odd"
        assert await shop.admin.groups.subscription(OFFLINE, TOPIC) is None


async def test_a_group_without_members_is_said_so() -> None:
    async with open_shop(online=False) as shop:
        with pytest.raises(ConsumerNotOnline, match=f"group {ONLINE} has no member"):
            await shop.admin.members.of_group(ONLINE)


async def test_a_member_tells_what_it_is_doing() -> None:
    async with open_shop() as shop:
        info = await shop.admin.members.running_info(ONLINE, CLIENT_ID)
        assert info.properties == {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"}
        assert [subscription.sub_string for subscription in info.subscriptions] == ["even || odd"]
        assert list(info.queues) == QUEUES
        state = info.queues[QUEUES[0]]
        assert (state.commit_offset, state.cached_msg_count, state.locked) == (2, 1, True)
        assert (info.topics[TOPIC].pull_rt, info.topics[TOPIC].consume_failed_msgs) == (1.5, 3)
        assert info.stacks == ""
        info = await shop.admin.members.running_info(ONLINE, CLIENT_ID, stacks=True)
        assert info.stacks == "main thread: {waits}:"
        with pytest.raises(ConsumerNotOnline, match=f"no member nobody; there are: {CLIENT_ID}"):
            await shop.admin.members.running_info(ONLINE, "nobody")


async def test_producers_are_told_by_their_groups() -> None:
    async with open_shop() as shop:
        (member,) = await shop.admin.members.producers_of(SELLERS)
        assert member.client_id == CLIENT_ID
        assert await shop.admin.members.producers_of("nobody") == []
        everybody = await shop.admin.members.producers()
        assert list(everybody) == [SELLERS]
        (producer,) = everybody[SELLERS]
        assert producer.client_id == CLIENT_ID
        assert producer.remote_ip.startswith("/127.0.0.1:")
        assert producer.last_update_timestamp > 0
