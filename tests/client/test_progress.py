"""How far a group has read: at the brokers, or in a file of its own; and where it begins."""

import asyncio
from pathlib import Path

import pytest

from cometmq.client.cluster import Cluster
from cometmq.client.consumer.options import PushOptions
from cometmq.client.consumer.progress import (
    BrokerProgress,
    FileProgress,
    default_offsets_file,
    queue_offset,
)
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.consumer.subscriptions import Model
from cometmq.client.errors import ClientError, IllegalArgument, NoRoute, OffsetsNotSaved
from cometmq.client.link import Link
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.message_queue import MessageQueue
from cometmq.testing import EmbeddedBroker
from tests.broker.brokers import until

from .consumption import GROUP, TOPIC, Heard, lively, numbered, sending, shop

QUEUE, OTHER = (MessageQueue(TOPIC, "broker-a", number) for number in (0, 1))


# -- at the brokers --------------------------------------------------------------------------------


async def test_a_group_that_has_read_nothing_is_nowhere_unless_the_queue_is_young() -> None:
    async with shop() as (broker, sender):
        await sender.move_to(0, "others")
        link = Link(Cluster(broker.namesrv))
        link.start()
        await link.routes.find(TOPIC)
        progress = BrokerProgress(link, GROUP)
        progress.open()
        assert await progress.read(QUEUE, exact=True) is None
        assert await progress.read(QUEUE, exact=False) == 0
        await link.stop()


async def test_one_offset_that_fails_does_not_keep_the_others_from_being_written() -> None:
    async with shop(2) as (broker, sender):
        await sender.move_to(0)
        link = Link(Cluster(broker.namesrv))
        link.start()
        await link.routes.find(TOPIC)
        progress = BrokerProgress(link, GROUP)
        lost = MessageQueue(TOPIC, "no such broker", 0)
        with pytest.raises(NoRoute, match="no such broker"):
            await progress.write({lost: 1, QUEUE: 5, OTHER: 7})
        assert (await sender.committed(0), await sender.committed(1)) == (5, 7)
        assert await queue_offset(link, QUEUE, RequestCode.GET_MAX_OFFSET) == 0
        await link.stop()


async def test_an_offset_is_never_committed_beyond_the_first_unfinished_message() -> None:
    slow, go = Heard(), asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        await slow(message)
        if message.body == b"3":
            await go.wait()

    options = PushOptions(commit_interval_s=0.02)
    async with shop() as (broker, sender):
        await sender.send(*numbered(50))
        async with PushConsumer(
            broker.namesrv, group=GROUP, topics=TOPIC, handler=handle, options=options
        ):
            await slow.counts(50)
            await sender.reaches(3)
            await sender.send(b"more")  # Pulls carry the offset, too.
            await slow.has(b"more")
            await asyncio.sleep(0.1)
            assert await sender.committed() == 3
            go.set()
            await sender.reaches(51)


async def test_a_pull_takes_back_nothing_that_was_committed() -> None:
    """RocketMQ handles pulls and commits on threads of their own: a pull that carries an offset
    may be late and undo the commit of a member that leaves."""
    slow, go = Heard(), asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        await slow(message)
        await go.wait()

    async with shop() as (broker, sender):
        await sender.send(*numbered(5))
        async with PushConsumer(
            broker.namesrv,
            group=GROUP,
            topics=TOPIC,
            handler=handle,
            options=PushOptions(commit_interval_s=60.0),
        ):
            await slow.counts(5)
            await sender.move_to(5)  # As a later word of this member, that came first.
            for number in (6, 7):  # The pull behind the first one is answered with the second.
                await sender.send(b"more")
                await slow.counts(number)
            assert await sender.committed() == 5
            go.set()
        assert await sender.committed() == 7


async def test_a_broker_that_comes_back_is_told_what_it_missed() -> None:
    heard = Heard()
    options = PushOptions(commit_interval_s=0.05)
    async with EmbeddedBroker(in_memory=True) as broker:
        await broker.create_topic(TOPIC, 1)
        async with PushConsumer(
            lively(broker), group=GROUP, topics=TOPIC, handler=heard, options=options
        ):
            async with sending(broker.address) as sender:
                await sender.send(*numbered(5))
                await heard.counts(5)
            await broker.restart(abrupt=True)
            async with sending(broker.address) as sender:
                await sender.send(b"next")
                await heard.has(b"next")
                await sender.reaches(6)


# -- in a file -------------------------------------------------------------------------------------


async def test_a_file_keeps_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "offsets.json"
    progress = FileProgress(path)
    progress.open()
    assert await progress.read(QUEUE, exact=True) is None
    await progress.write({QUEUE: 5})
    await progress.write({OTHER: 7})
    await progress.write({QUEUE: 6})
    again = FileProgress(path)
    again.open()
    assert await again.read(QUEUE, exact=False) == 6
    assert await again.read(OTHER, exact=False) == 7


async def test_what_could_not_be_written_does_not_count_as_written(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    progress = FileProgress(path)
    progress.open()
    path.mkdir()
    with pytest.raises(OffsetsNotSaved, match=r"offsets\.json cannot be written"):
        await progress.write({QUEUE: 5})
    path.rmdir()
    await progress.write({QUEUE: 5})
    again = FileProgress(path)
    again.open()
    assert await again.read(QUEUE, exact=True) == 5


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "offsets.json").mkdir()
    with pytest.raises(IllegalArgument, match="mend or remove"):
        FileProgress(tmp_path / "offsets.json").open()


def test_files_of_groups_do_not_meet() -> None:
    assert default_offsets_file("a").name == "a.json"
    assert default_offsets_file("INSTANCE%a") != default_offsets_file("a")


async def test_a_member_that_cannot_write_its_progress_still_stops(tmp_path: Path) -> None:
    heard = Heard()
    file = tmp_path / "offsets.json"
    async with shop() as (broker, sender):
        consumer = PushConsumer(
            broker.namesrv,
            group=GROUP,
            topics=TOPIC,
            handler=heard,
            model=Model.BROADCASTING,
            offsets_file=file,
            options=PushOptions(commit_interval_s=60),
        )
        await consumer.start()
        await until(lambda: all(f.window for f in consumer._reader.feeds.values()))
        await sender.send(b"one")
        await heard.has(b"one")
        file.mkdir()
        await consumer.stop()
        with pytest.raises(ClientError):
            await consumer._reader.link.ask(broker.address, 1)
