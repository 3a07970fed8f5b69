"""Messages of lakes, stores and topics are sent again, in order, each once."""

import datetime as dt
import importlib
import itertools
import math
import re
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.cli import spark_replay
from cometmq.cli.commands import build_parser
from cometmq.client.blocking import Admin, Producer
from cometmq.client.names import Message, ReceivedMessage
from cometmq.protocol.message import Message as ProtocolMessage
from cometmq.protocol.message_queue import MessageQueue
from cometmq.spark.errors import BadOption, NotSent, SparkError
from cometmq.spark.own_properties import own_properties
from cometmq.spark.pace import Pace
from cometmq.spark.pipelines import archive, replay_plan, replay_run
from cometmq.spark.pipelines.replay import replay
from cometmq.spark.pipelines.replay_attempts import BegunBefore
from cometmq.spark.pipelines.replay_checkpoint import Checkpoint, checkpoint_directory
from cometmq.spark.pipelines.replay_plan import Plan, SourceQueue, steps_for, with_targets
from cometmq.spark.pipelines.replay_run import Replayed, Run, settle_s
from cometmq.spark.pipelines.replay_sending import FROM, ready
from cometmq.spark.pipelines.replay_sources import Choice
from cometmq.spark.topic.patience import PATIENCE_S
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .dead_letters import messages_of
from .log_stores import with_messages
from .sending import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AWAY_S = 3.0
QUEUES = 4
replay_module = importlib.import_module("cometmq.spark.pipelines.replay")
"""The package gives the job under this name."""


class Replays:
    """A topic with messages, and one that gets them again."""

    def __init__(
        self, spark: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer, name: str
    ) -> None:
        self.spark = spark
        self.broker = broker
        self.producer = producer
        self.source, self.target = f"{name}-a", f"{name}-b"
        broker.create_topic(self.source, QUEUES)
        broker.create_topic(self.target, QUEUES)

    def send(self, count: int, message: Callable[[int], Message] | None = None) -> None:
        send(self.producer, self.source, count, queues=range(QUEUES), message=message)

    def replay(self, **more: Any) -> Replayed:
        """From topic to topic unless it is said else."""
        if not {"lake", "store"} & more.keys():
            more.setdefault("choice", Choice(topics=(self.source,)))
        return replay(self.broker.namesrv, **{"to": self.target, "spark": self.spark, **more})

    def to_parquet(self, path: Path) -> str:
        reader = self.spark.read.format("rocketmq").option("namesrvAddr", self.broker.namesrv)
        frame = reader.option("topic", self.source).option("includeProperties", "true").load()
        frame.selectExpr("*", "to_date(storeTimestamp) as date").write.partitionBy(
            "topic", "date"
        ).parquet(str(path))
        return str(path)

    def stored(self, topic: str) -> list[ReceivedMessage]:
        return messages_of(self.broker.namesrv, topic)

    def check_order(self, count: int) -> None:
        """All messages are there once, and those of a source queue stand in one queue, in order."""
        by_source: dict[str, list[tuple[MessageQueue, int]]] = defaultdict(list)
        bodies = []
        for message in self.stored(self.target):
            topic, queue, offset = message.properties[FROM].split()
            assert topic == self.source
            by_source[queue].append((message.queue, int(offset)))
            bodies.append(message.body)
        assert sorted(bodies) == sorted(m.body for m in self.stored(self.source))
        assert len(bodies) == count
        for places in by_source.values():
            assert len({queue for queue, _ in places}) == 1
            assert [offset for _, offset in places] == sorted({offset for _, offset in places})


@pytest.fixture
def replays(
    spark: "SparkSession",
    broker: BlockingEmbeddedBroker,
    producer: Producer,
    request: pytest.FixtureRequest,
) -> Replays:
    name = re.sub("[^a-zA-Z]+", "-", request.node.name)[5:100]
    return Replays(spark, broker, producer, name)


def rich(topic: str) -> Callable[[int], Message]:
    def message(number: int) -> Message:
        return Message(
            topic, b"body %d" % number, tags="even" if number % 2 == 0 else "odd",
            keys=("all", f"k{number}"), properties={"n": str(number)}, sharding_key=f"s{number}",
        )  # fmt: skip

    return message


def test_a_topic_is_replayed_in_order_and_as_it_was_sent(replays: Replays) -> None:
    replays.send(40, rich(replays.source))
    told = replays.replay()
    assert (told.messages, told.sent, told.found, told.steps) == (40, 40, 0, 1)
    assert told.by_topic == {replays.target: 40}
    replays.check_order(40)
    for message in replays.stored(replays.target):
        number = message.body.decode().split()[1]
        assert message.tags == ("even" if int(number) % 2 == 0 else "odd")
        assert message.keys == ["all", f"k{number}"]
        assert message.sharding_key == f"s{number}"
        assert message.properties["n"] == number


def test_a_lake_is_replayed(replays: Replays, tmp_path: Path) -> None:
    replays.send(40, rich(replays.source))
    lake = replays.to_parquet(tmp_path / "lake")
    assert replays.replay(lake=lake, keep_queues=True).sent == 40
    replays.check_order(40)
    for message in replays.stored(replays.target):
        assert message.properties[FROM].split()[1] == f"broker-a:{message.queue.queue_id}"


def test_messages_whose_bodies_could_not_be_read_are_left_out_and_told_of(
    replays: Replays, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a lake that was made with failOnDataLoss=false; one queue has no others."""
    replays.send(40)
    whole = replays.spark.read.parquet(replays.to_parquet(tmp_path / "whole"))
    lost = "queueId = 0 or queueOffset = 3"
    path = str(tmp_path / "lake")
    whole.selectExpr("* except (body)", f"if({lost}, null, body) as body").write.parquet(path)
    assert len(replays.replay(lake=path, dry_run=True).samples) > 0
    assert replays.replay(lake=path).sent == 27
    assert "13 messages are left out: their bodies could not be read" in caplog.text
    assert len(replays.stored(replays.target)) == 27


def test_a_message_that_cannot_be_sent_is_named_and_can_be_left_out(
    replays: Replays, tmp_path: Path
) -> None:
    replays.send(40)
    whole = replays.spark.read.parquet(replays.to_parquet(tmp_path / "whole"))
    path = str(tmp_path / "lake")
    odd = "if(queueId = 2 and queueOffset = 7, binary(''), body)"
    whole.selectExpr("* except (body)", f"{odd} as body").write.parquet(path)
    with pytest.raises(NotSent, match=f"^{replays.source} broker-a:2 7: its body is e") as raised:
        replays.replay(lake=path)
    (where,) = re.findall('--where "(.+)"', str(raised.value))
    assert replays.replay(lake=path, choice=Choice(where=where), dry_run=True).messages == 39


def test_what_the_archive_has_kept_is_replayed(replays: Replays, tmp_path: Path) -> None:
    replays.send(20, rich(replays.source))
    lake = str(tmp_path / "lake")
    archive(
        replays.broker.namesrv, lake, topics=[replays.source], once=True,
        group=f"{replays.source}-archive", spark=replays.spark,
    )  # fmt: skip
    assert replays.replay(lake=lake).sent == 20
    replays.check_order(20)
    assert {m.properties["n"] for m in replays.stored(replays.target)} == set(map(str, range(20)))


def test_the_files_of_a_store_are_replayed_in_steps(
    replays: Replays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_plan, "STEP_ROWS", 15)
    replays.send(40)
    store = str(replays.broker.directory / "broker-a")
    told = replays.replay(store=store, choice=Choice(topics=(replays.source,)))
    assert (told.sent, told.steps, told.steps_done) == (40, 3, 3)
    found = sorted(message.body for message in replays.stored(replays.target))
    assert found == sorted(b"message %d" % number for number in range(40))


def test_a_topic_that_was_made_anew_is_replayed_one_after_the_other(replays: Replays) -> None:
    """A log has messages of the topic that was deleted, too, with the same queues and offsets."""
    replays.send(12, lambda number: Message(replays.source, b"old %02d" % number))
    with Admin(replays.broker.namesrv) as admin:
        admin.topics.delete(replays.source)
    replays.broker.create_topic(replays.source, QUEUES)
    replays.send(8, lambda number: Message(replays.source, b"young %d" % number))
    store = str(replays.broker.directory / "broker-a")
    assert replays.replay(store=store, choice=Choice(topics=(replays.source,))).sent == 20
    by_queue = defaultdict[MessageQueue, list[bytes]](list)
    for message in replays.stored(replays.target):
        by_queue[message.queue].append(message.body)
    assert len(by_queue) == QUEUES
    for bodies in by_queue.values():
        assert bodies == sorted(bodies)


def test_a_choice_is_all_that_is_sent(replays: Replays, tmp_path: Path) -> None:
    replays.send(40, rich(replays.source))
    lake = replays.to_parquet(tmp_path / "lake")
    choice = Choice(
        topics=(replays.source,), first_offset=2, end_offset=8,
        where="tags = 'even' and properties['n'] < '3'",
    )  # fmt: skip
    replays.replay(lake=lake, choice=choice)
    expected = {
        m.body
        for m in replays.stored(replays.source)
        if 2 <= m.queue_offset < 8 and m.tags == "even" and m.properties["n"] < "3"
    }
    assert {message.body for message in replays.stored(replays.target)} == expected
    assert expected


def test_all_of_a_source_is_all_but_the_topics_of_the_system(
    replays: Replays, tmp_path: Path
) -> None:
    system = ("%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC")
    values = ", ".join(f"('{topic}')" for topic in (replays.source, *system))
    replays.spark.sql(
        "select topic, 0 as queueId, 0L as queueOffset, current_timestamp() as storeTimestamp, "
        f"cast('x' as binary) as body from values {values} as messages(topic)"
    ).write.parquet(str(tmp_path / "lake"))
    lake = {"lake": str(tmp_path / "lake"), "dry_run": True}
    assert list(replays.replay(**lake).queues) == [f"{replays.source} :0"]
    assert list(replays.replay(**lake, choice=Choice(topics=system[1:2])).queues) == ["%DLQ%g :0"]


def test_times_choose_messages(replays: Replays) -> None:
    replays.send(4)
    later = round(dt.datetime.now(dt.UTC).timestamp() * 1000) + 3_600_000
    for nothing in (Choice(topics=(replays.source,), since_ms=later),
                    Choice(topics=(replays.source,), until_ms=1)):  # fmt: skip
        assert replays.replay(choice=nothing).messages == 0
    everything = Choice(topics=(replays.source,), since_ms=1, until_ms=later)
    assert replays.replay(choice=everything).sent == 4


def test_a_dry_run_counts_and_shows_and_sends_nothing(replays: Replays) -> None:
    replays.send(12, rich(replays.source))
    told = replays.replay(dry_run=True)
    assert (told.messages, told.sent) == (12, 0)
    assert told.bytes == sum(len(b"body %d" % number) for number in range(12))
    assert len(told.queues) == QUEUES
    assert told.samples[0].place == f"{replays.source} broker-a:0 0"
    assert replays.stored(replays.target) == []


def test_a_rate_is_kept(replays: Replays) -> None:
    replays.send(30)
    replays.replay(rate=20)
    times = [message.store_timestamp for message in replays.stored(replays.target)]
    assert len(times) == 30
    assert max(times) - min(times) >= 1000, "30 messages at 20 a second"


@pytest.mark.parametrize("all_of_it", [True, False])
def test_a_replay_goes_on_in_the_middle_of_a_step(
    replays: Replays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_of_it: bool
) -> None:
    monkeypatch.setattr(replay_plan, "STEP_ROWS", 20)
    monkeypatch.setattr(replay_run, "SETTLE_S", 0.1)
    replays.send(60)
    checkpoint = str(tmp_path / "checkpoint")
    real = Run._send

    def killed_behind(run: Run, at: Any, skip: dict[int, int], rate: float | None) -> int:
        """Messages are sent, but nobody notes it."""
        sent = real(run, at, skip, rate)
        if at.step == 1:
            raise RuntimeError("killed")
        return sent

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_send", killed_behind)
        if not all_of_it:
            patch.setattr(
                replay_run, "ready", lambda frame, *how: ready(frame.where("queueOffset < 7"), *how)
            )
        with pytest.raises(SparkError, match="killed"):
            replays.replay(checkpoint=checkpoint)
    there = len(replays.stored(replays.target))
    assert there == (40 if all_of_it else 20 + 2 * QUEUES)
    told = replays.replay(checkpoint=checkpoint)
    assert (told.found, told.sent) == (there, 60 - there)
    replays.check_order(60)
    again = replays.replay(checkpoint=checkpoint)
    assert (again.found, again.sent) == (60, 0)
    replays.check_order(60)


def choice_of(line: str, monkeypatch: pytest.MonkeyPatch, now_s: float) -> Choice:
    """What the command asks for when it is typed at that time."""
    asked: dict[str, Any] = {}

    def noted(_: str, **options: Any) -> Replayed:
        asked.update(options)
        return Replayed("", dry_run=False)

    with monkeypatch.context() as patch:
        patch.setattr(replay_module, "replay", noted)
        patch.setattr(spark_replay, "quiet_session", lambda *_: None)
        patch.setattr(signal, "signal", lambda *_: None)
        patch.setattr(time, "time", lambda: now_s)
        words = ["spark", "replay", "--namesrv", "127.0.0.1:1", *line.split()]
        assert spark_replay.run(build_parser("spark").parse_args(words)) == 0
    choice: Choice = asked["choice"]
    return choice


def test_how_long_ago_is_meant_from_the_first_run_of_a_checkpoint(
    replays: Replays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_plan, "STEP_ROWS", 20)
    monkeypatch.setattr(replay_run, "SETTLE_S", 0.1)
    replays.send(60)
    line = f"--from-topics --topic {replays.source} --to {replays.target} --since 2h --until 1m"
    first, later = (choice_of(line, monkeypatch, time.time() + more) for more in (120, 86_400))
    other = choice_of(line.replace("2h", "3h"), monkeypatch, time.time() + 120)
    checkpoint = str(tmp_path / "checkpoint")

    def killed(told: Replayed) -> None:
        raise RuntimeError(f"killed behind step {told.steps_done}")

    with pytest.raises(SparkError, match="killed behind step 1"):
        replays.replay(choice=first, checkpoint=checkpoint, on_progress=killed)
    with pytest.raises(BadOption, match="it is of another replay"):
        replays.replay(choice=other, checkpoint=checkpoint)
    assert replays.replay(choice=later, checkpoint=checkpoint).sent == 40
    replays.check_order(60)


def test_times_of_a_program_are_those_of_its_checkpoint(replays: Replays, tmp_path: Path) -> None:
    replays.send(4)
    checkpoint = str(tmp_path / "checkpoint")
    replays.replay(choice=Choice(topics=(replays.source,), since_ms=1), checkpoint=checkpoint)
    with pytest.raises(BadOption, match="it is of another replay"):
        replays.replay(choice=Choice(topics=(replays.source,), since_ms=2), checkpoint=checkpoint)


def test_a_step_whose_tasks_are_lost_is_tried_again_but_not_for_ever(
    replays: Replays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_run, "SETTLE_S", 0.1)
    replays.send(8)
    tries: list[dict[int, int]] = []

    def lost(_: Run, at: Any, skip: dict[int, int], rate: float | None) -> int:
        tries.append(skip)
        raise BegunBefore("attempt 2")

    monkeypatch.setattr(Run, "_send", lost)
    with pytest.raises(SparkError, match="step 1: Spark has lost tasks of it 4 times"):
        replays.replay()
    assert tries == [{}] * replay_run.STEP_TRIES_MAX


def test_a_broker_that_is_started_anew_between_two_steps_is_waited_for(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """No NameServer knows its topics meanwhile."""
    monkeypatch.setattr(replay_plan, "STEP_ROWS", 20)
    with EmbeddedBroker() as broker:
        with Producer(broker.namesrv, group="replayed") as producer:
            replays = Replays(spark, broker, producer, "restarted")
            replays.send(60)
        starting = threading.Timer(AWAY_S, broker.start_broker)

        def stop(_: Replayed) -> None:
            if starting.ident is None:
                broker.stop_broker()
                starting.start()

        assert replays.replay(on_progress=stop).sent == 60
        starting.join()
        replays.check_order(60)


def test_a_target_that_is_gone_when_a_replay_goes_on_is_told_at_once(
    replays: Replays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_plan, "STEP_ROWS", 20)
    replays.send(60)
    checkpoint = str(tmp_path / "checkpoint")

    def delete(_: Replayed) -> None:
        with Admin(replays.broker.namesrv) as admin:
            admin.topics.delete(replays.target)
        raise RuntimeError("killed")

    with pytest.raises(SparkError, match="killed"):
        replays.replay(checkpoint=checkpoint, on_progress=delete)
    begun = time.monotonic()
    with pytest.raises(BadOption, match=f"there is no topic {replays.target}: create it first"):
        replays.replay(checkpoint=checkpoint)
    assert time.monotonic() - begun < PATIENCE_S / 2


def test_two_attempts_at_a_time_are_refused(
    replays: Replays, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Spark's own setting can only be made before it starts.
    monkeypatch.setattr(replay_module, "SPECULATION", "cometmq.test.speculation")
    replays.spark.conf.set("cometmq.test.speculation", "true")
    try:
        with pytest.raises(BadOption, match="speculation: two attempts at a task"):
            replays.replay()
    finally:
        replays.spark.conf.unset("cometmq.test.speculation")


def test_a_topic_that_the_source_does_not_have_is_told(replays: Replays, tmp_path: Path) -> None:
    replays.send(4)
    there, missing = (replays.source,), (replays.source, "mispelt")
    lake = replays.to_parquet(tmp_path / "lake")
    store = str(replays.broker.directory / "broker-a")
    for source in ({"lake": lake}, {"store": store}, {}):
        with pytest.raises(SparkError, match="mispelt"):
            replays.replay(choice=Choice(topics=missing), **source)
        nothing = Choice(topics=there, until_ms=1)
        assert replays.replay(choice=nothing, **source).messages == 0, "but the topic is there"
    assert replays.stored(replays.target) == []


def test_a_lake_is_opened_only_for_the_days_that_are_asked_for(
    replays: Replays, tmp_path: Path
) -> None:
    replays.send(8)
    lake = str(tmp_path / "lake")
    archive(
        replays.broker.namesrv, lake, topics=[replays.source], once=True,
        group=f"{replays.source}-archive", spark=replays.spark, format="parquet",
    )  # fmt: skip
    (file,) = Path(lake).glob(f"topic={replays.source}/date=*/*.parquet")
    day = dt.date.fromisoformat(file.parent.name.partition("=")[2])
    for other in (day - dt.timedelta(1), day + dt.timedelta(1)):
        damaged = file.parent.parent / f"date={other}" / "damaged.parquet"
        damaged.parent.mkdir()
        damaged.write_bytes(b"no Parquet")
    begin = round(dt.datetime.combine(day, dt.time(), dt.UTC).timestamp() * 1000)
    whole_day = Choice(since_ms=begin, until_ms=begin + 86_400_000 - 1)
    assert replays.replay(lake=lake, choice=whole_day).sent == 8
    assert replays.replay(lake=lake, choice=Choice(since_ms=begin, until_ms=begin)).messages == 0


def test_days_of_all_times_can_be_said() -> None:
    assert Choice().dates() == "true"
    assert Choice(since_ms=-1, until_ms=86_400_000).dates() == (
        "date >= date'1969-12-31' and date <= date'1970-01-02'"
    )
    assert Choice(since_ms=-(2**63), until_ms=2**63 - 1).dates() == (
        "date >= date'0001-01-01' and date <= date'9999-12-31'"
    )


def test_a_damaged_store_is_replayed_as_its_reader_is_told(
    replays: Replays, tmp_path: Path
) -> None:
    bodies = [b"damaged %d" % number for number in range(30)]
    messages = [ProtocolMessage(replays.source, 0, body) for body in bodies]
    store = with_messages(tmp_path / "store", *messages)
    (log,) = list((store / "commitlog").iterdir())[:1]
    content = bytearray(log.read_bytes())
    content[content.index(b"damaged 7")] ^= 0xFF
    log.write_bytes(content)
    choice = Choice(topics=(replays.source,))
    with pytest.raises(SparkError, match="tolerateDamage=true goes on"):
        replays.replay(store=str(store), choice=choice)
    told = replays.replay(store=str(store), choice=choice, options={"tolerateDamage": "true"})
    assert told.sent == 29
    with pytest.raises(BadOption, match="tolerateDamage: a replay takes accessKey"):
        replays.replay(options={"tolerateDamage": "true"})


def test_a_checkpoint_is_of_one_replay_and_one_run(replays: Replays, tmp_path: Path) -> None:
    replays.send(4)
    checkpoint = str(tmp_path / "checkpoint")

    def another(_: Replayed) -> None:
        with pytest.raises(BadOption, match="another replay is at work"):
            replays.replay(checkpoint=checkpoint)

    told = replays.replay(checkpoint=checkpoint, on_progress=another)
    assert told.sent == 4
    with pytest.raises(BadOption, match="it is of another replay"):
        replays.replay(checkpoint=checkpoint, keep_queues=True)


def test_a_checkpoint_is_a_directory_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept = Checkpoint(Plan("id", "asked", [], 1), 1)
    for number, begin in enumerate(("", "file:", "file://")):
        with checkpoint_directory(f"{begin}{tmp_path}/{number}") as there:
            assert there is not None
            there.save(kept)
        with checkpoint_directory(f"{number}") as there:
            assert there is not None
            assert there.load() == kept
    for other in ("s3://bucket/ck", "hdfs:/ck", "HDFS://host:1/ck", "file://host/ck", "file:ck"):
        with (
            pytest.raises(BadOption, match=f"checkpoint: {other} .* a path, or file:/"),
            checkpoint_directory(other),
        ):
            pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]


@pytest.mark.parametrize("rate", ["inf", "nan", "0", "-1", "x"])
@pytest.mark.parametrize("command", ["replay --from lake", "redrive --group g"])
def test_a_rate_is_a_number_that_can_be_kept(
    command: str, rate: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        build_parser("spark").parse_args(["spark", *command.split(), f"--rate={rate}"])
    assert f"{rate!r}: a number over 0 is expected" in capsys.readouterr().err


def test_what_cannot_be_is_refused_by_its_name(replays: Replays, tmp_path: Path) -> None:
    replays.send(8)
    small = f"{replays.target}-1"
    replays.broker.create_topic(small, 1)
    replays.spark.range(3).write.parquet(str(tmp_path / "numbers"))
    topics, same = (replays.source,), f"127.0.0.1:1;{replays.broker.namesrv}"
    refused: list[tuple[dict[str, Any], str]] = [
        ({"to": ""}, "replayed into itself"),
        ({"to": replays.source}, "replayed into itself"),
        *(({"to": to, "source_namesrv": same}, "replayed into itself") for to in (*topics, "")),
        ({"to": "no-such-topic"}, "there is no topic no-such-topic: create it"),
        ({"to": small, "keep_queues": True}, "has no queue 1"),
        ({"choice": Choice()}, "name the topics"),
        *(({"rate": rate}, "rate: more than 0") for rate in (0, math.inf, math.nan)),
        ({"checkpoint": "s3://bucket/ck"}, "checkpoint: s3://bucket/ck .* a path, or file:/"),
        ({"lake": "x", "store": "y"}, "exclude each other"),
        ({"lake": str(tmp_path / "numbers")}, "has no column topic: it is no lake"),
        ({"lake": str(tmp_path / "nothing")}, "there is no .*nothing"),
        ({"choice": Choice(topics=topics, where="nonsense = 1")}, "nonsense"),
        ({"options": {"topic": "x"}}, "topic: a replay takes accessKey"),
    ]
    for wrong, said in refused:
        with pytest.raises(SparkError, match=said):
            replays.replay(**wrong)
    assert replays.stored(replays.target) == []


# -- without Spark -------------------------------------------------------------------------------


def test_pieces_of_a_queue_are_all_of_it() -> None:
    queue = SourceQueue("t", "b", 0, 5, 17, 12, 100)
    pieces = [queue.piece(step, 5) for step in range(5)]
    assert pieces[0][0] == 5
    assert pieces[-1][1] == 17
    assert all(one[1] == two[0] for one, two in itertools.pairwise(pieces))
    assert steps_for(0, None) == 1
    assert steps_for(200_001, None) == 2
    assert steps_for(100, 1.0) == 4


def test_queues_go_where_they_should() -> None:
    sources = [SourceQueue("t", broker, n, 0, 1, 1, 1) for broker in ("a", "b") for n in (0, 1)]
    there = [MessageQueue("x", broker, n) for broker in ("b", "c") for n in (0, 1, 2)]
    spread = with_targets(sources, {"x": there}, "x", keep_queues=False)
    assert [queue.to for queue in spread] == ["x b:0", "x b:1", "x b:2", "x c:0"]
    same = with_targets(sources, {"x": there}, "x", keep_queues=True)
    assert [queue.to for queue in same] == ["x b:0", "x b:1", "x b:0", "x b:1"]
    assert same[1].target == MessageQueue("x", "b", 1)


def test_a_slow_task_of_a_killed_run_is_waited_for() -> None:
    """It sends one message every four seconds: nothing new within three says nothing."""
    assert settle_s(None) == settle_s(100.0) == replay_run.SETTLE_S
    assert settle_s(1 / 4) == 8.0


def test_what_was_not_used_of_a_rate_is_not_made_up_for() -> None:
    now = [100.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(10.0, lambda: now[0], sleep)
    pace.wait(5)
    pace.wait(5)
    now[0] += 30
    pace.wait(5)
    pace.wait(5)
    assert slept == pytest.approx([0.0, 0.5, 0.0, 0.5])
    assert pace.portion(100) == 10
    assert pace.portion(100, 20) == 1
    assert Pace(None).portion(100) == 100


def test_only_what_the_sender_said_is_sent_again() -> None:
    stored = {
        "TAGS": "t", "KEYS": "k", "__SHARDINGKEY": "s", "mine": "1", "UNIQ_KEY": "X", "DELAY": "3",
        "RETRY_TOPIC": "orders", "POP_CK": "1", "__RMQ.TRANSIENT.x": "1", "TRAN_MSG": "true",
    }  # fmt: skip
    assert own_properties(stored) == {
        "TAGS": "t", "KEYS": "k", "__SHARDINGKEY": "s", "mine": "1",
    }  # fmt: skip
