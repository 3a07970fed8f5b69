"""Batches: made by the sender, or by messages that linger until they go together."""

import asyncio
import datetime as dt
from collections.abc import Sequence

import pytest

from cometmq.client.errors import BrokerBusy, IllegalArgument, SendFailed, TooManyInFlight
from cometmq.client.message import Message
from cometmq.client.producer.batching import split_batches
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.results import SendStatus
from cometmq.protocol.batch import decode_batch
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.message import Message as Record
from cometmq.protocol.message_queue import MessageQueue
from cometmq.testing import EmbeddedBroker
from tests.client.clusters import ScriptedCluster, arrived, scripted, stored, stored_anywhere, until

TOPIC = "orders"
QUEUE = MessageQueue(TOPIC, "broker-a", 2)
LONG_S = 60.0


def messages(count: int, **how: object) -> list[Message]:
    return [Message(TOPIC, b"%d" % number, **how) for number in range(count)]  # type: ignore[arg-type]


def codes(cluster: ScriptedCluster) -> list[int]:
    return [command.code for _, command in cluster.sends]


# -- made by the sender --------------------------------------------------------------------------


async def test_a_batch_is_stored_in_one_queue_one_behind_the_other() -> None:
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC)
        async with Producer(broker.namesrv, group="shop") as producer:
            await producer.send(Message(TOPIC, b"before"), queue=QUEUE)
            batch = messages(50, tags="a", properties={"p": "ü"}, flag=3)
            results = await producer.send_batch(batch, queue=QUEUE)
        found = (await stored(broker.address, TOPIC, 2))[1:]
    assert [m.body for m in found] == [b"%d" % number for number in range(50)]
    assert {(m.tags, m.properties["p"], m.flag) for m in found} == {("a", "ü", 3)}
    assert [r.queue_offset for r in results] == list(range(1, 51))
    assert [r.message_id for r in results] == [m.message_id for m in found]
    assert [r.offset_message_id for r in results] == [m.offset_message_id for m in found]
    assert {(r.queue, r.status) for r in results} == {(QUEUE, SendStatus.OK)}


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        ([], "without messages"),
        ([Message(TOPIC, b"x"), Message("others", b"x")], "two topics"),
        ([Message(TOPIC, b"x"), Message(TOPIC, b"x", wait_store=False)], "some don't"),
        ([Message(TOPIC, b"x", delay_level=1)], "delayed"),
        ([Message("%RETRY%g", b"x")], "takes no batches"),
        ([Message(TOPIC, b"")], "without a body"),
        ([Message(TOPIC, bytes(600))] * 2, "split_batches"),
    ],
)
async def test_what_is_no_batch_is_refused(batch: list[Message], reason: str) -> None:
    async with Producer("127.0.0.1:1", group="shop", max_message_bytes=1000,
                        batch_bytes_max=1000) as producer:  # fmt: skip
        with pytest.raises(IllegalArgument, match=reason):
            await producer.send_batch(batch)
        assert producer.in_flight == 0


async def test_many_messages_are_split_into_batches_that_fit() -> None:
    many = [Message(TOPIC, bytes(900), properties={"p": "ü" * 50}) for _ in range(20)]
    batches = list(split_batches(many, 4000))
    assert [message for batch in batches for message in batch] == many
    assert len(batches) > 4
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC)
        async with Producer(broker.namesrv, group="shop", max_message_bytes=4000,
                            batch_bytes_max=4000) as producer:  # fmt: skip
            for batch in batches:
                await producer.send_batch(batch)
        assert len(await stored_anywhere(broker, TOPIC)) == 20


async def test_a_batch_is_tried_at_the_other_broker_with_the_same_ids() -> None:
    async with scripted(brokers=2) as cluster:
        answers = iter([Response(2, "busy")])
        cluster.answer = lambda name, c: next(answers, None) or cluster.ok(name, c)
        async with Producer(cluster.namesrv, group="shop") as producer:
            await producer.send_batch(messages(3))
        (first, one), (second, other) = cluster.sends
        assert first != second
        assert one.body == other.body
        assert (one.code, one.text_fields()["m"]) == (RequestCode.SEND_BATCH_MESSAGE, "true")


# -- made by themselves --------------------------------------------------------------------------


async def test_messages_that_linger_travel_together_and_have_their_own_results() -> None:
    async with scripted() as cluster:
        cluster.answer = lambda name, c: cluster.ok(
            name, c, msgId=",".join(f"{number:032X}" for number in range(5)), queueOffset="7"
        )
        async with Producer(cluster.namesrv, group="shop", linger_s=0.01) as producer:
            futures = [producer.send_nowait(message) for message in messages(4)]
            last = await producer.send(Message(TOPIC, b"4", tags="t"))
            results = [future.result() for future in futures] + [last]
            assert producer.in_flight == 0
        ((_, command),) = cluster.sends
        inside = decode_batch(command.body, Record("", 0, b""))
        assert [record.body for record in inside] == [b"%d" % number for number in range(5)]
        assert b"TAGS\x01t\x02" in inside[4].properties
        for result, record in zip(results, inside, strict=True):
            assert f"UNIQ_KEY\x01{result.message_id}\x02".encode() in record.properties
        assert [r.queue_offset for r in results] == [7, 8, 9, 10, 11]
        assert [r.offset_message_id for r in results] == [f"{n:032X}" for n in range(5)]
        assert len({r.message_id for r in results}) == 5


async def test_a_full_batch_leaves_at_once() -> None:
    async with scripted() as cluster:
        async with Producer(
            cluster.namesrv, group="shop", linger_s=LONG_S, batch_messages_max=10,
            batch_bytes_max=2000,
        ) as producer:  # fmt: skip
            await asyncio.gather(*[producer.send_nowait(m) for m in messages(20)])
            large = [producer.send_nowait(Message(TOPIC, bytes(600))) for _ in range(4)]
            await asyncio.gather(*large[:2])  # Three would be too many bytes.
            assert [future.done() for future in large] == [True, True, False, False]
            await producer.flush()
            assert all(future.done() for future in large)
        sizes = [len(decode_batch(c.body, Record("", 0, b""))) for _, c in cluster.sends]
        assert sizes == [10, 10, 2, 2]


async def test_stopping_sends_what_lingers() -> None:
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC)
        async with Producer(broker.namesrv, group="shop", linger_s=LONG_S) as producer:
            futures = [producer.send_nowait(message) for message in messages(7)]
        assert [future.result().queue_offset for future in futures] == list(range(7))
        assert len(await stored_anywhere(broker, TOPIC)) == 7


async def test_who_waits_for_room_while_the_producer_stops_does_not_linger() -> None:
    async with scripted() as cluster:
        producer = Producer(cluster.namesrv, group="shop", linger_s=LONG_S, max_in_flight=1)
        await producer.start()
        sends = [asyncio.create_task(producer.send(message)) for message in messages(3)]
        await asyncio.sleep(0)
        await asyncio.wait_for(producer.stop(), 10)
        assert [send.result().status for send in sends] == [SendStatus.OK] * 3


async def test_what_cannot_be_in_a_batch_goes_alone() -> None:
    async with scripted() as cluster:
        async with Producer(cluster.namesrv, group="shop", linger_s=LONG_S) as producer:
            await producer.send(Message(TOPIC, b"later", delay=dt.timedelta(seconds=9)))
            await producer.send(Message(TOPIC, b"a" * 5000))
            await producer.send(Message(TOPIC, b"x"), timeout_s=1)
        assert codes(cluster) == [RequestCode.SEND_MESSAGE_V2] * 3
        assert len(cluster.sends[1][1].body) < 1000


async def test_with_a_key_batches_go_to_its_queue_and_nothing_overtakes_them() -> None:
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC)
        async with Producer(broker.namesrv, group="shop", linger_s=LONG_S,
                            batch_messages_max=10) as producer:  # fmt: skip
            sends = [
                producer.send_nowait(
                    Message(TOPIC, b"%d" % n + bytes(5000 * (n % 7 == 5)), sharding_key=f"k{n % 3}")
                )
                for n in range(60)
            ]
            await until(lambda: producer._outbox.destinations.known(TOPIC))
            sends += [
                producer.send_nowait(
                    Message(TOPIC, b"%d" % n + bytes(5000 * (n % 7 == 5)), sharding_key=f"k{n % 3}")
                )
                for n in range(60, 150)
            ]
            await producer.flush()
            results = await asyncio.gather(*sends)
        for key in range(3):
            queues = {result.queue for result in results[key::3]}
            assert len(queues) == 1
            found = await arrived(broker.address, TOPIC, 50, queues.pop().queue_id)
            mine = [m for m in found if m.sharding_key == f"k{key}"]
            numbers = [int(m.body.rstrip(b"\0")) for m in mine]
            assert numbers == list(range(key, 150, 3))


async def test_when_a_batch_fails_every_message_of_it_does() -> None:
    async with scripted() as cluster:
        cluster.answer = lambda *_: Response(2, "busy")
        async with Producer(cluster.namesrv, group="shop", linger_s=0.001) as producer:
            futures = [producer.send_nowait(message) for message in messages(3)]
            failures = await asyncio.gather(*futures, return_exceptions=True)
            assert [type(failure) for failure in failures] == [SendFailed] * 3
            assert isinstance(failures[0].__cause__, BrokerBusy)  # type: ignore[union-attr]
            assert producer.in_flight == 0


async def test_messages_that_need_not_wait_for_the_disk_travel_apart() -> None:
    async with scripted() as cluster:
        async with Producer(cluster.namesrv, group="shop", linger_s=LONG_S) as producer:
            for message in [*messages(2), *messages(3, wait_store=False)]:
                producer.send_nowait(message)
            await producer.flush()
        waits = [command.text_fields()["i"] for _, command in cluster.sends]
        assert waits == ["WAIT\x01true\x02", "WAIT\x01false\x02"]


async def test_a_topic_that_keeps_batches_whole_has_one_id_for_all() -> None:
    async with scripted() as cluster, Producer(cluster.namesrv, group="shop") as producer:
        results = await producer.send_batch(messages(3))
        assert [r.offset_message_id for r in results] == ["0" * 32] * 3
        assert [r.queue_offset for r in results] == [0, 1, 2]


async def test_a_selector_is_asked_once_and_what_it_raises_leaves_no_trace() -> None:
    picked: list[MessageQueue] = []

    def next_one(queues: Sequence[MessageQueue], *_: object) -> MessageQueue:
        picked.append(queues[len(picked)])
        return picked[-1]

    async with scripted(queues=2) as cluster:
        async with Producer(cluster.namesrv, group="shop", linger_s=LONG_S) as producer:
            await producer.send(Message(TOPIC, b"a" * 5000))
            result = await producer.send(Message(TOPIC, b"a" * 5000), selector=next_one)
            lingers = producer.send_nowait(Message(TOPIC, b"x"), selector=next_one)
            with pytest.raises(IndexError):
                await producer.send(Message(TOPIC, b"x"), selector=next_one)
            assert producer.in_flight == 1
            await producer.flush()
        assert [result.queue, lingers.result().queue] == picked


async def test_who_waits_for_room_does_not_wait_for_what_lingers() -> None:
    async with scripted() as cluster:
        async with Producer(
            cluster.namesrv, group="shop", linger_s=LONG_S, max_in_flight=5
        ) as producer:
            for message in messages(5):
                producer.send_nowait(message)
            with pytest.raises(TooManyInFlight):
                producer.send_nowait(Message(TOPIC, b"x"))
            await asyncio.wait_for(producer.ready(), 10)
            first = [producer.send_nowait(message) for message in messages(5)]
            late = asyncio.create_task(producer.send(Message(TOPIC, b"x")))
            await asyncio.wait_for(asyncio.gather(*first), 10)
            assert not late.done()
            await producer.flush()
            await late
        sizes = [len(decode_batch(c.body, Record("", 0, b""))) for _, c in cluster.sends]
        assert sizes == [5, 5, 1]


async def test_a_flush_waits_for_what_was_sent_before_it_and_no_longer() -> None:
    async with scripted() as cluster:
        held: list[asyncio.Event] = []

        async def hold_until_the_next_comes(name: str, command: Command) -> Response:
            for earlier in held:
                earlier.set()
            held.append(mine := asyncio.Event())
            await mine.wait()
            return cluster.ok(name, command)

        cluster.answer = hold_until_the_next_comes
        async with Producer(cluster.namesrv, group="shop") as producer:
            first = producer.send_nowait(Message(TOPIC, b"x"))
            await until(lambda: len(held) == 1)
            flush = asyncio.create_task(producer.flush())
            await asyncio.sleep(0)
            second = producer.send_nowait(Message(TOPIC, b"x"))
            await asyncio.wait_for(flush, 10)
            assert [first.done(), second.done()] == [True, False]
            held[1].set()
