"""Who listens to streaming queries learns lag and loss, and groups are where the queries are."""

import json
import logging
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.client.blocking import Admin, Producer
from cometmq.protocol.message_queue import MessageQueue
from cometmq.spark import stream_gauges
from cometmq.spark.errors import BadOption
from cometmq.spark.stream_gauges import StreamGauges
from cometmq.spark.stream_report import (
    Loss,
    Report,
    SourceProgress,
    batch_told,
    report_of,
    sources_of,
)
from cometmq.spark.topic.notes import Notes, lost_by_topic, split_notes, with_notes
from cometmq.spark.topic.offsets import QueueRange
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .sending import SHORT, send
from .streaming import Collected, Streams, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cometmq.spark.listener import Listener

FIRST, SECOND = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


# -- what progress says --------------------------------------------------------------------------


Source = tuple[Any, Any, Any]
"""Start, end and latest offset."""


def progress_of(*sources: Source, batch_id: int = 3, name: str | None = None) -> str:
    """As Spark hands it over: with more than is needed, and without figures that are no numbers."""
    names = ("startOffset", "endOffset", "latestOffset")
    told = {
        "id": str(uuid.UUID(int=1)), "runId": str(uuid.UUID(int=2)), "name": name,
        "timestamp": "2026-11-16T12:00:00.000Z", "batchId": batch_id, "numInputRows": 4,
        "sources": [
            {"description": "a source", **dict(zip(names, source, strict=True))}
            for source in sources
        ],
        "sink": {"description": "a sink", "numOutputRows": -1},
    }  # fmt: skip
    return json.dumps(told)


def test_lag_is_what_was_there_beyond_the_batch() -> None:
    progress = progress_of(
        (
            {"orders": {"broker-a:0": 5}},
            {"@began": {"orders": {"broker-a:1": 2}}, "orders": {"broker-a:0": 9, "broker-a:1": 4}},
            {"orders": {"broker-a:0": 12, "broker-a:1": 4}},
        )
    )
    (source,) = sources_of(batch_told(progress))
    assert source.ranges == [QueueRange(FIRST, 5, 9), QueueRange(SECOND, 2, 4)]
    report = report_of(batch_told(progress), [source], [])
    assert report.lag == {FIRST: 3, SECOND: 0}
    assert report.lag_by_topic == {"orders": 3}
    assert (report.ends, report.latest) == ({FIRST: 9, SECOND: 4}, {FIRST: 12, SECOND: 4})
    assert str(report) == f"query {uuid.UUID(int=1)}, batch 3: messages to come: orders 3"


def test_of_two_sources_that_read_a_queue_the_one_that_is_behind_counts() -> None:
    behind = ({"orders": {"broker-a:0": 0}}, {"orders": {"broker-a:0": 10}})
    ahead = ({"orders": {"broker-a:0": 990}}, {"orders": {"broker-a:0": 1000}})
    earlier, later = {"orders": {"broker-a:0": 1000}}, {"orders": {"broker-a:0": 1002}}
    for sources in ([(*behind, earlier), (*ahead, later)], [(*ahead, later), (*behind, earlier)]):
        batch = batch_told(progress_of(*sources))
        report = report_of(batch, sources_of(batch), [])
        assert (report.lag, report.ends, report.latest) == (
            {FIRST: 990},
            {FIRST: 10},
            {FIRST: 1002},
        )


def test_the_first_batch_has_no_beginning_and_a_latest_offset_may_be_missing() -> None:
    end = {"@began": {"orders": {"broker-a:0": 1}}, "orders": {"broker-a:0": 4}}
    told = progress_of((None, end, None))
    for progress in (told, told.replace('"startOffset": null, ', "")):
        (source,) = sources_of(batch_told(progress))
        assert source.ranges == [QueueRange(FIRST, 1, 4)]
        assert (source.lag, source.notes) == ({}, None)


def test_sources_of_others_are_left_alone() -> None:
    kafka = ({"orders": {"0": 1}}, {"orders": {"0": 2}}, {"orders": {"0": 2}})
    others = [kafka, (7, 8, 9), ("a", "b", "c"), (None, None, None), (None, {"logOffset": 1}, None)]
    assert sources_of(batch_told(progress_of(*others))) == []


def test_notes_travel_with_offsets_and_hold_what_listeners_need() -> None:
    lost = [QueueRange(SECOND, 4, 9), QueueRange(FIRST, 0, 2)]
    notes = Notes("127.0.0.1:9876", "billing", tolerates_loss=True, lost=lost_by_topic(lost))
    told = json.loads(json.dumps(with_notes({"orders": {"broker-a:0": 12}}, notes)))
    offsets, found = split_notes(told)
    assert (offsets, found) == ({"orders": {"broker-a:0": 12}}, notes)
    assert found is not None
    assert found.lost_ranges() == sorted(lost, key=lambda part: part.queue.queue_id)
    assert with_notes({}, None) == {}


def report_with(name: str, batch_id: int, lag: int, *lost: Loss) -> Report:
    return Report(
        query_id="q", run_id=f"run of {name}", name=name, batch_id=batch_id, timestamp="",
        lag={FIRST: lag}, lost=lost,
    )  # fmt: skip


def test_gauges_are_texts_for_prometheus(tmp_path: Path) -> None:
    file = tmp_path / "spark.prom"
    gauges = StreamGauges(file)
    gauges.add(report_with('a "b"', 0, 7))
    assert 'cometmq_spark_lost_messages_total{query="a \\"b\\"",topic="orders"} 0' in (
        file.read_text()
    )
    gauges.add(report_with('a "b"', 1, 5, Loss(QueueRange(FIRST, 2, 6), is_certain=True)))
    gauges.add(report_with('a "b"', 2, 3, Loss(QueueRange(FIRST, 8, 9), is_certain=True)))
    gauges.add(report_with('a "b"', 2, 3, Loss(QueueRange(FIRST, 9, 19), is_certain=False)))
    assert file.read_text().splitlines() == [
        "# HELP cometmq_spark_lag_messages Messages that a query had still to read when its batch "
        "was planned",
        "# TYPE cometmq_spark_lag_messages gauge",
        'cometmq_spark_lag_messages{query="a \\"b\\"",topic="orders",broker="broker-a",'
        'queue="0"} 3',
        "# HELP cometmq_spark_lost_messages_total Messages that were gone before a query read them",
        "# TYPE cometmq_spark_lost_messages_total counter",
        'cometmq_spark_lost_messages_total{query="a \\"b\\"",topic="orders"} 5',
        "# HELP cometmq_spark_batch_id The last batch that is durable",
        "# TYPE cometmq_spark_batch_id gauge",
        'cometmq_spark_batch_id{query="a \\"b\\""} 2',
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["spark.prom"]


def test_a_query_that_has_ended_has_no_gauges_and_what_it_lost_stays(tmp_path: Path) -> None:
    gauges = StreamGauges(tmp_path / "spark.prom")
    gauges.add(report_with("ended", 4, 7, Loss(QueueRange(FIRST, 2, 6), is_certain=True)))
    gauges.add(report_with("other", 1, 2))
    gauges.end("run of ended")
    shown = (tmp_path / "spark.prom").read_text()
    assert 'lost_messages_total{query="ended",topic="orders"} 4' in shown
    assert shown.count('query="ended"') == 1
    assert 'batch_id{query="other"} 1' in shown


def test_gauges_are_of_so_many_queries_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_gauges, "QUERIES_MAX", 2)
    gauges = StreamGauges(tmp_path / "spark.prom")
    for name in "abac":
        gauges.add(report_with(name, 0, 0, Loss(QueueRange(FIRST, 0, 1), is_certain=True)))
    shown = gauges.text()
    assert 'lost_messages_total{query="a",topic="orders"} 2' in shown
    assert ('query="b"' in shown, 'query="c"' in shown) == (False, True)


def test_a_loss_that_grows_is_reported_without_what_was_reported_before() -> None:
    pytest.importorskip("pyspark")
    from cometmq.spark.listener import Listener

    reports: list[Report] = []
    listener = Listener(on_report=reports.append)
    end = {"orders": {"broker-a:0": 99}}
    losses = [(10, 50), (10, 50), (10, 70), (60, 70), (80, 90)]
    for batch_id, bounds in enumerate(losses):
        notes = {"namesrvAddr": "127.0.0.1:1", "lost": {"orders": {"broker-a:0": bounds}}}
        listener._handle(progress_of((None, end, {**end, "@source": notes}), batch_id=batch_id))
    told = [[(loss.range.start, loss.range.end) for loss in report.lost] for report in reports]
    assert told == [[(10, 50)], [], [(50, 70)], [], [(80, 90)]]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"acessKey": "k"}, "unknown option acessKey; did you mean accessKey?"),
        ({"topic": "orders"}, "unknown option topic"),
        ({"accessKey": "k"}, "accessKey and secretKey are set together"),
        ({"tls": "yes"}, "tls is true or false"),
        ({"tls": "true", "tlsCaFile": "/no/such.pem"}, "tlsCaFile: /no/such.pem cannot be used"),
    ],
)
def test_a_connection_that_cannot_be_meant_is_refused_by_name(
    given: dict[str, str], said: str
) -> None:
    pytest.importorskip("pyspark")
    from cometmq.spark.listener import Listener

    with pytest.raises(BadOption, match=re.escape(said)):
        Listener(connection=given)
    Listener(connection={"ACCESSKEY": "k", "secretkey": "s", "TLS": "true"})


# -- groups that follow --------------------------------------------------------------------------


def followed(namesrv: str, group: str, ends: dict[MessageQueue, int]) -> SourceProgress:
    return SourceProgress([], ends, ends, Notes(namesrv, group))


class Following:
    """A follower with a clock of ours."""

    def __init__(self) -> None:
        from cometmq.spark.group_follower import GroupFollower

        self.now_s = 0.0
        self.groups = GroupFollower({}, lambda: self.now_s)

    def is_behind(self) -> bool:
        return self.groups.is_behind


@pytest.fixture
def following() -> Iterator[Following]:
    pytest.importorskip("pyspark")
    following = Following()
    yield following
    following.groups.close()


def test_a_commit_waits_for_its_broker_and_the_latest_counts(
    following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    groups = following.groups
    with EmbeddedBroker() as broker, Admin(broker.namesrv) as admin:
        broker.create_topic("orders", 2)
        admin.groups.create("late")
        broker.stop_broker()
        groups.put(followed(broker.namesrv, "late", {FIRST: 0, SECOND: 5}))
        groups.commit()
        groups.put(followed(broker.namesrv, "late", {FIRST: 3, SECOND: 5}))
        groups.commit()
        assert following.is_behind()
        assert "group late, topic orders: not committed" in caplog.text
        broker.start_broker()
        groups.commit()
        assert not following.is_behind()
        assert admin.offsets.committed("late", "orders") == {FIRST: 3, SECOND: 5}


def test_what_cannot_be_committed_is_given_up_some_time_and_said(
    following: Following, broker: BlockingEmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    groups = following.groups
    groups.put(followed(broker.namesrv, "hopeless", {MessageQueue("nowhere", "broker-z", 0): 1}))
    groups.commit()
    assert following.is_behind()
    following.now_s = 61.0
    groups.commit()
    assert not following.is_behind()
    assert "group hopeless is left behind in nowhere" in caplog.text


def test_a_topic_that_is_gone_does_not_keep_others_from_being_committed(
    following: Following, broker: BlockingEmbeddedBroker
) -> None:
    broker.create_topic("staying", 1)
    staying, gone = MessageQueue("staying", "broker-a", 0), MessageQueue("gone", "broker-a", 0)
    with Admin(broker.namesrv) as admin:
        admin.groups.create("both")
        following.groups.put(followed(broker.namesrv, "both", {gone: 4, staying: 2}))
        following.groups.commit()
        assert admin.offsets.committed("both", "staying") == {staying: 2}


def test_a_queue_that_is_gone_does_not_keep_those_of_its_topic_from_being_committed(
    following: Following, broker: BlockingEmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("shrinking", 2)
    staying, gone = (MessageQueue("shrinking", "broker-a", number) for number in (0, 7))
    elsewhere = MessageQueue("shrinking", "broker-z", 0)
    with Admin(broker.namesrv) as admin:
        admin.groups.create("left")
        for at in (2, 3):
            ends = {staying: at, gone: 9, elsewhere: at}
            following.groups.put(followed(broker.namesrv, "left", ends))
            following.groups.commit()
            assert not following.is_behind()
            assert admin.offsets.committed("left", "shrinking") == {staying: at}
    assert caplog.text.count("nothing is committed for what is not there now") == 1
    assert "broker-z" in caplog.text


def test_queues_that_did_not_move_are_told_again_once_a_minute(
    following: Following, broker: BlockingEmbeddedBroker
) -> None:
    broker.create_topic("still", 1)
    queue = MessageQueue("still", "broker-a", 0)
    source = followed(broker.namesrv, "still-readers", {queue: 4})
    with Admin(broker.namesrv) as admin:
        admin.groups.create("still-readers")
        for now_s, expected in ((0.0, {queue: 4}), (30.0, {}), (61.0, {queue: 4})):
            following.now_s = now_s
            following.groups.put(source)
            following.groups.commit()
            assert admin.offsets.committed("still-readers", "still") == expected
            admin.groups.delete("still-readers")
            admin.groups.create("still-readers")


def test_what_retention_took_from_a_batch_may_be_lost_and_what_is_known_is_not_told_twice(
    following: Following,
) -> None:
    with EmbeddedBroker(settings=SHORT) as broker, Admin(broker.namesrv) as admin:
        broker.create_topic("orders", 1)
        with Producer(broker.namesrv, group="aging") as producer:
            send(producer, "orders", 100, queues=[0])
        admin.brokers.delete_expired_log()
        begin = admin.offsets.min(FIRST)
        assert 20 < begin < 100
        known = lost_by_topic([QueueRange(FIRST, 0, 7)])
        batch = [QueueRange(FIRST, 0, 100)]
        notes = Notes(broker.namesrv, tolerates_loss=True, lost=known)
        (loss,) = following.groups.overtaken(SourceProgress(batch, {}, {}, notes))
        assert (loss.range, loss.is_certain) == (QueueRange(FIRST, 7, begin), False)
        assert str(loss) == f"topic orders, queue broker-a:0: 7 to {begin - 1} may be lost"
        later = [QueueRange(FIRST, begin, 100)]
        assert following.groups.overtaken(SourceProgress(later, {}, {}, notes)) == []
        unusable = Notes("nowhere", tolerates_loss=True)
        assert following.groups.overtaken(SourceProgress(batch, {}, {}, unusable)) == []
        strict = Notes(broker.namesrv, group="any")
        assert following.groups.overtaken(SourceProgress(batch, {}, {}, strict)) == []


# -- with Spark ----------------------------------------------------------------------------------


Listen = Callable[..., "Listener"]


@pytest.fixture
def listen(spark: "SparkSession") -> Iterator[Listen]:
    """Has a listener in place of the session's own, until the test ends."""
    from cometmq.spark.listener import Listener, attach, detach

    yield lambda **how: attach(spark, Listener(**how))
    detach(spark)
    attach(spark)


@pytest.fixture
def streams(spark: "SparkSession", broker: BlockingEmbeddedBroker, checkpoint: str) -> Streams:
    return Streams(spark, broker, checkpoint)


def test_lag_is_told_batch_by_batch_and_the_group_is_where_the_query_is(
    listen: Listen, streams: Streams, broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("heard", 2)
    sent = send(producer, "heard", 20, queues=range(2))
    reports: list[Report] = []
    listener, sink = listen(on_report=reports.append), Collected()
    given = {"consumerGroup": "heard-readers", "commitGroupOffsets": True}
    query = streams.run(
        sink, topic="heard", startingOffsets="earliest", maxOffsetsPerTrigger=8, **given
    )
    assert listener.settled(query)
    assert sink.sent == sent
    assert [(report.batch_id, report.lag_by_topic) for report in reports] == [
        (0, {"heard": 12}), (1, {"heard": 4}), (2, {"heard": 0}),
    ]  # fmt: skip
    assert {report.run_id for report in reports} == {str(query.runId)}
    with Admin(broker.namesrv) as admin:
        committed = admin.offsets.committed("heard-readers", "heard")
    assert {queue.queue_id: at for queue, at in committed.items()} == {0: 10, 1: 10}


def test_a_session_of_ours_has_a_listener_that_commits_the_last_batch_of_a_running_query(
    spark: "SparkSession", streams: Streams, broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    from cometmq.spark.listener import attach

    listener = attach(spark)
    assert attach(spark) is listener
    broker.create_topic("followed", 1)
    queue, sink = MessageQueue("followed", "broker-a", 0), Collected()
    given = {"consumerGroup": "followers", "commitGroupOffsets": True}
    with Admin(broker.namesrv) as admin:
        with streams.running(sink, topic="followed", **given) as query:
            send(producer, "followed", 3, queues=[0])
            # Without another batch behind it.
            until(lambda: admin.offsets.committed("followers", "followed").get(queue) == 3, query)
        assert listener.settled(query)


SESSIONS = """
import gc, sys, threading
from cometmq.spark import session
from cometmq.spark.listener import attach
for _ in range(3):
    spark = session("brief", "local[1]", **{"spark.driver.memory": "600m"})
    query = spark.readStream.format("rate").load().writeStream.format("noop").start()
    query.processAllAvailable()
    query.stop()
    assert attach(spark).settled(query)
    spark.stop()
    del spark, query
    gc.collect()
print([thread.name for thread in threading.enumerate()].count("cometmq-spark-listener"))
"""


def test_listeners_of_sessions_that_are_stopped_end() -> None:
    pytest.importorskip("pyspark")
    done = subprocess.run(
        [sys.executable, "-c", SESSIONS], capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


class FakeSession:
    """One that does nothing, and can be stopped."""

    def __init__(self) -> None:
        self.streams = SimpleNamespace(addListener=lambda _: None)
        self.sparkContext = SimpleNamespace(_jsc=object())

    def stop(self) -> None:
        self.sparkContext._jsc = None


def test_a_listener_that_is_handed_on_outlives_its_first_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pyspark")
    from cometmq.spark import listener as module

    monkeypatch.setattr(module, "_attached", {})
    first, second, third = sessions = [FakeSession() for _ in range(3)]
    attach: Any = module.attach
    mine, closed = module.Listener(), []
    monkeypatch.setattr(mine, "close", lambda: closed.append(len(module._attached)))
    attach(first, mine)
    first.stop()
    assert attach(second, mine) is mine
    attach(third, mine)
    second.stop()
    attach(FakeSession())
    assert closed == [], "the third session runs"
    third.stop()
    attach(FakeSession())
    assert closed == [1]
    assert not set(sessions).intersection(module._attached)


def test_a_script_that_ends_with_its_query_has_committed_the_last_batch(
    broker: BlockingEmbeddedBroker, producer: Producer, checkpoint: str
) -> None:
    pytest.importorskip("pyspark")
    broker.create_topic("brief", 1)
    send(producer, "brief", 5, queues=[0])
    command = ["-m", "tests.spark.brief_query", broker.namesrv, "brief", checkpoint]
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    with Admin(broker.namesrv) as admin:
        committed = admin.offsets.committed("brief-readers", "brief")
    assert committed == {MessageQueue("brief", "broker-a", 0): 5}


def test_a_listener_that_fails_or_hangs_is_nothing_to_its_query(
    listen: Listen, streams: Streams, broker: BlockingEmbeddedBroker, producer: Producer,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    broker.create_topic("deaf", 1)
    sent = send(producer, "deaf", 9, queues=[0])
    go_on, heard = threading.Event(), []

    def fail(report: Report) -> None:
        heard.append(report.batch_id)
        assert go_on.wait(60)
        raise RuntimeError("no ear for this")

    listener, sink = listen(on_report=fail), Collected()
    given = {"consumerGroup": "deaf-readers", "commitGroupOffsets": True}
    with caplog.at_level(logging.ERROR, logger="cometmq.spark.listener"):
        query = streams.run(
            sink, topic="deaf", startingOffsets="earliest", maxOffsetsPerTrigger=3, **given
        )
        assert sink.sent == sent  # All of it, though the first report has not ended.
        assert heard == [0]
        assert not listener.settled(query, 0.1)
        go_on.set()
        assert listener.settled(query)
    assert heard == [0, 1, 2]
    raised = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert raised == ["no ear for this"] * 3
    with Admin(broker.namesrv) as admin:
        committed = admin.offsets.committed("deaf-readers", "deaf")
    assert committed == {MessageQueue("deaf", "broker-a", 0): 9}


def test_a_loss_is_reported_with_the_batch_that_misses_it(
    listen: Listen, spark: "SparkSession", checkpoint: str, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    reports: list[Report] = []
    file = tmp_path / "spark.prom"
    with EmbeddedBroker(settings=SHORT) as broker, Admin(broker.namesrv) as admin:
        broker.create_topic("orders", 1)
        streams, sink = Streams(spark, broker, checkpoint), Collected()
        given = {"topic": "orders", "startingOffsets": "earliest", "failOnDataLoss": False}
        with Producer(broker.namesrv, group="aging") as producer:
            send(producer, "orders", 10, queues=[0])
            streams.run(sink, **given)
            send(producer, "orders", 150, queues=[0])
        admin.brokers.delete_expired_log()
        begin = admin.offsets.min(FIRST)
        assert 10 < begin < 160
        listener = listen(on_report=reports.append, prometheus_file=file)
        query = streams.run(sink, maxOffsetsPerTrigger=60, **given)
        assert listener.settled(query)
    assert [loss for report in reports for loss in report.lost] == [
        Loss(QueueRange(FIRST, 10, begin), is_certain=True)
    ]
    assert reports[0].lost_by_topic == {"orders": begin - 10}
    assert f"topic orders, queue broker-a:0: 10 to {begin - 1} are lost" in caplog.text
    assert f'topic="orders"}} {begin - 10}\n' in file.read_text()
