"""With `archive.requiredBeforeDelete` a broker keeps what is not archived yet."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from cometmq.broker import archive_gate
from cometmq.broker.archive_gate import ArchiveGate
from cometmq.broker.config import BrokerConfig
from cometmq.broker.topics import Topics
from cometmq.client.blocking import Admin, Producer
from cometmq.client.message import Message
from cometmq.protocol import message as protocol_message
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.scan import queue_key
from cometmq.protocol.topic_config import TopicConfig
from cometmq.store.message_store import MessageStore
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker, ManualClock
from tests.broker.brokers import FullDisk, broker_of, context_of, serving, until
from tests.broker.desk import Desk

FILE_BYTES: Final = 8192
GATED: Final = {
    "archive.requiredBeforeDelete": True,
    "mappedFileSizeCommitLog": FILE_BYTES,
    "mappedFileSizeConsumeQueue": 20 * 20,
    "fileReservedTime": 72,
    "deleteWhen": "",
    "diskMaxUsedSpaceRatio": 100,
    "diskSpaceCleanForciblyRatio": 100,
    "diskSpaceWarningLevelRatio": 100,
}
"""However full the disk is where tests run."""
GROUP: Final = "cometmq-archive"
DAY_S: Final = 86_400
BODY: Final = b"x" * 500


class Cluster:
    """One broker with small files, and those who use it."""

    def __init__(self, broker: BlockingEmbeddedBroker, admin: Admin, producer: Producer) -> None:
        self.broker = broker
        self.admin = admin
        self._producer = producer

    def fill(self, topic: str, count: int = 60, queue_id: int = 0) -> MessageQueue:
        queue = queue_of(topic, queue_id)
        for _ in range(count):
            self._producer.send(Message(topic, BODY), queue=queue)
        return queue

    def age(self, days: int = 4) -> None:
        """Time goes by, and old files are deleted where they may be."""
        self.broker.clock.advance(days * DAY_S * 1000)
        self.clean()

    def clean(self) -> None:
        for _ in range(5):  # Ten files go at a time.
            self.admin.brokers.delete_expired_log()

    def archived(self, queue: MessageQueue, upto: int, group: str = GROUP) -> None:
        self.admin.offsets.commit(group, {queue: upto})

    def log_begin(self) -> int:
        return int(self.figures()["commitLogMinOffset"])

    def log_files(self) -> set[str]:
        """The next one may be made at any moment; until it is, it has another name."""
        directory = self.broker.directory / "broker-a" / "commitlog"
        return {path.name for path in directory.iterdir() if path.name.isdigit()}

    def figures(self) -> dict[str, str]:
        (info,) = self.admin.brokers.runtime_info().values()
        return info.table


def queue_of(topic: str, queue_id: int = 0) -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with (
        EmbeddedBroker(settings=GATED) as broker,
        Admin(broker.namesrv) as admin,
        Producer(broker.namesrv, group="archived") as producer,
    ):
        broker.create_topic("orders", 2)
        yield Cluster(broker, admin, producer)


def test_old_files_stay_until_they_are_archived(cluster: Cluster) -> None:
    queue = cluster.fill("orders")
    files = cluster.log_files()
    assert len(files) > 4
    cluster.age()
    assert cluster.log_begin() == 0
    assert files <= cluster.log_files()
    assert cluster.figures()["archiveKeptFromOffset"] == "0"
    cluster.archived(queue, 30)
    cluster.clean()
    begin = cluster.admin.offsets.min(queue)
    assert 0 < begin <= 30
    # All of the file with the first message that is not archived stays, and no more.
    assert 30 - begin < FILE_BYTES // len(BODY)
    cluster.archived(queue, 60)
    cluster.clean()
    assert cluster.admin.offsets.min(queue) > 45
    assert cluster.figures()["archiveLostMessages"] == "0"


def test_every_queue_counts_also_one_of_which_the_group_has_no_offset(cluster: Cluster) -> None:
    first, second = cluster.fill("orders"), cluster.fill("orders", 3, queue_id=1)
    cluster.fill("orders")
    cluster.archived(first, 120)
    cluster.age()
    begin = cluster.log_begin()
    assert begin > 0
    # The other queue begins behind the files that went.
    assert (cluster.admin.offsets.min(second), cluster.admin.offsets.min(first) > 40) == (0, True)
    cluster.archived(second, 2)
    cluster.clean()
    assert cluster.log_begin() == begin
    cluster.archived(second, 3)
    cluster.clean()
    assert cluster.log_begin() > begin


def test_what_is_archived_is_known_after_a_restart_and_nothing_goes_before(
    cluster: Cluster,
) -> None:
    queue = cluster.fill("orders")
    cluster.archived(queue, 30)
    cluster.broker.restart()
    cluster.age()
    assert 0 < cluster.admin.offsets.min(queue) <= 30
    cluster.broker.restart(abrupt=True)
    cluster.clean()
    assert 0 < cluster.admin.offsets.min(queue) <= 30


def test_offsets_of_other_groups_say_nothing(cluster: Cluster) -> None:
    queue = cluster.fill("orders")
    cluster.admin.groups.create("shipping")
    cluster.archived(queue, 60, group="shipping")
    cluster.age()
    assert cluster.log_begin() == 0
    cluster.admin.brokers.update_config({"archive.group": "billing"})
    cluster.archived(queue, 60, group="billing")
    cluster.clean()
    assert cluster.log_begin() > 0


def test_the_gate_can_be_opened_while_the_broker_runs(cluster: Cluster) -> None:
    cluster.fill("orders")
    cluster.age()
    assert cluster.log_begin() == 0
    cluster.admin.brokers.update_config({"archive.requiredBeforeDelete": "false"})
    cluster.clean()
    assert cluster.log_begin() > 0
    assert "archiveKeptFromOffset" not in cluster.figures()


def test_topics_that_are_not_archived_hold_nothing(cluster: Cluster) -> None:
    cluster.broker.create_topic("%RETRY%billing", 1)
    cluster.broker.create_topic("scratch", 1)
    retries = cluster.fill("%RETRY%billing")
    cluster.fill("scratch")
    cluster.age()
    assert cluster.log_begin() < FILE_BYTES * 6 <= int(cluster.figures()["commitLogMaxOffset"])
    assert cluster.admin.offsets.min(retries) > 45  # Whose messages came first.
    kept = cluster.log_begin()
    cluster.admin.brokers.update_config({"archive.topics": "orders|payments"})
    cluster.clean()
    assert cluster.log_begin() > kept
    cluster.fill("%RETRY%billing")
    cluster.admin.brokers.update_config({"archive.topics": "orders|%RETRY%.*"})
    kept = cluster.log_begin()
    cluster.age()
    assert cluster.log_begin() <= kept + FILE_BYTES


@pytest.mark.parametrize("how", ["deleted", "shrunk"])
def test_what_can_no_longer_be_read_is_not_waited_for(cluster: Cluster, how: str) -> None:
    cluster.fill("orders", queue_id=1)
    cluster.age()
    assert cluster.log_begin() == 0
    if how == "deleted":
        cluster.admin.topics.delete("orders")
    else:
        cluster.broker.create_topic("orders", 1)
    cluster.clean()
    assert cluster.log_begin() > 0


def test_a_group_that_was_forgotten_begins_anew_and_nothing_is_stuck(cluster: Cluster) -> None:
    queue = cluster.fill("orders")
    cluster.archived(queue, 60)
    cluster.admin.groups.delete(GROUP)
    cluster.age()
    assert cluster.log_begin() == 0
    cluster.archived(queue, 60)
    cluster.clean()
    assert cluster.log_begin() > 0


def test_a_topic_made_anew_is_not_taken_for_archived(cluster: Cluster) -> None:
    queue = cluster.fill("orders")
    cluster.archived(queue, 60)
    cluster.admin.topics.delete("orders")
    cluster.broker.create_topic("orders", 2)
    cluster.fill("orders", 40)
    cluster.age()
    assert cluster.admin.offsets.min(queue) == 0
    cluster.archived(queue, 60)  # By an archive that has not heard of it yet.
    cluster.age()
    assert cluster.admin.offsets.min(queue) == 0


def test_who_is_behind_is_told_when_it_lasts_and_then_once_an_hour(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    queue = cluster.fill("orders")
    cluster.fill("orders", queue_id=1)
    cluster.archived(queue, 10)

    def warnings() -> list[str]:
        return [r.message for r in caplog.records if r.name == archive_gate.__name__]

    with caplog.at_level(logging.WARNING, logger=archive_gate.__name__):
        cluster.age()
        assert warnings() == []
        cluster.broker.clock.advance(11 * 60_000)
        cluster.clean()
        (told,) = warnings()
        cluster.broker.clock.advance(30 * 60_000)
        cluster.clean()
        assert len(warnings()) == 1
        cluster.broker.clock.advance(31 * 60_000)
        cluster.clean()
        assert len(warnings()) == 2
    assert "for 11 minutes" in told
    assert f"group {GROUP} has not archived: orders queue 0 from offset 10 on, orders queue 1 " in (
        told
    )
    assert "orders queue 1 from offset 0 on (it has no offset there)" in told
    assert "set archive.requiredBeforeDelete=false" in told
    figures = cluster.figures()
    assert int(figures["archiveHeldBytes"]) >= 8 * FILE_BYTES
    assert int(figures["archiveHeldSince"]) > 0


# -- a nearly full disk --------------------------------------------------------------------------


async def test_a_nearly_full_disk_comes_first_and_what_is_lost_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FullDisk()
    async with serving(tmp_path, disk=disk, more=marks(85)) as broker:
        context = context_of(broker)
        fill_store(context.store, context.topics, 2)
        context.offsets.commit(GROUP, "orders", 0, 3)
        context.offsets.commit(GROUP, "orders", 1, 50)  # All that it has.
        assert context.store.clean() == 0
        disk.percent = 86.0
        with caplog.at_level(logging.INFO):
            deleted = 0
            while gone := context.store.clean():
                deleted += gone
        assert deleted > 5
        begin = context.store.min_offset("orders", 0)
        told = [r for r in caplog.records if r.levelno == logging.ERROR]
        assert f"before group {GROUP} has archived them: orders queue 0 offsets 3 to " in (
            told[0].message
        )
        assert told[-1].message.endswith(f" to {begin - 1}")
        assert not any("queue 1" in record.message for record in told)
        assert context.archive.lost_messages == begin - 3
        assert context.archive.figures()["archiveLostMessages"] == str(begin - 3)


async def test_a_broker_that_starts_with_a_full_disk_names_what_goes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FullDisk()
    async with serving(tmp_path, disk=disk, more=marks(85)) as broker:
        fill_store(context_of(broker).store, context_of(broker).topics, 1)
    disk.percent = 86.0
    quick = {**marks(85), "cleanResourceInterval": 1, "flushIntervalConsumeQueue": 1}
    again = broker_of(tmp_path, disk=disk, more=quick)
    await again.start()
    try:
        store = context_of(again).store
        await until(lambda: store.commit_log.start_offset > 0)
        while store.clean():
            pass
        assert "orders queue 0 offsets 0 to " in caplog.text
        assert context_of(again).archive.lost_messages == store.min_offset("orders", 0) > 0
    finally:
        await again.stop()


def marks(forced: int) -> dict[str, Any]:
    return {**GATED, "fileReservedTime": 0, "diskSpaceCleanForciblyRatio": forced}


def fill_store(store: MessageStore, topics: Topics, queues: int, count: int = 100) -> None:
    topics.update(TopicConfig("orders", queues, queues))
    for number in range(count):
        store.append(protocol_message.Message(topic="orders", queue_id=number % queues, body=BODY))
    store.dispatch()


# -- size ----------------------------------------------------------------------------------------


def test_ten_thousand_queues_are_looked_at_in_no_time(desk: Desk, clock: ManualClock) -> None:
    """Under as many names the gate sees one real queue."""
    first, second = desk.put("orders"), desk.put("orders")
    (_, queue), *_ = desk.store.queues
    topics = [f"topic-{number}" for number in range(1000)]
    desk.context.topics.update(*(TopicConfig(name, 10, 10) for name in topics))
    keys = [queue_key(name, queue_id) for name in topics for queue_id in range(10)]
    store: Any = SimpleNamespace(
        queues=[(key, queue) for key in keys], dispatched=desk.store.dispatched
    )
    gate = ArchiveGate(BrokerConfig(archive_required=True), clock)
    gate.know(store, desk.context.topics, desk.context.offsets)

    def timed() -> int | None:
        begun = time.perf_counter()
        kept = gate.keep_from()
        assert time.perf_counter() - begun < 5.0  # 20 ms or so on an idle machine.
        return kept

    assert timed() == first.physical_offset
    for name in topics:
        for queue_id in range(10):
            desk.context.offsets.commit(GROUP, name, queue_id, 2)
    assert timed() == second.physical_offset + second.size
    desk.context.offsets.commit(GROUP, "topic-500", 3, 1)
    assert timed() == second.physical_offset
