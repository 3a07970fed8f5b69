"""What a producer does when brokers refuse, fail, stall or are gone."""

import asyncio
import re

import pytest

from cometmq.client.cluster import Cluster, Credentials
from cometmq.client.errors import (
    AnswerTimedOut,
    BrokerBusy,
    ClientError,
    ConnectionLost,
    MessageIllegal,
    NoRoute,
    NotStarted,
    SendFailed,
    ServiceNotAvailable,
    TopicNotFound,
    Unreachable,
)
from cometmq.client.message import Message
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.results import SendStatus
from cometmq.protocol.command import Command, Response
from cometmq.protocol.message_queue import MessageQueue
from cometmq.testing import EmbeddedBroker
from tests.client.clusters import ScriptedCluster, scripted, stored, stored_anywhere, until

TOPIC = "orders"
BUSY, ILLEGAL, UNAVAILABLE = Response(2, "busy"), Response(13, "illegal"), Response(14, "no disk")


def unique_keys(cluster: ScriptedCluster) -> set[str]:
    """The unique ids of what was sent."""
    found = (re.search("UNIQ_KEY\x01(\\w+)", c.text_fields()["i"]) for _, c in cluster.sends)
    return {match[1] for match in found if match}


# -- answers that say no -------------------------------------------------------------------------


async def test_a_refused_send_is_tried_at_the_other_broker_under_the_same_id() -> None:
    async with scripted(brokers=2) as cluster:
        cluster.answer = lambda name, c: UNAVAILABLE if name == "broker-a" else cluster.ok(name, c)
        async with Producer(cluster.namesrv, group="shop") as producer:
            results = [await producer.send(Message(TOPIC, b"x")) for _ in range(4)]
            assert {result.queue.broker_name for result in results} == {"broker-b"}
            assert cluster.sent_to().count("broker-b") == 4
            assert "broker-a" in cluster.sent_to()
            assert unique_keys(cluster) == {result.message_id for result in results}


async def test_a_send_gives_up_after_two_more_attempts() -> None:
    async with scripted(brokers=2) as cluster:
        cluster.answer = lambda *_: BUSY
        async with Producer(cluster.namesrv, group="shop") as producer:
            with pytest.raises(SendFailed, match=r"3 attempts .* orders .* code 2: busy") as failed:
                await producer.send(Message(TOPIC, b"x"))
            assert isinstance(failed.value.__cause__, BrokerBusy)
            assert producer.in_flight == 0
        first, second, third = cluster.sent_to()
        assert first == third != second
        assert len(unique_keys(cluster)) == 1


async def test_an_answer_that_another_broker_would_give_too_is_raised_at_once() -> None:
    async with scripted(brokers=2) as cluster:
        cluster.answer = lambda *_: ILLEGAL
        async with Producer(cluster.namesrv, group="shop") as producer:
            with pytest.raises(MessageIllegal, match="make the message smaller"):
                await producer.send(Message(TOPIC, b"x"))
        assert len(cluster.sends) == 1


async def test_what_was_sent_without_waiting_or_to_a_named_queue_is_not_sent_elsewhere() -> None:
    async with scripted(brokers=2) as cluster:
        cluster.answer = lambda *_: UNAVAILABLE
        async with Producer(cluster.namesrv, group="shop") as producer:
            with pytest.raises(ServiceNotAvailable):
                await producer.send_nowait(Message(TOPIC, b"x"))
            with pytest.raises(ServiceNotAvailable):
                await producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, "broker-b", 0))
        assert len(cluster.sends) == 2


async def test_without_retries_there_is_one_attempt() -> None:
    async with scripted(brokers=2) as cluster:
        cluster.answer = lambda *_: BUSY
        async with Producer(cluster.namesrv, group="shop", retries=0) as producer:
            with pytest.raises(BrokerBusy, match="send more slowly"):
                await producer.send(Message(TOPIC, b"x"))
        assert len(cluster.sends) == 1


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
async def test_a_message_that_is_stored_less_safely_has_a_result_that_says_so(
    code: int, status: SendStatus
) -> None:
    async with scripted(brokers=2) as cluster:

        def unsafe(name: str, command: Command) -> Response:
            return Response(code, "stored", cluster.ok(name, command).fields)

        cluster.answer = unsafe
        async with Producer(cluster.namesrv, group="shop") as producer:
            assert (await producer.send(Message(TOPIC, b"x"))).status is status
        assert len(cluster.sends) == 1
        async with Producer(
            cluster.namesrv, group="shop", retry_another_broker_when_not_stored=True
        ) as producer:
            assert (await producer.send(Message(TOPIC, b"x"))).status is status
        assert len(cluster.sends) == 4


async def test_an_answer_that_cannot_be_read_is_an_error() -> None:
    async with scripted() as cluster:
        cluster.answer = lambda *_: Response(fields={"msgId": "0"})
        async with Producer(cluster.namesrv, group="shop") as producer:
            with pytest.raises(ClientError, match=r"broker-a: .*queueId"):
                await producer.send(Message(TOPIC, b"x"))
            assert producer.in_flight == 0


# -- connections ---------------------------------------------------------------------------------


async def test_a_send_survives_a_cut_connection() -> None:
    async with EmbeddedBroker(through_proxy=True) as broker:
        await broker.create_topic(TOPIC, queues=1)
        async with Producer(broker.namesrv, group="shop") as producer:
            await producer.send(Message(TOPIC, b"1"))
            broker.proxy().cut_after(10)  # In the middle of the next answer.
            result = await producer.send(Message(TOPIC, b"2"))
            broker.proxy().cut_after(10)
            nowait = await producer.send_nowait(Message(TOPIC, b"3"))
        found = await stored(broker.address, TOPIC)
    by_id = {message.message_id: message.body for message in found}
    assert by_id[result.message_id] == b"2"
    assert by_id[nowait.message_id] == b"3"
    # Only the answers were lost: both are there twice, under one id each.
    assert [message.body for message in found] == [b"1", b"2", b"2", b"3", b"3"]
    assert len(by_id) == 3


async def test_sends_in_flight_survive_a_broker_that_restarts() -> None:
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC, queues=1)
        async with Producer(broker.namesrv, group="shop", timeout_s=10) as producer:
            acknowledged: list[str] = []

            async def send_on() -> None:
                for number in range(200):
                    try:
                        result = await producer.send(Message(TOPIC, b"%d" % number))
                    except ClientError:
                        await asyncio.sleep(0.02)
                    else:
                        acknowledged.append(result.message_id)

            sending = [asyncio.create_task(send_on()) for _ in range(8)]
            await until(lambda: len(acknowledged) > 200)
            await broker.restart(abrupt=True)
            await asyncio.gather(*sending)
            assert producer.in_flight == 0
        found = {message.message_id for message in await stored(broker.address, TOPIC)}
    assert len(acknowledged) > 800
    assert found >= set(acknowledged)


async def test_a_broker_that_is_gone_is_left_out() -> None:
    async with EmbeddedBroker(brokers=2) as broker:
        await broker.create_topic(TOPIC, queues=2)
        async with Producer(broker.namesrv, group="shop") as producer:
            for _ in range(4):
                await producer.send(Message(TOPIC, b"before"))
            await broker.stop_broker(0)
            results = [await producer.send(Message(TOPIC, b"after")) for _ in range(8)]
            assert {result.queue.broker_name for result in results} == {"broker-b"}
            # The route was asked for again at once, not after half a minute.
            known = producer._outbox.destinations.known
            await until(lambda: (d := known(TOPIC)) is not None and len(d.queues) == 2)


async def test_the_route_is_asked_for_again_as_soon_as_a_broker_fails() -> None:
    async with scripted(brokers=2) as cluster:
        cluster.in_route = ["broker-a"]
        async with Producer(cluster.namesrv, group="shop", retries=0) as producer:
            await producer.send(Message(TOPIC, b"x"))
            cluster.in_route = ["broker-b"]
            cluster.answer = lambda name, c: (
                UNAVAILABLE if name == "broker-a" else cluster.ok(name, c)
            )
            with pytest.raises(ServiceNotAvailable):
                await producer.send(Message(TOPIC, b"x"))
            await until(lambda: cluster.routes_asked == 2)
            assert (await producer.send(Message(TOPIC, b"x"))).queue.broker_name == "broker-b"


async def test_a_named_queue_of_an_unknown_broker_has_no_route() -> None:
    async with scripted() as cluster, Producer(cluster.namesrv, group="shop") as producer:
        with pytest.raises(NoRoute, match="no master of broker broker-z"):
            await producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, "broker-z", 0))


async def test_without_a_name_server_a_send_says_so() -> None:
    async with Producer("127.0.0.1:1", group="shop") as producer:
        with pytest.raises(Unreachable, match="no NameServer answers"):
            await producer.send(Message(TOPIC, b"x"))
        assert producer.in_flight == 0


# -- time ----------------------------------------------------------------------------------------


async def test_a_stalled_broker_costs_the_time_allowed_and_no_more() -> None:
    async with EmbeddedBroker(through_proxy=True) as broker:
        await broker.create_topic(TOPIC, queues=1)
        async with Producer(broker.namesrv, group="shop", timeout_s=0.3) as producer:
            await producer.send(Message(TOPIC, b"1"))
            broker.proxy().stall()
            before = asyncio.get_running_loop().time()
            with pytest.raises(AnswerTimedOut, match=r"within 0\.3 s"):
                await producer.send(Message(TOPIC, b"2"))
            assert 0.25 < asyncio.get_running_loop().time() - before < 2
            with pytest.raises(AnswerTimedOut):
                await producer.send(Message(TOPIC, b"3"), timeout_s=0.05)
            broker.proxy().resume()
            await producer.send(Message(TOPIC, b"4"), timeout_s=5)
        bodies = [m.body for m in await stored_anywhere(broker, TOPIC, 1)]
    assert bodies == [b"1", b"2", b"3", b"4"]


async def test_stopping_ends_what_a_stalled_broker_holds() -> None:
    async with EmbeddedBroker(through_proxy=True) as broker:
        await broker.create_topic(TOPIC, queues=1)
        cluster = Cluster(broker.namesrv, request_timeout_s=0.3)
        producer = Producer(cluster, group="shop", timeout_s=0.3)
        async with producer:
            await producer.send(Message(TOPIC, b"1"))
            broker.proxy().stall()
            held = producer.send_nowait(Message(TOPIC, b"2"), timeout_s=60)
            late = producer.send_nowait(Message("unknown", b"2"), timeout_s=60)
        assert producer.in_flight == 0
        with pytest.raises((ConnectionLost, SendFailed)):
            held.result()
        with pytest.raises((NotStarted, TopicNotFound, ConnectionLost)):
            late.result()


async def test_slow_brokers_are_left_alone_for_a_while() -> None:
    async with scripted(brokers=2) as cluster:

        async def slow(name: str, command: Command) -> Response:
            await asyncio.sleep(0.6 if name == "broker-a" else 0)
            return cluster.ok(name, command)

        cluster.answer = slow
        async with Producer(cluster.namesrv, group="shop", send_latency_fault=True) as producer:
            for _ in range(8):
                await producer.send(Message(TOPIC, b"x"))
        assert cluster.sent_to().count("broker-a") == 1


async def test_requests_are_signed() -> None:
    async with scripted() as cluster:
        signed = Cluster(cluster.namesrv, credentials=Credentials("me", "secret"))
        async with Producer(signed, group="shop") as producer:
            await producer.send(Message(TOPIC, b"x"))
        fields = cluster.sends[0][1].text_fields()
        assert fields["AccessKey"] == "me"
        assert len(fields["Signature"]) == 28
