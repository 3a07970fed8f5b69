"""A group without members is where the lake or the stream is, whatever was done to it by hand."""

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.client.admin import Admin
from cometmq.client.blocking import Admin as BlockingAdmin
from cometmq.client.blocking import Producer as BlockingProducer
from cometmq.client.cluster import Cluster
from cometmq.client.errors import AnswerTimedOut, NoPermission, TopicNotFound
from cometmq.client.names import Message, Producer
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.message_queue import MessageQueue
from cometmq.spark.pipelines.archive_group import ArchiveGroup
from cometmq.spark.stream_report import SourceProgress
from cometmq.spark.topic.group_commits import commit
from cometmq.spark.topic.notes import Notes
from cometmq.testing import EmbeddedBroker
from cometmq.transport.connection import Connection, Refusal

from .sending import SHORT, send

if TYPE_CHECKING:
    from cometmq.spark.group_follower import GroupFollower

GROUP, TOPIC = "followers", "orders"
QUEUE, SECOND = (MessageQueue(TOPIC, "broker-a", number) for number in (0, 1))
MESSAGES = 12


@contextlib.asynccontextmanager
async def serving(
    *, group: bool = True, brokers: int = 1, settings: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[EmbeddedBroker, Admin]]:
    """A topic with two queues, and a group, unless it is to be unknown."""
    async with (
        EmbeddedBroker(brokers=brokers, settings=settings) as broker,
        Admin(broker.namesrv) as admin,
    ):
        await broker.create_topic(TOPIC, 2)
        if group:
            await admin.groups.create(GROUP)
        yield broker, admin


async def fill(
    broker: EmbeddedBroker, count: int = MESSAGES, queues: Iterable[MessageQueue] = (QUEUE, SECOND)
) -> None:
    async with Producer(broker.namesrv, group="shop") as producer:
        for queue in queues:
            for _ in range(count):
                await producer.send(Message(queue.topic, b"x" * 200), queue=queue)


def handlers(broker: EmbeddedBroker, number: int = 0) -> dict[int, Any]:
    """What a broker does with requests, to be changed."""
    running = broker._places[number].broker
    assert running is not None
    assert running._server is not None
    return running._server._handlers  # type: ignore[return-value]


def refuse(_: Connection, __: Command) -> Response:
    raise Refusal(ResponseCode.NO_PERMISSION, "not you")


# -- resets --------------------------------------------------------------------------------------


async def test_a_group_that_was_reset_is_put_back_and_every_reset_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as (broker, admin):
        await fill(broker)
        assert await commit(admin, GROUP, {QUEUE: 5, SECOND: 5}) == {}
        assert caplog.messages == []
        for _ in range(2):
            await admin.offsets.reset(GROUP, TOPIC, "earliest")
            for at in (10, 12):
                assert await commit(admin, GROUP, {QUEUE: at, SECOND: 5}) == {}
                assert await admin.offsets.committed(GROUP, TOPIC) == {QUEUE: at, SECOND: 5}
            (told,) = caplog.messages
            assert told.startswith(f"group {GROUP} was reset by hand")
            assert all(str(queue) in told for queue in (QUEUE, SECOND))
            caplog.clear()


async def test_a_reset_costs_one_commit_more_and_no_later_one() -> None:
    asked: list[int] = []
    async with serving() as (broker, admin):
        table = handlers(broker)
        for code, handle in list(table.items()):

            def counted(connection: Connection, command: Command, handle: Any = handle) -> Any:
                asked.append(command.code)
                return handle(connection, command)

            table[code] = counted
        await fill(broker)
        await commit(admin, GROUP, {QUEUE: 5, SECOND: 5})
        await admin.offsets.reset(GROUP, TOPIC, "earliest")
        asked.clear()
        assert await commit(admin, GROUP, {QUEUE: 6, SECOND: 6}) == {}
        assert asked.count(RequestCode.PULL_MESSAGE) == 2
        asked.clear()
        assert await commit(admin, GROUP, {QUEUE: 7, SECOND: 6}) == {}
        assert asked == [RequestCode.UPDATE_CONSUMER_OFFSET] * 2


async def test_a_group_that_was_reset_is_put_back_also_where_its_queue_does_not_reach() -> None:
    """As every commit may be: the place is what its reader says."""
    async with serving(settings=SHORT) as (broker, admin):
        await fill(broker, 100, [QUEUE])
        await admin.brokers.delete_expired_log()
        assert 20 < await admin.offsets.min(QUEUE) < 100
        for at in (7, 199):
            await admin.offsets.reset(GROUP, TOPIC, "latest")
            assert await commit(admin, GROUP, {QUEUE: at}) == {}
            assert (await admin.offsets.committed(GROUP, TOPIC))[QUEUE] == at


async def test_a_reset_that_may_not_be_taken_is_told_of() -> None:
    async with serving() as (broker, admin):
        await admin.offsets.reset(GROUP, TOPIC, "earliest")
        handlers(broker)[RequestCode.PULL_MESSAGE] = refuse
        refused = await commit(admin, GROUP, {QUEUE: 3})
    assert {topic: type(why) for topic, why in refused.items()} == {TOPIC: NoPermission}


# -- brokers that are silent ---------------------------------------------------------------------


async def test_a_silent_broker_costs_a_commit_one_time_out_however_many_queues_it_has() -> None:
    queues, asked = 64, []
    async with serving() as (broker, _):
        await broker.create_topic("wide", queues)
        wanted = {MessageQueue("wide", "broker-a", number): 0 for number in range(queues)}
        async with Admin(Cluster(broker.namesrv, request_timeout_s=0.5)) as hasty:
            assert await commit(hasty, GROUP, wanted) == {}
            table = handlers(broker)
            table[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda _, command: asked.append(command)
            refused = await commit(hasty, GROUP, wanted)
    assert {topic: type(why) for topic, why in refused.items()} == {"wide": AnswerTimedOut}
    assert len(asked) == 1


# -- groups that are not there yet ---------------------------------------------------------------


async def test_a_group_that_is_not_there_is_created_where_it_is_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    other, elsewhere = MessageQueue("others", "broker-a", 0), MessageQueue(TOPIC, "broker-b", 0)
    async with serving(group=False, brokers=2) as (broker, admin):
        await broker.create_topic("others", 1)
        await admin.groups.create(GROUP, brokers=["broker-b"], retry_max_times=3)
        assert await commit(admin, GROUP, {QUEUE: 3, elsewhere: 4, other: 5}) == {}
        assert await admin.offsets.committed(GROUP, TOPIC) == {QUEUE: 3, elsewhere: 4}
        assert await admin.offsets.committed(GROUP, "others") == {other: 5}
        configs = await admin.groups.config(GROUP)
        found = {name: config.retry_max_times for name, config in configs.items()}
        assert found == {"broker-a": 16, "broker-b": 3}, "what was there is as it was"
    assert caplog.messages == []


async def test_a_group_is_created_once_for_all_topics() -> None:
    asked: list[bytes] = []

    async with serving(group=False) as (broker, admin):
        await broker.create_topic("others", 1)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        create = handlers(broker)[code]

        def counted(connection: Connection, command: Command) -> Any:
            asked.append(command.body)
            return create(connection, command)

        handlers(broker)[code] = counted
        wanted = {QUEUE: 3, SECOND: 4, MessageQueue("others", "broker-a", 0): 5}
        assert await commit(admin, GROUP, wanted) == {}
    assert len(asked) == 1


async def test_a_group_that_may_not_be_created_is_told_of() -> None:
    async with serving(group=False) as (broker, admin):
        handlers(broker)[RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP] = refuse
        refused = await commit(admin, GROUP, {QUEUE: 3})
    assert {topic: type(why) for topic, why in refused.items()} == {TOPIC: NoPermission}


async def test_a_group_is_created_at_a_broker_though_another_one_takes_no_commits() -> None:
    deaf = MessageQueue(TOPIC, "broker-b", 0)
    async with serving(group=False, brokers=2) as (broker, admin):
        handlers(broker, 1)[RequestCode.UPDATE_CONSUMER_OFFSET] = refuse
        refused = await commit(admin, GROUP, {deaf: 1, QUEUE: 3})
        assert {topic: type(why) for topic, why in refused.items()} == {TOPIC: NoPermission}
        assert await admin.offsets.committed(GROUP, TOPIC) == {QUEUE: 3}


# -- topics that are gone ------------------------------------------------------------------------


async def test_a_topic_that_was_deleted_is_told_once_and_counts_as_committed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as (broker, admin):
        await broker.create_topic("staying", 1)
        staying = MessageQueue("staying", "broker-a", 0)
        await admin.topics.delete(TOPIC)
        for at in (1, 2):
            assert await commit(admin, GROUP, {QUEUE: 4, SECOND: 4, staying: at}) == {}
            assert await admin.offsets.committed(GROUP, "staying") == {staying: at}
        (told,) = caplog.messages
        assert "nothing is committed for what is not there now" in told
        assert all(str(queue) in told for queue in (QUEUE, SECOND))
        await broker.create_topic(TOPIC, 2)
        assert await commit(admin, GROUP, {QUEUE: 5}) == {}
        assert await admin.offsets.committed(GROUP, TOPIC) == {QUEUE: 5}


async def test_a_topic_whose_broker_is_away_is_not_taken_for_deleted() -> None:
    """NameServers know neither of them then."""
    async with serving() as (broker, admin):
        await broker.stop_broker()
        refused = await commit(admin, GROUP, {QUEUE: 4})
        assert {topic: type(why) for topic, why in refused.items()} == {TOPIC: TopicNotFound}
        await broker.start_broker()
        assert await commit(admin, GROUP, {QUEUE: 4}) == {}
        assert await admin.offsets.committed(GROUP, TOPIC) == {QUEUE: 4}


# -- who commits ---------------------------------------------------------------------------------


@pytest.fixture
def follower() -> Iterator["GroupFollower"]:
    pytest.importorskip("pyspark")
    from cometmq.spark.group_follower import GroupFollower

    groups = GroupFollower({})
    yield groups
    groups.close()


def test_a_query_with_a_new_group_is_followed_without_a_word(
    follower: "GroupFollower", caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker() as broker, BlockingAdmin(broker.namesrv) as admin:
        broker.create_topic(TOPIC, 1)
        follower.put(SourceProgress([], {QUEUE: 7}, {}, Notes(broker.namesrv, GROUP)))
        follower.commit()
        assert not follower.is_behind
        assert admin.offsets.committed(GROUP, TOPIC) == {QUEUE: 7}
    assert caplog.messages == []


def test_a_query_whose_topic_was_deleted_is_not_behind(
    follower: "GroupFollower", caplog: pytest.LogCaptureFixture
) -> None:
    staying = MessageQueue("staying", "broker-a", 0)
    with EmbeddedBroker() as broker, BlockingAdmin(broker.namesrv) as admin:
        broker.create_topic("staying", 1)
        for at in (2, 3):
            ends = {QUEUE: at, staying: at}
            follower.put(SourceProgress([], ends, {}, Notes(broker.namesrv, GROUP)))
            follower.commit()
            assert not follower.is_behind
            assert admin.offsets.committed(GROUP, "staying") == {staying: at}
    (told,) = caplog.messages
    assert str(QUEUE) in told


def test_brokers_let_go_what_is_archived_though_its_group_was_reset() -> None:
    settings = {**SHORT, "archive.requiredBeforeDelete": True}
    with (
        EmbeddedBroker(settings=settings) as broker,
        BlockingAdmin(broker.namesrv) as admin,
        BlockingProducer(broker.namesrv, group="shop") as producer,
        ArchiveGroup(Cluster(broker.namesrv), "cometmq-archive") as archive,
    ):
        broker.create_topic(TOPIC, 1)
        send(producer, TOPIC, 100, queues=[0])
        archive.commit({QUEUE: 5})
        admin.offsets.reset("cometmq-archive", TOPIC, "earliest")
        archive.commit({QUEUE: 100})
        admin.brokers.delete_expired_log()
        assert admin.offsets.min(QUEUE) > 20
