"""Tasks of a replay: at their rate, and never behind another attempt at the same task."""

import functools
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pytest

from cometmq.client.blocking import Producer
from cometmq.client.producer.results import SendStatus
from cometmq.spark.errors import ClusterAway, NotSent, SparkError
from cometmq.spark.pace import Pace
from cometmq.spark.pipelines import replay_sending
from cometmq.spark.pipelines.replay_attempts import BegunBefore
from cometmq.spark.pipelines.replay_plan import Plan, SourceQueue
from cometmq.spark.pipelines.replay_sending import Step, ready, rows_sent, sink_options
from cometmq.spark.sink import sending
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .dead_letters import messages_of
from .drivers import ROOT
from .sending import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
RUN_S = 300.0
LOST_MESSAGES = 120


def rows_of(*counts: int) -> pa.RecordBatch:
    """As Spark hands them over: so many of each source queue, in order, every tenth offset."""
    sources = [source for source, count in enumerate(counts) for _ in range(count)]
    offsets = [10 * number for count in counts for number in range(count)]
    none = pa.nulls(len(sources), pa.string())
    return pa.record_batch(
        {
            "source": pa.array(sources, pa.int32()),
            "queueOffset": pa.array(offsets, pa.int64()),
            "body": pa.array([b"%d" % number for number in range(len(sources))]),
            "tags": none,
            "keys": none,
            "shardingKey": none,
            "properties": pa.nulls(len(sources), pa.map_(pa.string(), pa.string())),
        }
    )


def with_values(rows: pa.RecordBatch, number: int, **values: Any) -> pa.RecordBatch:
    """The same, but for some columns of one row."""
    for name, value in values.items():
        column = rows.schema.names.index(name)
        changed = rows.column(column).to_pylist()
        changed[number] = value
        rows = rows.set_column(column, name, pa.array(changed, rows.schema.types[column]))
    return rows


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


def test_a_broker_that_is_started_anew_is_waited_for_before_the_first_message() -> None:
    """No NameServer knows its topics meanwhile."""
    with EmbeddedBroker() as broker:
        broker.create_topic("restarted", 1)
        broker.stop_broker()
        starting = threading.Timer(1.0, broker.start_broker)
        starting.start()
        assert rows_sent(told_by(step("restarted", 1, broker.namesrv), [rows_of(3)])) == 3
        starting.join()
        assert bodies_in(broker, "restarted") == [b"0", b"1", b"2"]


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
    rows = with_values(rows_of(1), 0, body=bytes(8 << 20))
    (told,) = told_by(step("too-large", 1, broker.namesrv), [rows])
    assert told.failure == NotSent.__name__


@pytest.mark.parametrize("rate", [None, 1000.0])
@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"body": b""}, "its body is empty"),
        ({"body": bytes(5 << 20)}, "its body has 5242880 bytes"),
        ({"keys": "b\x01c"}, "keys contains a byte that separates properties"),
        ({"properties": [("a", "b\x01c")]}, "properties: 'a' contains a byte"),
        ({"properties": [("a", "v" * 32_400)]}, "its properties have 32403 bytes"),
    ],
    ids=["empty", "large", "keys", "properties", "many properties"],
)
def test_an_odd_message_is_told_by_its_place_with_how_to_leave_it_out(
    broker: BlockingEmbeddedBroker,
    values: dict[str, Any],
    why: str,
    rate: float | None,
    request: pytest.FixtureRequest,
) -> None:
    topic = re.sub("[^a-z]+", "-", request.node.callspec.id)
    broker.create_topic(topic, 1)
    first = step(topic, 2, broker.namesrv, rate)
    rows_sent(told_by(first, [rows_of(0, 2)]))
    rest = Step(first.sink, first.plan, 0, {1: 2}, rate, first.began_at)
    odd = with_values(rows_of(0, 9), 7, **values)
    with pytest.raises(NotSent) as raised:
        rows_sent(told_by(rest, [odd.slice(0, 5), odd.slice(5)]))
    assert str(raised.value).startswith(f"from b:1 70: {why}")
    assert str(raised.value).endswith(
        "; to leave it out: --where \"not (topic = 'from' and brokerName = 'b' and queueId = 1 and "
        'queueOffset = 70)"'
    )


@pytest.mark.parametrize(
    ("counts", "bytes_each", "said", "is_alone"),
    [
        ((0, 1), 5000, "from b:1 0 to topic refused", True),
        ((0, 40), 1000, r"\d+ rows from from b:1 0 on to topic refused", False),
    ],
)
def test_what_a_broker_refuses_is_told_by_its_place(
    counts: tuple[int, ...], bytes_each: int, said: str, is_alone: bool
) -> None:
    with EmbeddedBroker(in_memory=True, settings={"maxMessageSize": 4096}) as broker:
        broker.create_topic("refused", 1)
        rows = rows_of(*counts)
        bodies = pa.array([random.randbytes(bytes_each) for _ in range(rows.num_rows)])
        rows = rows.set_column(rows.schema.names.index("body"), "body", bodies)
        with pytest.raises(NotSent, match=f"^{said}, queue broker-a:0: answered") as raised:
            rows_sent(told_by(step("refused", 2, broker.namesrv), [rows]))
        assert ("--where" in str(raised.value)) == is_alone


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


@pytest.mark.parametrize("queues", [2, 3, 8])
def test_each_source_queue_has_a_task_where_there_is_one_for_each(
    spark: "SparkSession", queues: int
) -> None:
    """Else some tasks have several queues, others none, and a rate is not reached."""
    frame = spark.range(queues * 10).selectExpr(
        f"cast(id % {queues} as int) as source", "id as queueOffset", "'orders' as topic",
        "0 as queueId", "cast('x' as binary) as body",
    )  # fmt: skip
    tasks = ready(frame, queues).selectExpr("source", "spark_partition_id() as task").distinct()
    assert sorted((row.source, row.task) for row in tasks.collect()) == [
        (number, number) for number in range(queues)
    ]
