"""Operators look for messages, read queues, and hand a message to a consumer."""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime

import pytest

from cometmq.client.admin.traces import Trace, traces_in
from cometmq.client.errors import BrokerFailed, IllegalArgument, NotFound, TopicNotFound
from cometmq.protocol.message_queue import MessageQueue
from tests.client.shop import (
    CLIENT_ID,
    IN_EACH,
    ONLINE,
    QUEUES,
    TOPIC,
    body_of,
    open_shop,
)

SECOND = QUEUES[2]


async def test_a_message_is_found_by_its_place() -> None:
    async with open_shop() as shop:
        unique, told = await shop.send(SECOND, b"here", KEYS="k", TAGS="t")
        message = await shop.admin.messages.view(told["msgId"])
        assert (message.body, message.keys, message.tags) == (b"here", ["k"], "t")
        assert (message.queue, message.queue_offset) == (SECOND, IN_EACH)
        assert (message.message_id, message.offset_message_id) == (unique, told["msgId"])
        same = await shop.admin.messages.at(SECOND, IN_EACH)
        assert (same.body, same.message_id) == (b"here", unique)


async def test_what_is_not_there_is_said_so() -> None:
    async with open_shop() as shop:
        messages = shop.admin.messages
        _, told = await shop.send(SECOND, b"here")
        with pytest.raises(NotFound, match=f"there is no message offset {IN_EACH + 1} of"):
            await messages.at(SECOND, IN_EACH + 1)
        nowhere = told["msgId"][:-16] + f"{1 << 40:016X}"
        with pytest.raises(BrokerFailed, match="can not find message by the offset"):
            await messages.view(nowhere)
        with pytest.raises(IllegalArgument, match="a unique id is looked up by `by_id`"):
            await messages.view("no id")
        assert await messages.by_id(TOPIC, "0" * 32) == []
        assert await messages.by_key(TOPIC, "no such key") == []
        with pytest.raises(TopicNotFound):
            await messages.by_key("nothing", "all")


async def test_messages_are_found_by_their_producers_id() -> None:
    async with open_shop() as shop:
        unique, _ = await shop.send(QUEUES[3], b"once")
        (message,) = await shop.admin.messages.by_id(TOPIC, unique)
        assert (message.body, message.queue) == (b"once", QUEUES[3])
        await shop.send(QUEUES[0], b"again", UNIQ_KEY=unique)
        found = await shop.admin.messages.by_id(TOPIC, unique)
        assert {m.body for m in found} == {b"once", b"again"}


async def test_messages_are_found_by_key_at_all_brokers() -> None:
    async with open_shop() as shop:
        messages = shop.admin.messages
        found = await messages.by_key(TOPIC, "all")
        assert {m.body for m in found} == {body_of(q, n) for q in QUEUES for n in range(IN_EACH)}
        assert [m.store_timestamp for m in found] == sorted(m.store_timestamp for m in found)
        (one,) = await messages.by_key(TOPIC, "broker-b-1-2")
        assert one.body == body_of(QUEUES[3], 2)
        assert len(await messages.by_key(TOPIC, "all", limit=2)) == 4
        with pytest.raises(IllegalArgument, match="limit 65: 1 to 64 is expected"):
            await messages.by_key(TOPIC, "all", limit=65)


async def test_messages_are_found_by_key_and_time_to_the_millisecond() -> None:
    async with open_shop() as shop:
        messages, clock = shop.admin.messages, shop.embedded.clock
        await shop.embedded.advance(0.1)
        between = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
        await shop.embedded.advance(0.1)
        await shop.send(SECOND, b"later", KEYS="all")
        late = await messages.by_key(TOPIC, "all", begin=between)
        early = await messages.by_key(TOPIC, "all", end=between)
        assert [m.body for m in late] == [b"later"]
        assert len(early) == len(QUEUES) * IN_EACH
        at_last = await messages.by_key(TOPIC, "all", begin=late[0].store_timestamp)
        before_last = await messages.by_key(TOPIC, "all", end=late[0].store_timestamp)
        assert (len(at_last), len(before_last)) == (1, len(early))


async def test_a_queue_is_read_and_nothing_is_committed() -> None:
    async with open_shop() as shop:
        messages = shop.admin.messages
        for number in range(100):
            await shop.send(SECOND, b"%d" % number, TAGS="even" if number % 2 == 0 else "odd")
        everything = [m.queue_offset async for m in messages.read(SECOND)]
        assert everything == list(range(IN_EACH + 100))
        some = [m.queue_offset async for m in messages.read(SECOND, start=2, stop=40)]
        assert some == list(range(2, 40))
        odd = [m.body async for m in messages.read(SECOND, start=IN_EACH, tags="odd")]
        assert odd == [b"%d" % number for number in range(1, 100, 2)]
        assert await shop.admin.offsets.committed("TOOLS_CONSUMER", TOPIC) == {}


async def test_reading_ends_where_the_queue_ended_when_it_began() -> None:
    async with open_shop() as shop:
        read = []
        async with aclosing(shop.admin.messages.read(SECOND)) as messages:
            async for message in messages:
                read.append(message.queue_offset)
                await shop.send(SECOND, b"more")
        assert read == list(range(IN_EACH))


async def test_an_empty_queue_is_read_to_its_end() -> None:
    async with open_shop() as shop:
        await shop.admin.topics.create("empty", queues=1)
        queue = MessageQueue("empty", "broker-a", 0)
        assert [m async for m in shop.admin.messages.read(queue)] == []


async def test_queues_that_are_closed_to_readers_are_left_out() -> None:
    async with open_shop() as shop:
        await shop.admin.topics.update(TOPIC, read_queues=1)
        bodies = [m.body async for m in shop.admin.messages.read_topic(TOPIC)]
        open_ones = [queue for queue in QUEUES if queue.queue_id == 0]
        assert bodies == [body_of(q, n) for q in open_ones for n in range(IN_EACH)]


async def test_a_topic_is_read_from_one_moment_to_another() -> None:
    async with open_shop() as shop:
        messages, clock = shop.admin.messages, shop.embedded.clock
        bodies = [m.body async for m in messages.read_topic(TOPIC)]
        assert bodies == [body_of(q, n) for q in QUEUES for n in range(IN_EACH)]
        moments = []
        for body in (b"first", b"second"):
            await shop.embedded.advance(60)
            moments.append(clock.now_ms())
            await shop.embedded.advance(60)
            for queue in QUEUES:
                await shop.send(queue, body)
        read = [m.body async for m in messages.read_topic(TOPIC, begin=moments[0], end=moments[1])]
        assert read == [b"first"] * len(QUEUES)
        assert len([m async for m in messages.read_topic(TOPIC, begin=moments[1])]) == len(QUEUES)


async def test_a_message_is_handed_to_one_consumer() -> None:
    async with open_shop() as shop:
        _, told = await shop.send(SECOND, b"for you")
        consumed = await shop.admin.messages.consume_directly(ONLINE, CLIENT_ID, told["msgId"])
        assert (consumed.consume_result, consumed.spent_time_mills) == ("CR_SUCCESS", 7)
        assert shop.member.handed_over == [b"for you"]
        with pytest.raises(BrokerFailed, match="<nobody> not online"):
            await shop.admin.messages.consume_directly(ONLINE, "nobody", told["msgId"])


PUB = "Pub\x01100\x01DefaultRegion\x01sellers\x01orders\x01ID1\x01t\x01k\x01host\x0110\x015\x010"
SUB_BEFORE = "SubBefore\x01200\x01null\x01billing\x01R1\x01ID1\x010\x01k"
SUB_AFTER = "SubAfter\x01R1\x01ID1\x0112\x01false\x01k\x013"


async def test_what_clients_reported_of_a_message_is_found_in_order() -> None:
    async with open_shop() as shop:
        await shop.admin.topics.create("traces", queues=2)
        other = PUB.replace("ID1", "ID2") + "\x01OFFSETID\x01true\x02"
        consumed = f"{SUB_BEFORE}\x02{SUB_AFTER}\x01210\x01billing\x02"
        at_a, at_b = (MessageQueue("traces", broker, 0) for broker in ("broker-a", "broker-b"))
        await shop.send(at_a, consumed.encode(), KEYS="ID1 k")
        await shop.send(at_b, (other + PUB + "\x01true\x02").encode(), KEYS="ID1 ID2 k")
        found = await shop.admin.messages.trace("ID1", trace_topic="traces")
        assert found == [
            Trace("Pub", "ID1", 100, "sellers", "orders", "k", 5, True),
            Trace("SubBefore", "ID1", 200, "billing", keys="k", request_id="R1"),
            Trace("SubAfter", "ID1", 210, "billing", "", "k", 12, False, "R1"),
        ]


def test_a_line_of_another_kind_or_cut_is_left_out_of_a_trace() -> None:
    ended = "EndTransaction\x01300\x01r\x01sellers\x01orders\x01ID1\x01t\x01k\x01host\x013\x01T1"
    lines = f"Other\x01x\x02Pub\x01notime\x02{ended}\x01COMMIT_MESSAGE\x01true\x02"
    assert traces_in(lines.encode()) == [
        Trace("EndTransaction", "ID1", 300, "sellers", "orders", "k", state="COMMIT_MESSAGE")
    ]
    assert traces_in(f"{SUB_AFTER}\x02\x02".encode()) == [
        Trace("SubAfter", "ID1", 0, "", "", "k", 12, False, "R1")
    ]
    assert traces_in(b"\xff\x01") == []


async def test_a_queue_is_followed_as_messages_come() -> None:
    async with open_shop() as shop:
        async with aclosing(shop.admin.messages.follow(SECOND, start=IN_EACH - 1)) as messages:
            assert (await anext(messages)).queue_offset == IN_EACH - 1
            waiting = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(0)
            await shop.send(SECOND, b"new", TAGS="t")
            assert (await waiting).body == b"new"
        async with aclosing(
            shop.admin.messages.follow(SECOND, start=0, tags="other || t")
        ) as messages:
            assert (await anext(messages)).body == b"new"
