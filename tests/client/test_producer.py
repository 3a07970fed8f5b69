"""What a producer sends is there, in the queue that was meant, as it was meant."""

import asyncio
import datetime as dt
import os
import random

import pytest

from cometmq.client.consumer.options import (
    PullConsumerOptions,
    PullKeywords,
    PushKeywords,
    PushOptions,
)
from cometmq.client.errors import (
    IllegalArgument,
    NoPermission,
    NotStarted,
    TooManyInFlight,
    TopicNotFound,
)
from cometmq.client.message import Message
from cometmq.client.producer.message_ids import unique_ids
from cometmq.client.producer.options import ProducerKeywords, ProducerOptions
from cometmq.client.producer.packing import Compression
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.results import SendResult, SendStatus
from cometmq.client.selectors import by_hash
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Request
from cometmq.protocol.flags import COMPRESSED
from cometmq.protocol.message_id import parse_offset_id
from cometmq.protocol.message_queue import MessageQueue
from cometmq.testing import EmbeddedBroker, ManualClock
from cometmq.transport.dial import connect
from tests.client.clusters import arrived, scripted, stored, stored_anywhere, until

TOPIC = "orders"


# -- one message ---------------------------------------------------------------------------------


async def test_a_message_is_stored_as_it_was_sent() -> None:
    clock = ManualClock()
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC, queues=1)
        async with Producer(broker.namesrv, group="shop", clock=clock) as producer:
            message = Message(
                TOPIC, b"two apples", tags="fruit", keys=["k1", "k2"], properties={"colour": "rød"},
                flag=7,
            )  # fmt: skip
            result = await producer.send(message)
        (found,) = await stored(address := broker.address, TOPIC)
    assert found.body == b"two apples"
    assert (found.tags, found.keys, found.flag) == ("fruit", ["k1", "k2"], 7)
    assert found.properties["colour"] == "rød"
    assert found.born_timestamp == clock.current_ms
    assert result == SendResult(
        message_id=found.message_id,
        offset_message_id=found.offset_message_id,
        queue=MessageQueue(TOPIC, "broker-a", 0),
        queue_offset=0,
        status=SendStatus.OK,
        transaction_id=found.message_id,
    )
    assert str(parse_offset_id(result.offset_message_id)[0]) == address


async def test_messages_go_round_the_queues_of_all_brokers() -> None:
    async with EmbeddedBroker(brokers=2) as broker:
        await broker.create_topic(TOPIC, queues=2)
        async with Producer(broker.namesrv, group="shop") as producer:
            results = [await producer.send(Message(TOPIC, b"x")) for _ in range(8)]
    queues = [(result.queue.broker_name, result.queue.queue_id) for result in results]
    assert sorted(queues[:4]) == [
        ("broker-a", 0),
        ("broker-a", 1),
        ("broker-b", 0),
        ("broker-b", 1),
    ]
    assert queues[4:] == queues[:4]


async def test_a_message_goes_to_the_queue_that_its_sender_names() -> None:
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC)
        async with Producer(broker.namesrv, group="shop") as producer:
            queue = MessageQueue(TOPIC, "broker-a", 3)
            results = [await producer.send(Message(TOPIC, b"x"), queue=queue) for _ in range(3)]
            with pytest.raises(IllegalArgument, match="a queue of orders for a message to others"):
                await producer.send(Message("others", b"x"), queue=queue)
            with pytest.raises(IllegalArgument, match="exclude each other"):
                await producer.send(Message(TOPIC, b"x"), queue=queue, selector=by_hash, key="k")
    assert [(r.queue, r.queue_offset) for r in results] == [(queue, 0), (queue, 1), (queue, 2)]


async def test_a_selector_picks_the_queue_and_what_it_raises_is_raised() -> None:
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC)
        async with Producer(broker.namesrv, group="shop") as producer:
            message = Message(TOPIC, b"x")
            last = await producer.send(message, selector=lambda queues, *_: queues[-1])
            first = await producer.send(message, selector=by_hash, key=0)
            with pytest.raises(TypeError, match="a key is a str or an int"):
                await producer.send(message, selector=by_hash, key=1.5)
            with pytest.raises(IllegalArgument, match="a key without a selector"):
                await producer.send(message, key="k")
            assert producer.in_flight == 0
    assert (last.queue.queue_id, first.queue.queue_id) == (3, 0)


async def test_messages_with_one_sharding_key_are_in_one_queue_in_order() -> None:
    async with EmbeddedBroker(brokers=2) as broker:
        await broker.create_topic(TOPIC)
        async with Producer(broker.namesrv, group="shop") as producer:
            futures = [
                producer.send_nowait(Message(TOPIC, b"%d" % number, sharding_key="order-17"))
                for number in range(100)
            ]
            await asyncio.sleep(0)  # The first ones are still looking for their broker.
            futures += [
                producer.send_nowait(Message(TOPIC, b"%d" % number, sharding_key="order-17"))
                for number in range(100, 200)
            ]
            results = await asyncio.gather(*futures)
        found = await stored_anywhere(broker, TOPIC)
    assert len({result.queue for result in results}) == 1
    assert [message.body for message in found] == [b"%d" % number for number in range(200)]


async def test_one_way_messages_arrive() -> None:
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC, queues=1)
        async with Producer(broker.namesrv, group="shop") as producer:
            for number in range(3000):
                await producer.send_oneway(Message(TOPIC, b"%d" % number + bytes(1000)))
            found = await arrived(broker.address, TOPIC, 3000)
            assert producer.in_flight == 0
    assert [int(message.body[:4].rstrip(b"\0")) for message in found] == list(range(3000))


# -- without waiting -----------------------------------------------------------------------------


async def test_a_send_without_waiting_tells_by_future_and_callback() -> None:
    done: list[asyncio.Future[SendResult]] = []
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC)
        async with Producer(broker.namesrv, group="shop") as producer:
            future = producer.send_nowait(Message(TOPIC, b"x"), callback=done.append)
            assert not future.done()
            assert (await future).status is SendStatus.OK
            await until(lambda: done == [future])


async def test_no_more_is_in_flight_than_allowed() -> None:
    async with scripted() as cluster:
        open_sends: list[asyncio.Future[None]] = []

        async def hold(name: str, command: object) -> object:
            released = asyncio.get_running_loop().create_future()
            open_sends.append(released)
            await released
            return cluster.ok(name, command)  # type: ignore[arg-type]

        cluster.answer = hold  # type: ignore[assignment]
        async with Producer(cluster.namesrv, group="shop", max_in_flight=2) as producer:
            first = producer.send_nowait(Message(TOPIC, b"1"))
            second = producer.send_nowait(Message(TOPIC, b"2"))
            with pytest.raises(TooManyInFlight, match="2 messages with 2 bytes wait"):
                producer.send_nowait(Message(TOPIC, b"3"))
            waits = asyncio.create_task(producer.send(Message(TOPIC, b"4")))
            gives_up = asyncio.create_task(producer.send(Message(TOPIC, b"5")))
            ready = asyncio.create_task(producer.ready())
            await until(lambda: len(open_sends) == 2)
            assert [len(cluster.sends), producer.in_flight] == [2, 2]
            gives_up.cancel()
            open_sends[0].set_result(None)
            assert (await first).status is SendStatus.OK
            await until(lambda: len(open_sends) == 3)
            assert not ready.done()
            open_sends[1].set_result(None)
            await ready
            open_sends[2].set_result(None)
            assert (await waits).status is SendStatus.OK
            assert (await second).status is SendStatus.OK
            assert producer.in_flight == 0
        assert [command.body for _, command in cluster.sends] == [b"1", b"2", b"4"]


async def test_bytes_in_flight_are_bounded_but_a_large_message_goes_alone() -> None:
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC, queues=1)
        async with Producer(broker.namesrv, group="shop", max_in_flight_bytes=1000) as producer:
            large = producer.send_nowait(Message(TOPIC, bytes(2000)))
            with pytest.raises(TooManyInFlight):
                producer.send_nowait(Message(TOPIC, b"x"))
            await asyncio.gather(large, producer.send(Message(TOPIC, b"x")))
        assert [len(m.body) for m in await stored(broker.address, TOPIC)] == [2000, 1]


async def test_a_cancelled_send_gives_its_room_back_when_the_answer_comes() -> None:
    async with scripted() as cluster:
        async with Producer(cluster.namesrv, group="shop") as producer:
            await producer.send(Message(TOPIC, b"x"))
            send = asyncio.create_task(producer.send(Message(TOPIC, b"x")))
            await asyncio.sleep(0)
            assert producer.in_flight == 1
            send.cancel()
            with pytest.raises(asyncio.CancelledError):
                await send
            await until(lambda: producer.in_flight == 0)
        assert len(cluster.sends) == 2


# -- packed bodies -------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
async def test_large_bodies_travel_packed(compression: Compression) -> None:
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC, queues=1)
        noise = random.Random(1).randbytes(5000)
        async with Producer(broker.namesrv, group="shop", compression=compression) as producer:
            for body in (b"a" * 4095, b"a" * 4096, noise):
                await producer.send(Message(TOPIC, body))
        found = await stored(broker.address, TOPIC)
    assert [m.body for m in found] == [b"a" * 4095, b"a" * 4096, noise]
    assert [m.sys_flag & COMPRESSED for m in found] == [0, COMPRESSED, 0]
    assert len(found[1].stored_body) < 200


async def test_without_compression_bodies_travel_as_they_are() -> None:
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC, queues=1)
        async with Producer(broker.namesrv, group="shop", compression=None) as producer:
            await producer.send(Message(TOPIC, b"a" * 9000))
        (found,) = await stored(broker.address, TOPIC)
    assert found.stored_body == b"a" * 9000


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message(TOPIC, b""), "without a body"),
        (Message(TOPIC, "text"), "a body is bytes, not str"),  # type: ignore[arg-type]
        (Message(TOPIC, bytes(101)), "a body of 101 bytes"),
        (Message("no topic", b"x"), "only letters, digits"),
        (Message(TOPIC, b"x", flag=2**31), "a number of 32 bits"),
        (Message(TOPIC, b"x", tags="a\x01b"), "separator"),
        (Message(TOPIC, b"x", properties={"UNIQ_KEY": "1"}), "RocketMQ uses UNIQ_KEY itself"),
        (Message(TOPIC, b"x", properties={"p": "v" * 32700}), "properties of 327"),
        (Message(TOPIC, b"x", properties={"p": "\ud800"}), "UTF-8"),
        (Message(TOPIC, b"x", delay_level=19), "delay level 19"),
        (Message(TOPIC, b"x", delay_level=1, delay=dt.timedelta(1)), "set one of"),
    ],
)
async def test_a_message_that_no_broker_would_take_is_refused_at_once(
    message: Message, reason: str
) -> None:
    async with Producer("127.0.0.1:1", group="shop", max_message_bytes=100,
                        batch_bytes_max=100) as producer:  # fmt: skip
        with pytest.raises(IllegalArgument, match=reason):
            producer.send_nowait(message)
        with pytest.raises(IllegalArgument, match=reason):
            await producer.send(message)
        assert producer.in_flight == 0


async def test_a_producer_that_does_not_run_says_so() -> None:
    producer = Producer("127.0.0.1:1", group="shop")
    with pytest.raises(NotStarted, match="start the producer first"):
        producer.send_nowait(Message(TOPIC, b"x"))
    async with producer:
        pass
    with pytest.raises(NotStarted):
        await producer.send(Message(TOPIC, b"x"))


@pytest.mark.parametrize(
    "options",
    [{"max_in_flight": 0}, {"timeout_s": 0}, {"retries": -1}, {"batch_bytes_max": 5 * 1024**2}],
)
def test_options_that_make_no_sense_are_refused(options: ProducerKeywords) -> None:
    with pytest.raises(IllegalArgument):
        Producer("127.0.0.1:1", group="shop", **options)


def test_group_and_compression_are_checked() -> None:
    with pytest.raises(IllegalArgument, match="group 'a b'"):
        Producer("127.0.0.1:1", group="a b")
    with pytest.raises(IllegalArgument, match="compression 'rar'"):
        Producer("127.0.0.1:1", group="shop", compression="rar")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keywords", "options"),
    [
        (ProducerKeywords, ProducerOptions),
        (PushKeywords, PushOptions),
        (PullKeywords, PullConsumerOptions),
    ],
)
def test_every_option_may_be_given_by_name(keywords: type, options: type) -> None:
    assert keywords.__annotations__ == options.__annotations__


def test_an_option_by_name_goes_before_the_same_among_others() -> None:
    shared = ProducerOptions(timeout_s=9.0, retries=7)
    producer = Producer("127.0.0.1:1", group="shop", options=shared, retries=1)
    assert producer.options == ProducerOptions(timeout_s=9.0, retries=1)


# -- topics --------------------------------------------------------------------------------------


async def test_a_new_topic_comes_into_being_with_its_first_message() -> None:
    async with EmbeddedBroker() as broker:
        async with Producer(broker.namesrv, group="shop", default_topic_queues=2) as producer:
            results = [await producer.send(Message("fresh", b"%d" % n)) for n in range(4)]
            assert {result.queue.queue_id for result in results} == {0, 1}
            outbox = producer._outbox
            await until(lambda: not outbox.destinations._assumed)
            assert outbox.destinations._link.routes.known("fresh") is not None
            await producer.send(Message("fresh", b"4"))
        bodies = [m.body for m in await stored_anywhere(broker, "fresh", 2)]
    assert sorted(bodies) == [b"%d" % n for n in range(5)]


async def test_a_topic_that_comes_back_is_known_again() -> None:
    async with scripted() as cluster, Producer(cluster.namesrv, group="shop") as producer:
        await producer.send(Message(TOPIC, b"x"))
        destinations = producer._outbox.destinations
        destinations._known.clear()
        cluster.unknown_topics = {TOPIC}
        await producer.send(Message(TOPIC, b"x"))
        assert destinations._assumed == {TOPIC}
        cluster.unknown_topics = set()
        await until(lambda: not destinations._assumed)


async def test_a_topic_that_nobody_makes_is_not_found() -> None:
    async with (
        EmbeddedBroker(settings={"autoCreateTopicEnable": False}) as broker,
        Producer(broker.namesrv, group="shop") as producer,
    ):
        with pytest.raises(TopicNotFound, match="create the topic first"):
            await producer.send(Message("nowhere", b"x"))
        with pytest.raises(TopicNotFound):
            await producer.send_oneway(Message("nowhere", b"x"))
        with pytest.raises(TopicNotFound):
            await producer.send_nowait(Message("nowhere", b"x", sharding_key="k"))
        await broker.create_topic("nowhere")
        assert (await producer.send(Message("nowhere", b"x"))).queue_offset == 0


# -- time ----------------------------------------------------------------------------------------


async def test_a_delayed_message_waits_for_its_time() -> None:
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC, queues=1)
        async with Producer(broker.namesrv, group="shop", clock=broker.clock) as producer:
            await producer.send(Message(TOPIC, b"later", delay=dt.timedelta(hours=1)))
            await producer.send(Message(TOPIC, b"level", delay_level=5))
            await producer.send(Message(TOPIC, b"now"))
            await broker.advance(61)
            found = await arrived(broker.address, TOPIC, 2)
            assert [m.body for m in found] == [b"now", b"level"]
            await broker.advance(3601)
            assert (await arrived(broker.address, TOPIC, 3))[2].body == b"later"


async def test_a_message_that_waits_may_be_recalled() -> None:
    async with EmbeddedBroker(settings={"recallMessageEnable": True}) as broker:
        await broker.create_topic(TOPIC, queues=1)
        async with Producer(broker.namesrv, group="shop", clock=broker.clock) as producer:
            sent = await producer.send(Message(TOPIC, b"wrong", delay=dt.timedelta(minutes=1)))
            await producer.send(Message(TOPIC, b"right", delay=dt.timedelta(minutes=1)))
            assert await producer.recall(TOPIC, sent.recall_handle) == sent.message_id
            await broker.advance(120)
            found = await arrived(broker.address, TOPIC, 1)
            assert [m.body for m in found] == [b"right"]
            with pytest.raises(IllegalArgument, match="no recall handle"):
                await producer.recall(TOPIC, "nonsense")


async def test_a_broker_that_allows_no_recall_says_so() -> None:
    async with EmbeddedBroker(settings={"recallMessageEnable": False}) as broker:
        await broker.create_topic(TOPIC)
        async with Producer(broker.namesrv, group="shop", clock=broker.clock) as producer:
            sent = await producer.send(Message(TOPIC, b"x", delay=dt.timedelta(minutes=1)))
            with pytest.raises(NoPermission):
                await producer.recall(TOPIC, sent.recall_handle)


# -- life ----------------------------------------------------------------------------------------


async def test_a_producer_is_known_to_its_brokers_while_it_runs() -> None:
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC)
        watcher = await connect(broker.address)

        async def known() -> bool:
            code = RequestCode.GET_PRODUCER_CONNECTION_LIST
            answer = await watcher.request(Request(code, {"producerGroup": "shop"}), 3)
            return answer.code == 0 and producer.client_id.encode() in answer.body

        async with Producer(broker.namesrv, group="shop") as producer:
            await producer.send(Message(TOPIC, b"x"))
            assert await known()
        assert not await known()
        watcher.close()
        await until(lambda: not watcher.is_open)


async def test_stopping_waits_for_what_is_under_way() -> None:
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC)
        async with Producer(broker.namesrv, group="shop") as producer:
            futures = [producer.send_nowait(Message(TOPIC, b"%d" % n)) for n in range(500)]
        assert all(future.result().status is SendStatus.OK for future in futures)
        assert len(await stored_anywhere(broker, TOPIC)) == 500


# -- unique ids ----------------------------------------------------------------------------------


def test_no_two_ids_are_equal_within_a_process_and_its_children() -> None:
    now_ms = 1_700_000_000_000
    mine = [*unique_ids().make_several(now_ms, 1000), unique_ids().make(now_ms)]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        os.write(writer, ",".join(unique_ids().make_several(now_ms, 1000)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        others = told.read().split(",")
    assert os.waitpid(child, 0)[1] == 0
    assert len(others) == 1000
    assert len({*mine, *others}) == 2001
