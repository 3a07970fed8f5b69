"""Operators look up offsets and move groups."""

from datetime import UTC, datetime

import pytest

from cometmq.client.errors import GroupNotFound, IllegalArgument, NoRoute
from cometmq.protocol.message_queue import MessageQueue
from tests.client.shop import IN_EACH, OFFLINE, ONLINE, QUEUES, TOPIC, Shop, open_shop

ENDS = dict.fromkeys(QUEUES, IN_EACH)
BEGINNINGS = dict.fromkeys(QUEUES, 0)


async def send_later(shop: Shop) -> datetime:
    """One more message to every queue; the moment between it and those before."""
    await shop.embedded.advance(60)
    between_ms = shop.embedded.clock.now_ms()
    await shop.embedded.advance(60)
    for queue in QUEUES:
        await shop.send(queue, b"later")
    return datetime.fromtimestamp(between_ms / 1000, UTC)


async def test_the_ends_of_a_queue_are_found() -> None:
    async with open_shop() as shop:
        offsets, queue = shop.admin.offsets, QUEUES[3]
        assert await offsets.min(queue) == 0
        assert await offsets.max(queue) == IN_EACH
        assert await offsets.search(queue, "latest") == IN_EACH
        with pytest.raises(NoRoute, match="topic orders has no queues at broker 'nowhere'"):
            await offsets.min(MessageQueue(TOPIC, "nowhere", 0))


async def test_the_offsets_of_a_moment_are_found_in_all_queues() -> None:
    async with open_shop() as shop:
        between = await send_later(shop)
        offsets = shop.admin.offsets
        assert await offsets.search_topic(TOPIC, between) == ENDS
        assert await offsets.search_topic(TOPIC, 0) == BEGINNINGS
        assert await offsets.search(QUEUES[0], round(between.timestamp() * 1000)) == IN_EACH
        with pytest.raises(IllegalArgument, match="needs a time zone"):
            await offsets.search(QUEUES[0], datetime(2030, 1, 1))
        with pytest.raises(IllegalArgument, match="'newest': earliest, latest or a moment"):
            await offsets.search(QUEUES[0], "newest")  # type: ignore[arg-type]


async def test_committed_offsets_are_read_and_written() -> None:
    async with open_shop() as shop:
        offsets = shop.admin.offsets
        assert await offsets.committed(ONLINE, TOPIC) == dict.fromkeys(QUEUES, 2)
        with pytest.raises(GroupNotFound, match="Group new not exist"):
            await offsets.commit("new", {QUEUES[1]: 3})
        await shop.admin.groups.create("new")
        await offsets.commit("new", {QUEUES[1]: 3})
        assert await offsets.committed("new", TOPIC) == {QUEUES[1]: 3}
        with pytest.raises(NoRoute, match="there is no queue"):
            await offsets.commit("new", {MessageQueue(TOPIC, "broker-a", 9): 3})


@pytest.mark.parametrize(("to", "wanted"), [("earliest", BEGINNINGS), ("latest", ENDS)])
async def test_a_group_goes_on_at_an_end(to: str, wanted: dict[MessageQueue, int]) -> None:
    async with open_shop() as shop:
        offsets = shop.admin.offsets
        for group in (OFFLINE, ONLINE):
            assert await offsets.reset(group, TOPIC, to) == wanted  # type: ignore[arg-type]
            assert await offsets.committed(group, TOPIC) == wanted


async def test_a_commit_tells_in_which_queues_a_reset_stands() -> None:
    async with open_shop() as shop:
        offsets = shop.admin.offsets
        assert await offsets.commit(OFFLINE, dict.fromkeys(QUEUES, 2)) == frozenset()
        await offsets.set(OFFLINE, {QUEUES[0]: 1, QUEUES[3]: 0})
        assert await offsets.commit(OFFLINE, ENDS) == {QUEUES[0], QUEUES[3]}
        assert await offsets.committed(OFFLINE, TOPIC) == {**ENDS, QUEUES[0]: 1, QUEUES[3]: 0}


async def test_a_group_goes_on_at_a_moment() -> None:
    async with open_shop() as shop:
        between = await send_later(shop)
        await shop.admin.offsets.reset(OFFLINE, TOPIC, "latest")
        assert await shop.admin.offsets.reset(OFFLINE, TOPIC, between) == ENDS
        assert await shop.admin.offsets.committed(OFFLINE, TOPIC) == ENDS
        with pytest.raises(GroupNotFound, match="Group nobody does not exist"):
            await shop.admin.offsets.reset("nobody", TOPIC, between)


async def test_a_group_skips_what_is_there() -> None:
    async with open_shop() as shop:
        assert await shop.admin.offsets.skip(OFFLINE, TOPIC) == ENDS
        assert (await shop.admin.groups.progress(OFFLINE, TOPIC)).lag == 0


async def test_a_group_goes_on_at_an_offset_of_one_queue() -> None:
    async with open_shop() as shop:
        offsets = shop.admin.offsets
        await offsets.set(OFFLINE, {QUEUES[0]: 3, QUEUES[3]: 0})
        wanted = {**dict.fromkeys(QUEUES, 1), QUEUES[0]: 3, QUEUES[3]: 0}
        assert await offsets.committed(OFFLINE, TOPIC) == wanted
        with pytest.raises(IllegalArgument, match="offset 4 is not in 0 to 3"):
            await offsets.set(OFFLINE, {QUEUES[1]: 2, QUEUES[2]: 4})
        assert await offsets.committed(OFFLINE, TOPIC) == wanted


async def test_a_group_gets_the_offsets_of_another() -> None:
    async with open_shop() as shop:
        await shop.admin.offsets.clone(OFFLINE, "copy", TOPIC)
        copied = await shop.admin.offsets.committed("copy", TOPIC)
        assert copied == dict.fromkeys(QUEUES, 1)
