"""Topics in lakes: once each, readable by all, resumed, and told to the brokers only then."""

import errno
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.cli.exits import Exit
from cometmq.cli.main import main
from cometmq.client.blocking import Admin, Producer
from cometmq.client.names import Message
from cometmq.protocol.message_queue import MessageQueue
from cometmq.spark.errors import BadOption, DataLost, SparkError
from cometmq.spark.pipelines import archive, archive_batches, compact, read_lake
from cometmq.spark.pipelines.archive import GROUP
from cometmq.spark.pipelines.archive_checkpoint import MANAGER, SETTING, quick_checkpoint
from cometmq.spark.pipelines.archive_group import ArchiveGroup
from cometmq.spark.pipelines.archive_progress import Archived, BatchDone
from cometmq.spark.pipelines.archive_query import STARTS_MAX, ArchiveQuery
from cometmq.spark.pipelines.archive_source import ArchiveReader
from cometmq.spark.pipelines.lake.lake import Lake
from cometmq.spark.pipelines.lake.lock import sole_writer
from cometmq.spark.pipelines.lake.place import Place
from cometmq.spark.pipelines.lake.records import BatchRecord
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .lakes import left_over, rows_in, sent_in
from .sending import SHORT, Sent, bodies, offsets_of, send
from .streaming import WAIT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Archive = Callable[..., Archived]
FORMATS = ["delta", "parquet"]
SPARKS_OWN = MANAGER.replace("FileSystemBased", "FileContextBased")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def run(spark: "SparkSession", broker: BlockingEmbeddedBroker, lake: Path) -> Archive:
    """Archive what is there now."""

    def run(*topics: str, **more: Any) -> Archived:
        given = {"topics": topics, "once": True, "spark": spark, **more}
        return archive(broker.namesrv, str(lake), **given)

    return run


def committed(broker: BlockingEmbeddedBroker, topic: str, group: str = GROUP) -> dict[int, int]:
    with Admin(broker.namesrv) as admin:
        return {q.queue_id: at for q, at in admin.offsets.committed(group, topic).items()}


@pytest.mark.parametrize("format_name", FORMATS)
def test_every_message_is_in_the_lake_once_however_often_it_is_archived(
    run: Archive,
    broker: BlockingEmbeddedBroker,
    producer: Producer,
    lake: Path,
    format_name: str,
    spark: "SparkSession",
) -> None:
    topic = f"orders-{format_name}"
    broker.create_topic(topic, 4)
    sent = send(producer, topic, 30)
    told = run(topic, format=format_name)
    assert (told.rows, told.batches, told.lag) == (30, 1, {topic: 0})
    assert sent_in(lake, format_name) == sent
    sent |= send(producer, topic, 10, queues=[1])
    told = run(topic, format=format_name, options={"maxOffsetsPerTrigger": "4"})
    assert (told.rows, told.batches) == (10, 3)
    assert run(topic, format=format_name).rows == 0
    assert sent_in(lake, format_name) == sent
    read = read_lake(spark, str(lake))
    assert read.columns[:2] == ["topic", "date"]
    assert bodies(read.collect()) == sent
    assert not left_over(lake)


def test_a_row_has_all_that_a_message_has(
    run: Archive, broker: BlockingEmbeddedBroker, producer: Producer, lake: Path
) -> None:
    broker.create_topic("archived-whole", 1)
    message = Message(
        "archived-whole",
        b"body" * 2000,
        tags="red",
        keys=["k1", "k2"],
        properties={"colour": "blue"},
    )
    sent = producer.send(message)
    run("archived-whole", format="parquet")
    [row] = rows_in(lake, "parquet").to_pylist()
    assert row["body"] == message.body
    assert (row["topic"], row["tags"], row["keys"]) == ("archived-whole", "red", "k1 k2")
    assert row["msgId"] == sent.message_id
    assert dict(row["properties"])["colour"] == "blue"
    assert row["bornHost"].startswith("127.0.0.1:")
    assert row["storeHost"] == broker.address
    assert row["date"] == str(row["storeTimestamp"].date())


def test_a_lake_of_parquet_is_read_by_spark_itself_and_by_anybody_who_looks_for_files(
    run: Archive,
    broker: BlockingEmbeddedBroker,
    producer: Producer,
    lake: Path,
    spark: "SparkSession",
) -> None:
    broker.create_topic("plain", 2)
    sent = send(producer, "plain", 20, queues=range(2))
    run("plain", format="parquet", options={"maxOffsetsPerTrigger": "8"})
    rows = spark.read.parquet(str(lake)).where("topic = 'plain'").collect()
    assert bodies(rows) == sent
    files = sorted(lake.rglob("*.parquet"))
    assert all(path.match("topic=plain/date=*/part-*.parquet") for path in files)
    assert bodies(spark.read.parquet(*map(str, files)).collect()) == sent


def test_several_topics_by_pattern_and_one_that_comes_later(
    run: Archive, broker: BlockingEmbeddedBroker, producer: Producer, lake: Path
) -> None:
    sent: dict[str, Sent] = {}
    for topic in ("by-a", "by-b"):
        broker.create_topic(topic, 2)
        sent[topic] = send(producer, topic, 5, queues=range(2))
    run(pattern="by-.*")
    broker.create_topic("by-c", 2)
    sent["by-c"] = send(producer, "by-c", 7, queues=range(2))
    run(pattern="by-.*")
    rows = rows_in(lake, "delta")
    for topic, expected in sent.items():
        part = rows.filter([one == topic for one in rows.column("topic").to_pylist()])
        assert sorted(part.column("body").to_pylist()) == sorted(expected.values())


def test_a_pattern_may_match_nothing_until_a_topic_comes(
    run: Archive, broker: BlockingEmbeddedBroker, producer: Producer, lake: Path
) -> None:
    assert run(pattern="later-.*").rows == 0
    broker.create_topic("later-one", 2)
    sent = send(producer, "later-one", 5, queues=range(2))
    assert run(pattern="later-.*").rows == 5
    assert sent_in(lake, "delta") == sent


def test_topics_of_retries_and_dead_letters_are_read_by_spark_also_when_compacted(
    broker: BlockingEmbeddedBroker, producer: Producer, tmp_path: Path, spark: "SparkSession"
) -> None:
    # As a URL or a pattern, that would be another path.
    lake = tmp_path / "my läke #1 [new], 50% full"
    topics = ["%RETRY%archived-group", "%DLQ%archived-group"]
    sent: dict[str, list[bytes]] = {}
    for topic in topics:
        broker.create_topic(topic, 1)
        sent[topic] = sorted(send(producer, topic, 5, queues=[0]).values())
    few = {"maxOffsetsPerTrigger": "4"}
    archive(broker.namesrv, str(lake), topics=topics, once=True, spark=spark, options=few)
    assert _by_topic(read_lake(spark, str(lake)).collect()) == sent
    assert compact(str(lake)).files_after == 2
    assert _by_topic(read_lake(spark, str(lake)).collect()) == sent


def _by_topic(rows: list[Any]) -> dict[str, list[bytes]]:
    return {
        topic: sorted(bytes(row.body) for row in rows if row.topic == topic)
        for topic in {row.topic for row in rows}
    }


# -- the brokers hear of it ----------------------------------------------------------------------


def test_the_group_is_where_the_lake_is_in_every_queue(
    run: Archive, broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("archived-told", 4)
    sent = send(producer, "archived-told", 9, queues=[0, 2])
    run("archived-told")
    ends = offsets_of("archived-told", sent)["archived-told"]
    found = committed(broker, "archived-told")
    assert found == {0: ends["broker-a:0"], 1: 0, 2: ends["broker-a:2"], 3: 0}


def test_the_group_does_not_hear_of_a_batch_that_is_not_in_the_lake(
    run: Archive,
    broker: BlockingEmbeddedBroker,
    producer: Producer,
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker.create_topic("early", 1)
    sent = send(producer, "early", 5, queues=[0])
    with monkeypatch.context() as patched:
        patched.setattr(Lake, "commit", _fails)
        with pytest.raises(SparkError, match="the disk is full"):
            run("early", group="early-group")
    assert committed(broker, "early", "early-group") == {}
    run("early", group="early-group")
    assert committed(broker, "early", "early-group") == {0: 5}
    assert sent_in(lake, "delta") == sent


def test_a_batch_that_died_behind_the_lakes_commit_is_told_and_not_archived_again(
    run: Archive,
    broker: BlockingEmbeddedBroker,
    producer: Producer,
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker.create_topic("late", 1)
    sent = send(producer, "late", 5, queues=[0])
    with monkeypatch.context() as patched:
        patched.setattr(ArchiveGroup, "commit", _fails)
        with pytest.raises(SparkError, match="the disk is full"):
            run("late", group="late-group")
    assert sent_in(lake, "delta") == sent
    run("late", group="late-group")
    assert sent_in(lake, "delta") == sent
    assert committed(broker, "late", "late-group") == {0: 5}


def test_a_group_that_a_broker_has_forgotten_is_put_back_when_an_archive_starts(
    spark: "SparkSession", lake: Path
) -> None:
    """Or retention would wait for the next message, which may never come."""
    given: dict[str, Any] = {"topics": ["forgotten"], "once": True, "spark": spark}
    with EmbeddedBroker(settings={"flushConsumerOffsetInterval": 600_000}) as broker:
        broker.create_topic("forgotten", 2)
        with Producer(broker.namesrv, group="spark-tests") as producer:
            send(producer, "forgotten", 10, queues=[0, 1])
        assert archive(broker.namesrv, str(lake), **given).rows == 10
        broker.restart(abrupt=True)
        assert committed(broker, "forgotten") == {}
        assert archive(broker.namesrv, str(lake), **given).rows == 0
        assert committed(broker, "forgotten") == {0: 5, 1: 5}


def test_a_batch_that_the_lake_has_needs_no_broker_to_have_it_still(
    spark: "SparkSession", lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Died behind the group's commit, which lets retention delete what the batch has read."""
    given: dict[str, Any] = {"topics": ["lossy"], "once": True, "spark": spark}
    with EmbeddedBroker(in_memory=True, settings=SHORT) as broker:
        broker.create_topic("lossy", 1)
        with Producer(broker.namesrv, group="spark-tests") as producer:
            sent = send(producer, "lossy", 30, queues=[0], message=_big)
            with monkeypatch.context() as patched:
                patched.setattr(archive_batches, "_lag", _fails)
                with pytest.raises(SparkError, match="the disk is full"):
                    archive(broker.namesrv, str(lake), **given)
            assert _aged(broker) > 0
            assert archive(broker.namesrv, str(lake), **given).rows == 30
            sent |= send(producer, "lossy", 3, queues=[0], message=_big)
            assert archive(broker.namesrv, str(lake), **given).rows == 3
    assert sent_in(lake, "delta") == sent


def test_a_batch_that_the_lake_has_is_not_written_again(
    run: Archive,
    broker: BlockingEmbeddedBroker,
    producer: Producer,
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker.create_topic("once-more", 1)
    send(producer, "once-more", 5, queues=[0])
    with monkeypatch.context() as patched:
        patched.setattr(ArchiveGroup, "commit", _fails)
        with pytest.raises(SparkError, match="the disk is full"):
            run("once-more")
    came: list[BatchRecord] = []
    commit = Lake.commit

    def seen(lake: Lake, record: BatchRecord, new_topics: Collection[str]) -> BatchRecord:
        came.append(record)
        return commit(lake, record, new_topics)

    monkeypatch.setattr(Lake, "commit", seen)
    assert run("once-more").rows == 5
    [again] = came
    assert (again.batch, again.files) == (0, [])
    assert again.ends == {"once-more": {"broker-a:0": 5}}, "where it ends is compared all the same"


def test_a_topic_that_was_deleted_does_not_keep_others_from_their_offsets(
    run: Archive,
    broker: BlockingEmbeddedBroker,
    producer: Producer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for topic in ("gone-a", "gone-b"):
        broker.create_topic(topic, 1)
        send(producer, topic, 5, queues=[0])
    run(pattern="gone-.*", group="gone-group")
    with Admin(broker.namesrv) as admin:
        admin.topics.delete("gone-a")
    send(producer, "gone-b", 2, queues=[0])
    small = {"maxOffsetsPerTrigger": "1"}
    assert run(pattern="gone-.*", group="gone-group", options=small).batches == 2
    assert committed(broker, "gone-b", "gone-group") == {0: 7}
    assert len(_told_of("gone-group", caplog)) == 1, "not with every batch"


def test_an_archive_that_has_begun_goes_on_without_a_topic_that_was_deleted(
    run: Archive, broker: BlockingEmbeddedBroker, producer: Producer, lake: Path
) -> None:
    for topic in ("remaining", "dropped"):
        broker.create_topic(topic, 1)
        send(producer, topic, 5, queues=[0])
    assert run("remaining", "dropped").rows == 10
    with Admin(broker.namesrv) as admin:
        admin.topics.delete("dropped")
    send(producer, "remaining", 2, queues=[0])
    assert run("remaining", "dropped").rows == 2
    assert rows_in(lake, "delta").num_rows == 12


def test_an_archive_that_has_begun_may_start_while_its_broker_is_away(
    spark: "SparkSession", lake: Path
) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("away", 1)
        with Producer(broker.namesrv, group="away") as producer:
            sent = send(producer, "away", 5, queues=[0])
        given: dict[str, Any] = {"topics": ["away"], "once": True, "spark": spark}
        archive(broker.namesrv, str(lake), **given)
        broker.stop_broker()
        assert archive(broker.namesrv, str(lake), **given).rows == 0
        broker.start_broker()
        assert archive(broker.namesrv, str(lake), **given).rows == 0
        assert sent_in(lake, "delta") == sent


def test_queues_that_are_gone_do_not_keep_others_from_their_offsets(
    run: Archive,
    broker: BlockingEmbeddedBroker,
    producer: Producer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker.create_topic("shrunk", 4)
    send(producer, "shrunk", 8)
    run("shrunk", group="shrunk-group")
    broker.create_topic("shrunk", 2)
    send(producer, "shrunk", 6, queues=range(2))
    assert run("shrunk", group="shrunk-group", options={"maxOffsetsPerTrigger": "2"}).batches == 3
    assert committed(broker, "shrunk", "shrunk-group") == {0: 5, 1: 5}
    assert len(_told_of("shrunk-group", caplog)) == 1, "not with every batch"


def _told_of(group: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if group in text]


def _fails(*_: object) -> None:
    raise OSError("the disk is full")


# -- what goes wrong -----------------------------------------------------------------------------


def test_a_second_checkpoint_for_the_same_topic_is_refused(
    run: Archive, broker: BlockingEmbeddedBroker, producer: Producer, lake: Path, tmp_path: Path
) -> None:
    broker.create_topic("claimed", 1)
    sent = send(producer, "claimed", 5, queues=[0])
    run("claimed")
    with pytest.raises(BadOption, match="topic claimed is archived in"):
        run("claimed", checkpoint=str(tmp_path / "another"))
    assert sent_in(lake, "delta") == sent


@pytest.mark.parametrize("path", ["", "checkpoint", "topic=orders/_checkpoint"])
def test_a_checkpoint_among_the_files_of_a_lake_is_refused(
    run: Archive, lake: Path, path: str
) -> None:
    with pytest.raises(BadOption, match="lies among the files of the lake: begin its name"):
        run("payments", checkpoint=f"file:{lake / path}")
    assert not lake.exists()


def test_a_second_archive_with_the_same_checkpoint_is_refused_while_the_first_one_runs(
    run: Archive, broker: BlockingEmbeddedBroker, producer: Producer, lake: Path, tmp_path: Path
) -> None:
    for topic in ("first-one", "other-one"):
        broker.create_topic(topic, 1)
        send(producer, topic, 5, queues=[0])
    refused: list[str] = []

    def meanwhile(_: BatchDone) -> None:
        with pytest.raises(BadOption, match="another archive writes this lake") as told:
            run("first-one")
        refused.append(str(told.value))

    run("first-one", on_batch=meanwhile)
    assert len(refused) == 1
    with sole_writer(Place(str(lake)), str(lake / "_checkpoint")):
        assert run("other-one", checkpoint=str(tmp_path / "another")).rows == 5
    assert rows_in(lake, "delta").num_rows == 10


def test_options_that_cannot_be_are_refused_before_anything_runs(run: Archive) -> None:
    with pytest.raises(BadOption, match="there is no topic missing"):
        run("missing")
    with pytest.raises(BadOption, match="name topics, or a pattern"):
        run()
    with pytest.raises(BadOption, match="subscribe is set by the archive itself"):
        run("x", options={"subscribe": "y"})
    with pytest.raises(BadOption, match="unknown option startingOffset; did you mean"):
        run("x", options={"startingOffset": "latest"})
    with pytest.raises(BadOption, match="group is empty"):
        run("x", group="")


def test_lost_messages_stop_the_archive_or_are_left_out(
    spark: "SparkSession", lake: Path, tmp_path: Path
) -> None:
    with EmbeddedBroker(in_memory=True, settings=SHORT) as broker:
        broker.create_topic("lossy", 1)
        with Producer(broker.namesrv, group="spark-tests") as producer:
            archive(broker.namesrv, str(lake), topics=["lossy"], once=True, spark=spark)
            sent = send(producer, "lossy", 30, queues=[0], message=_big)
            first = _aged(broker)
            given: dict[str, Any] = {"topics": ["lossy"], "once": True, "spark": spark}
            with pytest.raises(DataLost, match="lost between 0 and"):
                archive(broker.namesrv, str(lake), **given)
            archive(broker.namesrv, str(lake), **given, options={"failOnDataLoss": "false"})
    left = {place: body for place, body in sent.items() if place[2] >= first}
    assert 0 < len(left) < 30
    assert sent_in(lake, "delta") == left


def _big(number: int) -> Message:
    return Message("lossy", b"%04d" % number * 500)


def _aged(broker: BlockingEmbeddedBroker) -> int:
    """Have retention delete what it can; where the queue begins then."""
    with Admin(broker.namesrv) as admin:
        admin.brokers.delete_expired_log()
        return admin.offsets.min(MessageQueue("lossy", "broker-a", 0))


# -- running on ----------------------------------------------------------------------------------


def test_an_archive_that_runs_ends_behind_the_batch_when_it_is_told_to(
    run: Archive, broker: BlockingEmbeddedBroker, producer: Producer, lake: Path
) -> None:
    broker.create_topic("running", 2)
    sent = send(producer, "running", 10, queues=range(2))
    stop, seen = threading.Event(), list[BatchDone]()

    def on_batch(done: BatchDone) -> None:
        seen.append(done)
        if len(seen) == 1:
            sent.update(send(producer, "running", 6, queues=range(2)))
        elif sum(one.rows for one in seen) == 16:
            stop.set()

    run("running", once=False, interval_s=0.1, stop=stop, on_batch=on_batch)
    assert sent_in(lake, "delta") == sent
    assert "10 messages in 1 file," in str(seen[0])
    assert str(seen[-1]).endswith("nothing left to do")


def test_an_interval_may_be_long(
    run: Archive, broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("seldom", 1)
    send(producer, "seldom", 5, queues=[0])
    stop = threading.Event()
    given = {"once": False, "interval_s": 12 * 86_400.0, "stop": stop}
    assert run("seldom", **given, on_batch=lambda _: stop.set()).rows == 5


@pytest.mark.parametrize(("failures", "succeeds"), [(STARTS_MAX - 1, True), (STARTS_MAX, False)])
def test_a_machine_that_is_too_busy_for_spark_is_given_some_more_chances(
    monkeypatch: pytest.MonkeyPatch, failures: int, succeeds: bool
) -> None:
    outcomes = [RuntimeError("[X] Python worker failed to connect back. Y")] * failures

    def run_once(*_: object) -> None:
        if outcomes:
            raise outcomes.pop()

    class NoBatches:
        done = 0
        failure = None

    monkeypatch.setattr(ArchiveQuery, "_run_once", run_once)
    query = ArchiveQuery(None, {}, "", {})  # type: ignore[arg-type]
    made: Any = NoBatches
    if succeeds:
        query.run(made, threading.Event())
    else:
        with pytest.raises(SparkError, match="failed to connect back"):
            query.run(made, threading.Event())
    assert not outcomes


def test_a_batch_that_fails_while_a_stop_waits_for_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = threading.Event()

    class Query:
        def awaitTermination(self, _: float) -> bool:  # noqa: N802 - Spark's name
            stop.set()
            return False

        def stop(self) -> None:
            """Says nothing of what a batch failed with."""

    class LastBatch:
        done = 0
        failure: Exception | None = None

        def tell_again(self) -> None:
            pass

        def close(self) -> None:
            self.failure = OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ArchiveQuery, "_started", lambda *_: Query())
    query = ArchiveQuery(None, {}, "", {})  # type: ignore[arg-type]
    made: Any = LastBatch
    with pytest.raises(SparkError, match="No space left"):
        query.run(made, stop)


def test_a_topic_made_anew_while_its_batch_was_archived_is_not_taken_for_archived(
    run: Archive,
    broker: BlockingEmbeddedBroker,
    producer: Producer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker.create_topic("anew-meanwhile", 1)
    send(producer, "anew-meanwhile", 6, queues=[0])
    queue = MessageQueue("anew-meanwhile", "broker-a", 0)
    commit = Lake.commit

    def commit_late(lake: Lake, *given: Any) -> Any:
        with Admin(broker.namesrv) as admin:
            admin.topics.delete("anew-meanwhile")
        broker.create_topic("anew-meanwhile", 1)
        send(producer, "anew-meanwhile", 4, queues=[0])
        return commit(lake, *given)

    monkeypatch.setattr(Lake, "commit", commit_late)
    with pytest.raises(DataLost, match="between 4 and 6"):
        run("anew-meanwhile")
    with Admin(broker.namesrv) as admin:
        assert admin.offsets.max(queue) == 4
        assert admin.offsets.committed("cometmq-archive", "anew-meanwhile").get(queue) is None


def test_a_task_that_fails_and_is_tried_again_leaves_nothing_behind(
    run: Archive, broker: BlockingEmbeddedBroker, producer: Producer, lake: Path
) -> None:
    broker.create_topic("staged", 1)
    sent = send(producer, "staged", 5, queues=[0])
    run("staged", format="parquet")
    [query] = (lake / "_staging").iterdir()
    attempt = query / "1" / "0123.staged"
    attempt.parent.mkdir()
    attempt.write_bytes(b"half of a file, by an attempt that was killed")
    sent |= send(producer, "staged", 5, queues=[0])
    run("staged", format="parquet")
    assert sent_in(lake, "parquet") == sent
    assert not left_over(lake)


def test_a_checkpoint_on_a_disk_is_kept_quickly_unless_the_user_has_chosen_how(
    spark: "SparkSession", tmp_path: Path
) -> None:
    with quick_checkpoint(spark, str(tmp_path)):
        assert spark.conf.get(SETTING) == MANAGER  # It is there, too: else nothing is set.
    assert spark.conf.get(SETTING, None) is None
    with quick_checkpoint(spark, "hdfs://somewhere/checkpoint"):
        assert spark.conf.get(SETTING, None) is None
    spark.conf.set(SETTING, "a.manager.of.the.user")
    try:
        with quick_checkpoint(spark, str(tmp_path)):
            assert spark.conf.get(SETTING) == "a.manager.of.the.user"
        assert spark.conf.get(SETTING) == "a.manager.of.the.user"
    finally:
        spark.conf.unset(SETTING)


def test_a_checkpoint_that_spark_kept_its_own_way_is_continued_and_the_other_way_round(
    run: Archive,
    broker: BlockingEmbeddedBroker,
    producer: Producer,
    lake: Path,
    spark: "SparkSession",
) -> None:
    broker.create_topic("kept", 1)
    sent: Sent = {}
    for manager in (SPARKS_OWN, "", SPARKS_OWN, ""):
        sent |= send(producer, "kept", 5, queues=[0])
        if manager:
            spark.conf.set(SETTING, manager)
        try:
            assert run("kept").rows == 5
        finally:
            spark.conf.unset(SETTING)
    assert sent_in(lake, "delta") == sent


def test_what_a_process_of_spark_loads_of_the_archive_is_little() -> None:
    source = "cometmq.spark.pipelines.archive_source"
    program = f"import sys, {source}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert source in loaded
    jobs = ("archive", "replay", "redrive", "report", "archive_files")
    assert not {f"cometmq.spark.pipelines.{job}" for job in jobs} & set(loaded)


def test_jobs_are_found_whether_or_not_their_modules_were_loaded_before() -> None:
    program = (
        "import cometmq.spark.pipelines.replay, cometmq.spark.pipelines as jobs; "
        "assert all(callable(getattr(jobs, name)) for name in jobs.__all__); "
        "from cometmq.spark.pipelines import archive, replay; assert callable(archive); "
        "from cometmq.spark.pipelines.archive import GROUP; assert callable(jobs.archive)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_batch_without_messages_has_a_task_that_tells_where_it_ends() -> None:
    reader = ArchiveReader({"namesrvAddr": "127.0.0.1:1", "topic": "t"}, None, "", "delta")  # type: ignore[arg-type]
    place: dict[str, Any] = {"t": {"broker-a:0": 7}}
    [task] = reader.partitions(place, place)
    [rows] = reader.read(task)
    [told] = rows.column("written").to_pylist()
    assert json.loads(told) == {"files": [], "ends": place}


# -- compaction ----------------------------------------------------------------------------------


def test_compaction_makes_few_files_of_many_and_the_archive_goes_on(
    run: Archive,
    broker: BlockingEmbeddedBroker,
    producer: Producer,
    lake: Path,
    spark: "SparkSession",
) -> None:
    broker.create_topic("archived-small", 1)
    sent = send(producer, "archived-small", 12, queues=[0])
    run("archived-small", options={"maxOffsetsPerTrigger": "3"})
    before = rows_in(lake, "delta").sort_by("queueOffset")
    told = compact(str(lake))
    assert (told.files_before, told.files_after, told.files_deleted) == (4, 1, 0)
    assert rows_in(lake, "delta").sort_by("queueOffset").equals(before)
    sent |= send(producer, "archived-small", 3, queues=[0])
    assert run("archived-small").rows == 3
    assert sent_in(lake, "delta") == sent
    assert bodies(read_lake(spark, str(lake)).collect()) == sent


def test_compaction_refuses_what_readers_would_notice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = ("brokerName", "queueId", "queueOffset", "storeTimestamp")
    Lake(str(tmp_path / "plain"), "parquet", columns)
    assert main(["spark", "compact", "--lake", str(tmp_path / "plain")]) == Exit.USAGE
    assert "would see rows twice or not at all" in capsys.readouterr().err
    Lake(str(tmp_path / "delta"), "delta", columns)
    given = ["spark", "compact", "--lake", str(tmp_path / "delta")]
    assert main([*given, "--retention", "1h"]) == Exit.USAGE
    assert "168 h or more is safe" in capsys.readouterr().err
    assert main([*given, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["files_after"] == 0
    assert main(["spark", "compact", "--lake", str(tmp_path / "nothing")]) == Exit.NOT_FOUND
    assert "is no lake" in capsys.readouterr().err


# -- the command ---------------------------------------------------------------------------------


def test_the_command_archives_until_a_signal_and_tells_what_it_did(
    broker: BlockingEmbeddedBroker, producer: Producer, lake: Path
) -> None:
    broker.create_topic("commanded", 2)
    sent = send(producer, "commanded", 10, queues=range(2))
    given = ["--namesrv", broker.namesrv, "--topic", "commanded", "--lake", str(lake)]
    small = ["--master", "local[2]", "--conf", "spark.driver.memory=1g", "--interval", "1s"]
    command = [sys.executable, "-m", "cometmq.cli.main", "spark", "archive", *given, *small]
    with subprocess.Popen(
        [*command, "-o", "json"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stderr is not None
            said = ""
            while "batch 0: 10 messages" not in said and (line := process.stderr.readline()):
                said += line
            process.send_signal(signal.SIGTERM)
            told, rest = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert process.returncode == 0, said + rest
    assert json.loads(told)["rows"] == 10
    assert "Traceback" not in said + rest
    assert sent_in(lake, "delta") == sent
