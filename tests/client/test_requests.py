"""Requests: a message is sent, somebody consumes it, and the reply finds who asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cometmq.client.errors import AnswerTimedOut, BrokerFailed, IllegalArgument, TooManyInFlight
from cometmq.client.message import Message
from cometmq.client.producer.producer import Producer
from cometmq.client.received import ReceivedMessage
from cometmq.testing import EmbeddedBroker
from tests.client.clusters import arrived, stored

TOPIC = "questions"


@asynccontextmanager
async def two_producers(**options: int) -> AsyncIterator[tuple[EmbeddedBroker, Producer, Producer]]:
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC, queues=1)
        async with (
            Producer(broker.namesrv, group="askers", **options) as asker,  # type: ignore[arg-type]
            Producer(broker.namesrv, group="repliers") as replier,
        ):
            yield broker, asker, replier


async def next_request(broker: EmbeddedBroker, number: int = 0) -> ReceivedMessage:
    return (await arrived(broker.address, TOPIC, number + 1))[number]


async def test_a_request_gets_its_reply() -> None:
    async with two_producers() as (broker, asker, replier):
        asked = asyncio.create_task(
            asker.request(Message(TOPIC, b"six times seven?", tags="sums"), timeout_s=10)
        )
        request = await next_request(broker)
        assert (request.body, request.tags) == (b"six times seven?", "sums")
        assert request.properties["REPLY_TO_CLIENT"] == asker.client_id
        assert request.properties["TTL"] == "10000"
        sent = await replier.reply(request, b"42")
        reply = await asked
        assert (reply.body, reply.topic) == (b"42", "DefaultCluster_REPLY_TOPIC")
        assert reply.properties["CORRELATION_ID"] == request.properties["CORRELATION_ID"]
        assert reply.message_id == sent.message_id
        assert str(reply.store_host) == broker.address
        assert int(reply.properties["ARRIVE_TIME"]) >= reply.born_timestamp
        assert asker.in_flight == 0


async def test_replies_find_their_requests_in_any_order_and_packed() -> None:
    async with two_producers() as (broker, asker, replier):
        asked = [
            asyncio.create_task(asker.request(Message(TOPIC, b"%d" % n), timeout_s=10))
            for n in range(10)
        ]
        requests = await arrived(broker.address, TOPIC, 10)
        for request in reversed(requests):
            await replier.reply(request, request.body * 5000)
        replies = await asyncio.gather(*asked)
    assert [reply.body for reply in replies] == [b"%d" % n * 5000 for n in range(10)]
    assert len(replies[0].stored_body) < 5000


async def test_a_request_without_a_reply_ends_in_time_and_a_late_reply_is_dropped() -> None:
    async with two_producers() as (broker, asker, replier):
        with pytest.raises(AnswerTimedOut, match=r"no reply within 0\.2 s"):
            await asker.request(Message(TOPIC, b"anybody?"), timeout_s=0.2)
        request = await next_request(broker)
        await replier.reply(request, b"too late")
        assert asker._requests._waiting == {}


async def test_a_reply_to_somebody_who_left_fails() -> None:
    async with two_producers() as (broker, asker, replier):
        asked = asyncio.create_task(asker.request(Message(TOPIC, b"x"), timeout_s=10))
        request = await next_request(broker)
        asked.cancel()
        await asker.stop()
        with pytest.raises(BrokerFailed, match="is not connected to this broker"):
            await replier.reply(request, b"nobody is there")


async def test_what_is_no_request_cannot_be_replied_to() -> None:
    async with two_producers() as (broker, asker, replier):
        await asker.send(Message(TOPIC, b"just saying"))
        (message,) = await stored(broker.address, TOPIC)
        with pytest.raises(IllegalArgument, match="no CORRELATION_ID, REPLY_TO_CLIENT"):
            await replier.reply(message, b"what?")


async def test_only_so_many_requests_wait_for_replies() -> None:
    async with two_producers(max_in_flight=2) as (broker, asker, _):
        asked = [
            asyncio.create_task(asker.request(Message(TOPIC, b"x"), timeout_s=60)) for _ in "ab"
        ]
        await arrived(broker.address, TOPIC, 2)
        with pytest.raises(TooManyInFlight, match="2 requests wait"):
            await asker.request(Message(TOPIC, b"x"))
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        assert asker._requests._waiting == {}
