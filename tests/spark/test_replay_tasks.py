"""Tasks of a replay: at their rate, and never behind another attempt at the same task."""

import functools
import subprocess
import sys
from collections.abc import Iterable
from typing import Any, Self

import pyarrow as pa
import pytest

from cometmq.client.blocking import Producer
from cometmq.client.producer.results import SendStatus
from cometmq.spark.errors import ClusterAway, NotSent, SparkError
from cometmq.spark.pace import Pace
from cometmq.spark.pipelines import replay_sending
from cometmq.spark.pipelines.replay_attempts import BegunBefore
from cometmq.spark.pipelines.replay_plan import Plan, SourceQueue
from cometmq.spark.pipelines.replay_sending import Step, rows_sent, sink_options
from cometmq.spark.sink import sending
from cometmq.testing import BlockingEmbeddedBroker

from .dead_letters import messages_of
from .drivers import ROOT
from .sending import send

pytest.importorskip("pyspark")
RUN_S = 300.0
LOST_MESSAGES = 120


def rows_of(*counts: int) -> pa.RecordBatch:
    """As Spark hands them over: so many of each source queue, in order."""
    sources = [source for source, count in enumerate(counts) for _ in range(count)]
    none = pa.nulls(len(sources), pa.string())
    return pa.record_batch(
        {
            "source": pa.array(sources, pa.int32()),
            "body": pa.array([b"%d" % number for number in range(len(sources))]),
            "tags": none,
            "keys": none,
            "shardingKey": none,
            "properties": pa.nulls(len(sources), pa.map_(pa.string(), pa.string())),
        }
    )


def step(topic: str, queues: int, namesrv: str = "127.0.0.1:1", rate: float | None = None) -> Step:
    """Of as many source queues, all to queue 0 of a topic."""
    sources = [
        SourceQueue("from", "b", number, 0, 9, 9, 9, f"{topic} broker-a:0")
        for number in range(queues)
    ]
    began_at = {topic: {"broker-a:0": 0}}
    plan = Plan(f"replay into {topic}", "", sources, 1)
    return Step(sink_options({"namesrvAddr": namesrv}), plan, 0, {}, rate, began_at)


def told_by(step: Step, batches: Iterable[pa.RecordBatch]) -> list[Any]:
    table = pa.Table.from_batches(step.send(batches))
    return [Told(**row) for row in table.to_pylist()]


class Told:
    """A row of Spark's."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)
        self.rows: int | None
        self.failure: str | None
        self.said: str | None


def bodies_in(broker: BlockingEmbeddedBroker, topic: str) -> list[bytes]:
    return [message.body for message in messages_of(broker.namesrv, topic)]


# -- other attempts ------------------------------------------------------------------------------


def test_what_another_attempt_has_sent_is_not_sent_again(broker: BlockingEmbeddedBroker) -> None:
    """As when Spark runs a stage anew, whose tasks it counts from 0."""
    broker.create_topic("attempted", 1)
    first = step("attempted", 2, broker.namesrv)
    assert rows_sent(told_by(first, [rows_of(3)])) == 3
    with pytest.raises(BegunBefore, match="attempted broker-a:0 has 3 of source 0"):
        rows_sent(told_by(first, [rows_of(4, 2)]))
    assert len(bodies_in(broker, "attempted")) == 3


def test_what_the_driver_knows_of_is_left_out(broker: BlockingEmbeddedBroker) -> None:
    broker.create_topic("left-out", 1)
    first = step("left-out", 2, broker.namesrv)
    rows_sent(told_by(first, [rows_of(3)]))
    rest = Step(first.sink, first.plan, 0, {0: 3}, None, first.began_at)
    assert rows_sent(told_by(rest, [rows_of(4, 2)])) == 3
    assert bodies_in(broker, "left-out") == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_failure_is_told_before_other_attempts_are() -> None:
    sent = Told(rows=5, failure=None, said=None)
    again = Told(rows=None, failure="BegunBefore", said="attempt 2")
    away = Told(rows=None, failure="ClusterAway", said="no broker")
    odd = Told(rows=None, failure="Odd", said="something else")
    assert rows_sent([sent, sent]) == 10
    for told, kind, said in (
        ([sent, again], BegunBefore, "attempt 2"),
        ([again, away], ClusterAway, "no broker"),
        ([odd], SparkError, "something else"),
    ):
        with pytest.raises(kind, match=said):
            rows_sent(told)


def test_what_cannot_be_sent_is_told_and_not_raised(broker: BlockingEmbeddedBroker) -> None:
    """Spark would run the task again."""
    broker.create_topic("too-large", 1)
    rows = rows_of(1).set_column(1, "body", pa.array([bytes(8 << 20)]))
    (told,) = told_by(step("too-large", 1, broker.namesrv), [rows])
    assert told.failure == NotSent.__name__


@pytest.mark.timeout(2 * RUN_S)
def test_a_task_that_spark_runs_again_sends_nothing_twice(
    broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    for topic in ("lost-a", "lost-b"):
        broker.create_topic(topic, 4)
    sent = send(producer, "lost-a", LOST_MESSAGES)
    ended = subprocess.run(
        [sys.executable, "-m", "tests.spark.losing_tasks", broker.namesrv, "lost-a", "lost-b"],
        cwd=ROOT, capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert sorted(bodies_in(broker, "lost-b")) == sorted(sent.values())
    assert int(ended.stdout.split()[-1]) == LOST_MESSAGES
    assert "begun a task again: attempt 2" in ended.stderr


# -- what counts as sent -------------------------------------------------------------------------


def test_what_a_broker_has_is_sent_however_safe_it_is(
    broker: BlockingEmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "STATUS_OF_CODE", {0: SendStatus.SLAVE_NOT_AVAILABLE})
    broker.create_topic("no-slave", 1)
    assert rows_sent(told_by(step("no-slave", 1, broker.namesrv), [rows_of(3)])) == 3
    assert bodies_in(broker, "no-slave") == [b"0", b"1", b"2"]


# -- rates ---------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class InstantTask:
    """In the place of the sink's: notes when rows are sent."""

    def __init__(self, times: list[float], clock: Clock, *_: object) -> None:
        self._times = times
        self._clock = clock
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            self._times += [self._clock.now_s] * batch.num_rows
            self.rows += batch.num_rows


class NothingThere:
    def __init__(self, *_: object) -> None:
        pass

    def check(self, *_: object) -> None:
        pass


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sent_at(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    times: list[float] = []
    monkeypatch.setattr(
        replay_sending, "Pace", functools.partial(Pace, now=clock.now, sleep=clock.sleep)
    )
    monkeypatch.setattr(replay_sending, "Task", functools.partial(InstantTask, times, clock))
    monkeypatch.setattr(replay_sending, "Present", NothingThere)
    return times


@pytest.mark.parametrize("rate", [0.5, 2.0, 40.0])
def test_a_rate_is_kept_over_many_queues_and_steps(
    clock: Clock, sent_at: list[float], rate: float
) -> None:
    begun = clock.now_s
    paced = step("paced", 8, rate=rate)
    for _ in range(3):
        assert rows_sent(told_by(paced, [rows_of(*[2] * 8)])) == 16
    assert len(sent_at) == 48
    assert clock.now_s - begun == pytest.approx(48 / rate)
    for count, moment in enumerate(sent_at):
        portion = max(1, int(rate / replay_sending.PORTIONS_A_SECOND))
        assert count + 1 - portion <= (moment - begun) * rate + 1e-6
