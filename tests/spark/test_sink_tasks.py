"""Tasks of the sink against real brokers: what arrives, in which order, and what survives."""

import asyncio
import contextlib
import datetime as dt
import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from cometmq.broker.transactions import transactions
from cometmq.client.blocking import Admin
from cometmq.client.errors import error_of
from cometmq.client.names import ReceivedMessage
from cometmq.client.producer.results import SendStatus
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.command import Command
from cometmq.protocol.topic_config import PERM_READ
from cometmq.spark.errors import BadOption, ClusterAway, NotSent
from cometmq.spark.sink import sending
from cometmq.spark.sink.commits import NAMESPACE, Mark
from cometmq.spark.sink.decisions import Decisions
from cometmq.spark.sink.halves import Half
from cometmq.spark.sink.ids import Origin
from cometmq.spark.sink.options import read_sink_options
from cometmq.spark.sink.writers import Plan, RocketMQStreamWriter, Written, planned, write_rows
from cometmq.spark.topic.offsets import QueueRange
from cometmq.spark.topic.options import read_options
from cometmq.spark.topic.ranges import read_range
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .sending import options
from .streaming import until

Bodies = Sequence[str]


def batch(bodies: Bodies, **more: Any) -> pa.RecordBatch:
    arrays = {
        name: value if isinstance(value, pa.Array) else pa.array(value)
        for name, value in more.items()
    }
    return pa.record_batch({"body": pa.array(bodies), **arrays})


def write(
    broker: BlockingEmbeddedBroker,
    batches: Iterable[pa.RecordBatch],
    *,
    origin: Origin | None = None,
    **more: Any,
) -> Written:
    """What a task does with these."""
    found = list(batches) if isinstance(batches, list) else batches
    columns = found[0].schema.names if isinstance(found, list) else ["body"]
    origin = origin or Origin("query", 0, 0)
    return write_rows(options(broker, **more), origin, columns, Plan({}, {}), iter(found))


def stored(broker: BlockingEmbeddedBroker, topic: str) -> dict[int, list[ReceivedMessage]]:
    """What consumers could get, by queue."""
    with Admin(broker.namesrv) as admin:
        queues = admin.topics.stats(topic).queues
        found: dict[int, list[ReceivedMessage]] = defaultdict(list)
        for queue in queues:
            found[queue.queue_id] += admin.messages.read(queue)
    return {number: messages for number, messages in found.items() if messages}


def bodies_in(broker: BlockingEmbeddedBroker, topic: str) -> list[str]:
    return sorted(m.body.decode() for messages in stored(broker, topic).values() for m in messages)


def undoubled(broker: BlockingEmbeddedBroker, topic: str) -> list[str]:
    """What our source reads with dropDuplicates."""
    chosen = read_options(options(broker, topic=topic, dropDuplicates=True), streaming=False)
    with Admin(broker.namesrv) as admin:
        ranges = [
            QueueRange(q, s.min_offset, s.max_offset)
            for q, s in admin.topics.stats(topic).queues.items()
        ]
    return sorted(
        body.as_py().decode()
        for part in ranges
        if part.size
        for found in read_range(chosen, part, ("body",))
        for body in found.column(0)
    )


# -- contents ------------------------------------------------------------------------------------


def test_messages_arrive_with_all_that_their_rows_say(broker: BlockingEmbeddedBroker) -> None:
    broker.create_topic("whole", 4)
    properties = pa.array([[("size", "large")], None], pa.map_(pa.string(), pa.string()))
    rows = batch(
        ["one", "two"], tags=["red", None], keys=["k1 k2", None], properties=properties,
        queueId=pa.array([2, 3], pa.int32()), shardingKey=[None, "s"],
    )  # fmt: skip
    sent = write(broker, [rows], topic="whole")
    (one,), (two,) = (stored(broker, "whole")[number] for number in (2, 3))
    assert sent.rows == 2
    assert (one.body, one.tags, one.keys, one.properties["size"]) == (
        b"one", "red", ["k1", "k2"], "large",
    )  # fmt: skip
    assert (two.body, two.tags, two.properties["__SHARDINGKEY"]) == (b"two", "", "s")
    with Admin(broker.namesrv) as admin:
        until(lambda: admin.messages.by_id("whole", one.message_id))
        (found,) = admin.messages.by_key("whole", "k2")
    assert found.message_id == one.message_id


def test_many_rows_of_many_topics_arrive_once_each_and_in_order(
    broker: BlockingEmbeddedBroker,
) -> None:
    topics = [f"mixed-{number}" for number in range(12)]
    for topic in topics:
        broker.create_topic(topic, 3)
    rng = random.Random(7)
    chosen = [rng.choice(topics) for _ in range(12_000)]
    keys = [f"key-{rng.randrange(50)}" for _ in chosen]
    bodies = [f"{number:06d}" for number in range(len(chosen))]
    pieces = [
        batch(
            bodies[at : at + 2500], topic=chosen[at : at + 2500], shardingKey=keys[at : at + 2500]
        )
        for at in range(0, len(bodies), 2500)
    ]
    assert write(broker, pieces).rows == 12_000
    found = {topic: stored(broker, topic) for topic in topics}
    for topic in topics:
        expected = [body for body, where in zip(bodies, chosen, strict=True) if where == topic]
        messages = [m for queue in found[topic].values() for m in queue]
        assert sorted(m.body.decode() for m in messages) == expected
        for queue in found[topic].values():
            in_queue = [m.body for m in queue]
            assert in_queue == sorted(in_queue), "rows of one task stay in order"
    ids = [m.message_id for queues in found.values() for queue in queues.values() for m in queue]
    assert len(set(ids)) == 12_000


def test_delayed_rows_come_when_their_time_has_come() -> None:
    with EmbeddedBroker(in_memory=True) as broker:
        broker.create_topic("later", 1)
        now = dt.datetime.fromtimestamp(broker.clock.now_ms() / 1000, dt.UTC)
        times = [None, None, now + dt.timedelta(seconds=90)]
        rows = batch(
            ["now", "level", "time"],
            delayLevel=pa.array([0, 5, None], pa.int32()),
            deliverAt=pa.array(times, pa.timestamp("us", tz="UTC")),
        )
        write(broker, [rows], topic="later", deliveryGuarantee="idempotent")
        assert bodies_in(broker, "later") == ["now"]
        broker.advance(61)
        until(lambda: bodies_in(broker, "later") == ["level", "now"])
        broker.advance(31)
        until(lambda: bodies_in(broker, "later") == ["level", "now", "time"])


def test_a_topic_may_come_into_being_by_its_first_row(broker: BlockingEmbeddedBroker) -> None:
    write(broker, [batch(["first"])], topic="made-by-a-row")
    until(lambda: _is_there(broker, "made-by-a-row"))
    assert bodies_in(broker, "made-by-a-row") == ["first"]


def _is_there(broker: BlockingEmbeddedBroker, topic: str) -> bool:
    with Admin(broker.namesrv) as admin:
        return topic in admin.topics.names()


# -- refusals ------------------------------------------------------------------------------------


def test_where_nothing_can_be_written_the_error_says_so() -> None:
    with EmbeddedBroker(in_memory=True, settings={"autoCreateTopicEnable": False}) as broker:
        said = r"there is no topic nowhere, also not after 1 s: create it first, or let brokers"
        with pytest.raises(BadOption, match=said):
            write(broker, [batch(["x"])], topic="nowhere", sendTimeout="1s")
        broker.create_topic("closed", 2, permission=PERM_READ)
        with pytest.raises(BadOption, match="topic closed cannot be written to"):
            write(broker, [batch(["x"])], topic="closed")


def test_fixed_ids_want_a_topic_whose_queues_are_known(broker: BlockingEmbeddedBroker) -> None:
    said = r"there is no topic not-yet, .*: create it first, deliveryGuarantee=idempotent needs it"
    given: dict[str, Any] = {"deliveryGuarantee": "idempotent", "sendTimeout": "1s"}
    with pytest.raises(BadOption, match=said):
        write(broker, [batch(["x"])], topic="not-yet", **given)
    assert not _is_there(broker, "not-yet")


def test_what_a_broker_refuses_is_told_with_its_rows() -> None:
    with EmbeddedBroker(in_memory=True, settings={"maxMessageSize": 2000}) as broker:
        broker.create_topic("small", 1)
        rows = batch(["x" * 100] * 100)
        with pytest.raises(
            NotSent, match="100 rows from row 0 on to topic small, queue broker-a:0"
        ):
            write(broker, [rows], topic="small")
        assert write(broker, [rows], topic="small", maxBatchBytes=1900).rows == 100
        assert len(bodies_in(broker, "small")) == 100


def test_a_cluster_that_stays_away_is_an_error_after_a_while() -> None:
    with EmbeddedBroker(in_memory=True) as broker:
        broker.create_topic("away", 1)

        def batches() -> Iterator[pa.RecordBatch]:
            yield batch(["x"] * 2000)
            broker.stop_broker(abrupt=True)
            yield batch(["y"] * 2000)

        with pytest.raises(ClusterAway, match=r"sending \d+ rows from row \d+ on .* tried for 1 s"):
            write(broker, batches(), topic="away", sendTimeout="1s")


# -- failures that are survived ------------------------------------------------------------------


def restarting(
    broker: BlockingEmbeddedBroker, pieces: Sequence[Bodies], *, abrupt: bool
) -> Iterator[pa.RecordBatch]:
    for number, bodies in enumerate(pieces):
        if number:
            broker.restart(abrupt=abrupt)
        yield batch(bodies)


@pytest.mark.parametrize("abrupt", [False, True])
def test_a_broker_may_be_restarted_in_the_middle_of_a_write(abrupt: bool) -> None:
    pieces = [[f"{piece} {row:05d}" for row in range(2000)] for piece in range(4)]
    with EmbeddedBroker(in_memory=True) as broker:
        broker.create_topic("restarted", 4)
        batches = restarting(broker, pieces, abrupt=abrupt)
        sent = write(broker, batches, topic="restarted", deliveryGuarantee="idempotent")
        assert sent.rows == 8000
        everything = sorted(body for piece in pieces for body in piece)
        assert undoubled(broker, "restarted") == everything
        assert set(bodies_in(broker, "restarted")) == set(everything)


@pytest.mark.parametrize("guarantee", ["at-least-once", "idempotent", "transactional"])
def test_a_topic_whose_only_broker_is_away_is_waited_for(guarantee: str) -> None:
    with EmbeddedBroker(in_memory=True) as broker:
        broker.create_topic("comes-back", 1)
        given = options(broker, topic="comes-back", deliveryGuarantee=guarantee)
        broker.stop_broker()
        with started_after(1.0, broker):
            plan = asyncio.run(planned(read_sink_options(given)))
            origin, rows = Origin("query", 0, 0), iter([batch(["a"])])
            sent = write_rows(given, origin, ["body"], plan, rows)
        assert sent.rows == 1


def test_rows_with_fixed_ids_wait_for_their_topic_where_another_broker_would_make_it() -> None:
    with EmbeddedBroker(in_memory=True, brokers=2) as broker:
        broker.stop_broker(1)
        broker.create_topic("of-the-first", 1)
        broker.start_broker(1)
        broker.stop_broker(0)
        with started_after(1.0, broker):
            write(broker, [batch(["a"])], topic="of-the-first", deliveryGuarantee="idempotent")
        assert bodies_in(broker, "of-the-first") == ["a"]
        with Admin(broker.namesrv) as admin:
            queues = admin.topics.stats("of-the-first").queues
        assert {queue.broker_name for queue in queues} == {"broker-a"}


@contextlib.contextmanager
def started_after(delay_s: float, broker: BlockingEmbeddedBroker) -> Iterator[None]:
    """The first broker, while the block goes on."""
    starting = threading.Timer(delay_s, broker.start_broker)
    starting.start()
    try:
        yield
    finally:
        starting.join()


def test_answers_that_are_lost_cost_duplicates_which_are_recognised() -> None:
    bodies = [f"{row:05d}" for row in range(6000)]
    with EmbeddedBroker(in_memory=True, through_proxy=True) as broker:
        broker.create_topic("lossy", 2)

        def batches() -> Iterator[pa.RecordBatch]:
            for at in range(0, len(bodies), 1500):
                broker.proxy().cut_after(20)
                yield batch(bodies[at : at + 1500])

        write(broker, batches(), topic="lossy", deliveryGuarantee="idempotent")
        found = bodies_in(broker, "lossy")
        assert len(found) > len(bodies), "some were sent twice"
        assert undoubled(broker, "lossy") == bodies
        for queue in stored(broker, "lossy").values():
            first_of_each = list(dict.fromkeys(m.body for m in queue))
            assert first_of_each == sorted(first_of_each), "still in order"


def test_rows_that_may_go_anywhere_go_to_another_broker() -> None:
    with EmbeddedBroker(in_memory=True, brokers=2) as broker:
        broker.create_topic("two", 2)

        def batches() -> Iterator[pa.RecordBatch]:
            yield batch([f"{row}" for row in range(3000)])
            broker.stop_broker(1, abrupt=True)
            yield batch([f"{row}" for row in range(3000, 9000)])

        assert write(broker, batches(), topic="two", sendTimeout="20s").rows == 9000
        broker.start_broker(1)
        until(lambda: len(set(bodies_in(broker, "two"))) == 9000)


def test_a_broker_with_too_much_to_do_is_asked_again(
    broker: BlockingEmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As RocketMQ's says it while its disk is slow, or too few of its replicas have the message."""
    send, sends = sending.Sending._send, itertools.count(1)

    async def busy(self: Any, parcel: Any) -> Command:
        if next(sends) < 4:
            raise error_of(ResponseCode.SYSTEM_ERROR, "[PC_SYNCHRONIZED]broker busy, start flow")
        return await send(self, parcel)

    monkeypatch.setattr(sending.Sending, "_send", busy)
    broker.create_topic("busy", 1)
    assert write(broker, [batch(["a"])], topic="busy").rows == 1
    assert bodies_in(broker, "busy") == ["a"]
    sends = itertools.count(-100)
    with pytest.raises(ClusterAway, match=r"tried for 1 s: .*PC_SYNCHRONIZED"):
        write(broker, [batch(["b"])], topic="busy", sendTimeout="1s")


def test_an_acknowledgement_that_is_not_safe_is_none(
    broker: BlockingEmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsafe = {0: SendStatus.FLUSH_DISK_TIMEOUT}
    monkeypatch.setattr(sending, "STATUS_OF_CODE", unsafe)
    broker.create_topic("unsafe", 1)
    with pytest.raises(NotSent, match="answers FLUSH_DISK_TIMEOUT; mend its disk"):
        write(broker, [batch(["x"])], topic="unsafe")
    assert len(bodies_in(broker, "unsafe")) == 1 + sending.UNSAFE_TRIES
    write(broker, [batch(["y"])], topic="unsafe", acknowledge="stored")
    assert bodies_in(broker, "unsafe").count("y") == 1


# -- transactions --------------------------------------------------------------------------------

TRANSACTIONAL: dict[str, Any] = {"deliveryGuarantee": "transactional"}


def halves_of(
    broker: BlockingEmbeddedBroker,
    topic: str,
    bodies: Bodies | pa.RecordBatch,
    batch_number: int = 0,
    plan: Plan | None = None,
) -> Written:
    origin = Origin(f"query of {topic}", batch_number, 0)
    given = options(broker, topic=topic, **TRANSACTIONAL)
    plan = plan or plan_of(broker, topic)
    rows = bodies if isinstance(bodies, pa.RecordBatch) else batch(bodies)
    return write_rows(given, origin, rows.schema.names, plan, iter([rows]))


def plan_of(broker: BlockingEmbeddedBroker, topic: str) -> Plan:
    """As the driver makes it before there are tasks."""
    given = options(broker, topic=topic, **TRANSACTIONAL)
    return asyncio.run(planned(read_sink_options(given)))


def stream_writer(broker: BlockingEmbeddedBroker, topic: str, **more: Any) -> RocketMQStreamWriter:
    """As Spark makes one for each commit."""
    return RocketMQStreamWriter(options(broker, topic=topic, **TRANSACTIONAL, **more), ["body"])


def mark_of(broker: BlockingEmbeddedBroker, topic: str) -> tuple[int, bool]:
    with Admin(broker.namesrv) as admin:
        told = admin.namesrvs.get(NAMESPACE, f"query of {topic}")
    mark = msgspec.json.decode(told or "{}", type=Mark)
    return mark.batch, mark.done


def test_half_messages_are_seen_when_their_batch_is_committed(
    broker: BlockingEmbeddedBroker,
) -> None:
    broker.create_topic("halves", 2)
    sent = halves_of(broker, "halves", ["a", "b", "c"])
    other = halves_of(broker, "halves", ["not", "this"])
    assert stored(broker, "halves") == {}
    writer = stream_writer(broker, "halves")
    writer.abort([other, None], 0)
    writer.commit([sent], 0)
    assert bodies_in(broker, "halves") == ["a", "b", "c"]
    assert mark_of(broker, "halves") == (0, True)
    (queue,) = stored(broker, "halves").values()
    assert [m.body for m in queue] == [b"a", b"b", b"c"]
    assert [m.message_id for m in queue] == [half.unique_id for half in sent.halves]


def test_a_batch_that_was_committed_before_its_driver_died_is_not_shown_twice(
    broker: BlockingEmbeddedBroker,
) -> None:
    broker.create_topic("decided-again", 2)
    stream_writer(broker, "decided-again").commit(
        [halves_of(broker, "decided-again", ["a", "b"])], 0
    )
    stream_writer(broker, "decided-again").commit(
        [halves_of(broker, "decided-again", ["a", "b"])], 0
    )
    assert bodies_in(broker, "decided-again") == ["a", "b"]
    stream_writer(broker, "decided-again").commit([halves_of(broker, "decided-again", ["c"], 1)], 1)
    assert bodies_in(broker, "decided-again") == ["a", "b", "c"]


def test_a_batch_that_is_done_shows_what_was_never_shown(broker: BlockingEmbeddedBroker) -> None:
    """A clone of the checkpoint has other rows in a batch of the same number, or another topic."""
    broker.create_topic("done-before", 2)
    stream_writer(broker, "done-before").commit([halves_of(broker, "done-before", ["a", "b"])], 0)
    before = undecided(broker)
    again = halves_of(broker, "done-before", ["a", "other", "more"])
    stream_writer(broker, "done-before").commit([again], 0)
    assert bodies_in(broker, "done-before") == ["a", "b", "more", "other"]
    assert undecided(broker) == before
    assert mark_of(broker, "done-before") == (0, True)


def test_a_batch_older_than_the_last_is_an_error_and_rolled_back(
    broker: BlockingEmbeddedBroker,
) -> None:
    broker.create_topic("older", 1)
    before = undecided(broker)
    for number in range(3):
        sent = halves_of(broker, "older", [f"{number}"], number)
        stream_writer(broker, "older").commit([sent], number)
    said = (
        "the NameServers know of batch 2 of query query of older, and this is batch 1: its "
        "checkpoint is an older copy, or a clone; start with a new checkpoint"
    )
    with pytest.raises(NotSent) as refused:
        stream_writer(broker, "older").commit([halves_of(broker, "older", ["other"], 1)], 1)
    assert str(refused.value) == said
    assert bodies_in(broker, "older") == ["0", "1", "2"]
    assert undecided(broker) == before
    assert mark_of(broker, "older") == (2, True)


def die_midway(
    broker: BlockingEmbeddedBroker,
    topic: str,
    bodies: Bodies | pa.RecordBatch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver commits the first four, and dies."""
    commit = Decisions.commit

    async def dies_midway(decisions: Decisions, halves: Sequence[Half]) -> None:
        await commit(decisions, halves[:4])
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(Decisions, "commit", dies_midway)
        with pytest.raises(KeyboardInterrupt):
            stream_writer(broker, topic).commit([halves_of(broker, topic, bodies)], 0)
    assert len(bodies_in(broker, topic)) == 4
    assert mark_of(broker, topic) == (0, False)
    with Admin(broker.namesrv) as admin:
        shown = [m.message_id for queue in stored(broker, topic).values() for m in queue]
        until(lambda: all(admin.messages.by_id(topic, one) for one in shown))


def test_a_commit_in_whose_middle_the_driver_died_is_completed(
    broker: BlockingEmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("midway", 2)
    bodies = [f"{row}" for row in range(10)]
    die_midway(broker, "midway", bodies, monkeypatch)
    stream_writer(broker, "midway").commit([halves_of(broker, "midway", bodies)], 0)
    assert bodies_in(broker, "midway") == bodies


def test_rows_in_another_order_the_second_time_may_come_twice_but_are_never_lost(
    broker: BlockingEmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("other-order", 2)
    bodies = [f"{row}" for row in range(10)]
    die_midway(broker, "other-order", bodies, monkeypatch)
    again = halves_of(broker, "other-order", [*bodies[:2], *reversed(bodies[2:])])
    stream_writer(broker, "other-order").commit([again], 0)
    assert bodies_in(broker, "other-order") == sorted([*bodies, "2", "3"])


def test_equal_bodies_do_not_make_two_rows_one(
    broker: BlockingEmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a shuffle: 4 and 5 were not shown, and come by the ids of 2 and 3 this time."""
    broker.create_topic("equal-bodies", 2)
    keys = [f"{row}" for row in range(6)]
    die_midway(broker, "equal-bodies", batch(["same"] * 6, keys=keys), monkeypatch)
    turned = [*keys[:2], *keys[4:], *keys[2:4]]
    again = halves_of(broker, "equal-bodies", batch(["same"] * 6, keys=turned))
    stream_writer(broker, "equal-bodies").commit([again], 0)
    queues = stored(broker, "equal-bodies").values()
    found = sorted(key for queue in queues for message in queue for key in message.keys)
    assert found == sorted([*keys, "2", "3"])


def test_a_task_that_fails_takes_its_half_messages_back(broker: BlockingEmbeddedBroker) -> None:
    broker.create_topic("failing", 1)

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch(["x"] * 300)
        raise RuntimeError("the plan fails")

    before = undecided(broker)
    with pytest.raises(RuntimeError, match="the plan fails"):
        write(broker, batches(), topic="failing", **TRANSACTIONAL)
    assert undecided(broker) == before
    assert stored(broker, "failing") == {}


def test_decisions_whose_answers_are_lost_are_told_again() -> None:
    with EmbeddedBroker(in_memory=True, through_proxy=True) as broker:
        broker.create_topic("told", 2)
        bodies = sorted(f"{row}" for row in range(600))
        sent = halves_of(broker, "told", bodies)
        broker.proxy().cut_after(20_000)
        stream_writer(broker, "told").commit([sent], 0)
        assert bodies_in(broker, "told") == bodies


def test_more_half_messages_than_a_broker_takes_are_an_error_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions, "OPEN_MAX", 50)
    with EmbeddedBroker(in_memory=True) as broker:
        broker.create_topic("too-many", 1)
        begun = time.monotonic()
        with pytest.raises(NotSent, match=r"50 transactions are undecided.*maxOffsetsPerTrigger"):
            halves_of(broker, "too-many", [f"{row}" for row in range(200)])
        assert time.monotonic() - begun < 30, "it does not wait for what cannot happen"
        assert undecided(broker) == 0
        sent = halves_of(broker, "too-many", ["a"])
        stream_writer(broker, "too-many").commit([sent], 0)
        assert bodies_in(broker, "too-many") == ["a"]


@pytest.mark.parametrize("batch_number", [0, 1])
def test_what_killed_attempts_left_does_not_keep_a_batch_out_for_ever(
    monkeypatch: pytest.MonkeyPatch, batch_number: int
) -> None:
    """The batch is planned already: it cannot become smaller."""
    monkeypatch.setattr(transactions, "OPEN_MAX", 50)
    with EmbeddedBroker(in_memory=True) as broker:
        broker.create_topic("no-room", 1)
        broker.create_topic("of-another", 1)
        for number in range(batch_number):
            stream_writer(broker, "no-room").commit([halves_of(broker, "no-room", ["x"])], number)
        halves_of(broker, "of-another", ["x"])
        bodies = [f"{row}" for row in range(40)]
        halves_of(broker, "no-room", bodies, batch_number)  # Its driver was killed.
        with pytest.raises(NotSent, match=r"40 .* killed attempts .* were rolled back: try again"):
            halves_of(broker, "no-room", bodies, batch_number)
        assert undecided(broker) == 1, "that of another query is none of ours"
        sent = halves_of(broker, "no-room", bodies, batch_number)
        stream_writer(broker, "no-room").commit([sent], batch_number)
        assert bodies_in(broker, "no-room") == sorted([*bodies, *["x"] * batch_number])


def test_rows_say_nothing_that_decides_about_their_transaction(
    broker: BlockingEmbeddedBroker,
) -> None:
    broker.create_topic("immune", 1)
    times = [[("CHECK_IMMUNITY_TIME_IN_SECONDS", "1")]]
    rows = batch(["x"], properties=pa.array(times, pa.map_(pa.string(), pa.string())))
    with pytest.raises(NotSent, match="RocketMQ uses CHECK_IMMUNITY_TIME_IN_SECONDS itself"):
        write(broker, [rows], topic="immune", **TRANSACTIONAL)


def test_a_batch_that_took_too_long_is_an_error() -> None:
    """Somebody else decided: the broker, after too many questions, or another driver."""
    with EmbeddedBroker(in_memory=True) as broker:
        broker.create_topic("late", 1)
        sent = halves_of(broker, "late", ["a"])
        stream_writer(broker, "late").abort([sent], 0)
        with pytest.raises(NotSent, match="commit of 1 half messages at broker broker-a"):
            stream_writer(broker, "late").commit([sent], 0)


def test_half_messages_stay_while_the_batch_goes_on() -> None:
    """Nobody is asked about them, so no question counts."""
    with EmbeddedBroker(in_memory=True) as broker:
        broker.create_topic("slow", 1)
        sent = halves_of(broker, "slow", ["a"])
        for _ in range(20):
            broker.advance(31)
        stream_writer(broker, "slow").commit([sent], 0)
        assert bodies_in(broker, "slow") == ["a"]


def test_what_killed_attempts_sent_is_rolled_back_with_the_commit(
    broker: BlockingEmbeddedBroker,
) -> None:
    broker.create_topic("killed-attempts", 2)
    broker.create_topic("others", 2)
    before, plan = undecided(broker), plan_of(broker, "killed-attempts")
    foreign = halves_of(broker, "others", ["x"])
    halves_of(broker, "killed-attempts", ["a", "b"], plan=plan)  # Nobody heard of these.
    sent = halves_of(broker, "killed-attempts", ["a", "b", "c"], plan=plan)
    assert undecided(broker) == before + 6
    stream_writer(broker, "killed-attempts").commit([sent], 0)
    assert undecided(broker) == before + 1, "that of another query is none of ours"
    assert bodies_in(broker, "killed-attempts") == ["a", "b", "c"]
    stream_writer(broker, "others").abort([foreign], 0)
    assert undecided(broker) == before


def test_what_a_dead_driver_left_is_rolled_back_by_the_next(broker: BlockingEmbeddedBroker) -> None:
    broker.create_topic("dead-driver", 2)
    before = undecided(broker)
    stream_writer(broker, "dead-driver").commit([halves_of(broker, "dead-driver", ["a"])], 0)
    halves_of(broker, "dead-driver", ["b", "c"], 1)  # It died before it could commit.
    stream_writer(broker, "dead-driver").commit(
        [halves_of(broker, "dead-driver", ["b", "c"], 1)], 1
    )
    assert bodies_in(broker, "dead-driver") == ["a", "b", "c"]
    assert undecided(broker) == before


def test_what_could_not_be_rolled_back_is_looked_for_again_with_the_next_batch(
    broker: BlockingEmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("left-over", 2)
    before, plan = undecided(broker), plan_of(broker, "left-over")
    halves_of(broker, "left-over", ["a", "b"], plan=plan)  # Nobody heard of these.
    sent = halves_of(broker, "left-over", ["a", "b"], plan=plan)

    with monkeypatch.context() as failing:
        failing.setattr(Decisions, "roll_back", failing_with(ClusterAway("tried for 60 s")))
        stream_writer(broker, "left-over").commit([sent], 0)
    assert undecided(broker) == before + 2
    stream_writer(broker, "left-over").commit([halves_of(broker, "left-over", ["c"], 1)], 1)
    assert undecided(broker) == before
    assert bodies_in(broker, "left-over") == ["a", "b", "c"]


def test_what_a_broker_refuses_to_roll_back_is_not_looked_for_again(
    broker: BlockingEmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every batch would look through more half messages than the one before."""
    broker.create_topic("refused", 2)
    before, plan = undecided(broker), plan_of(broker, "refused")
    lost = halves_of(broker, "refused", ["a"], plan=plan)  # Nobody heard of it.
    sent = halves_of(broker, "refused", ["a"], plan=plan)
    with monkeypatch.context() as failing:
        failing.setattr(Decisions, "roll_back", failing_with(NotSent("of another group")))
        stream_writer(broker, "refused").commit([sent], 0)
    stream_writer(broker, "refused").commit([halves_of(broker, "refused", ["b"], 1)], 1)
    assert undecided(broker) == before + 1
    stream_writer(broker, "refused").abort([lost], 0)
    assert undecided(broker) == before


def test_what_killed_attempts_left_is_rolled_back_though_its_topic_was_deleted(
    broker: BlockingEmbeddedBroker,
) -> None:
    """Else each later batch would wait for its route, as long as it may."""
    for topic in ("tidied", "deleted-meanwhile"):
        broker.create_topic(topic, 1)
    before, plan = undecided(broker), plan_of(broker, "tidied")
    rows = batch(["b"], topic=["deleted-meanwhile"])
    write_rows(
        options(broker, **TRANSACTIONAL), Origin("query of tidied", 0, 0), rows.schema.names, plan,
        iter([rows]),
    )  # fmt: skip
    nothing = halves_of(broker, "tidied", batch(pa.array([], pa.string())), plan=plan)
    with Admin(broker.namesrv) as admin:
        admin.topics.delete("deleted-meanwhile")
    stream_writer(broker, "tidied", sendTimeout="1s").commit([nothing], 0)
    assert undecided(broker) == before


def failing_with(error: Exception) -> Callable[[Decisions, Sequence[Half]], Awaitable[None]]:
    async def fails(_: Decisions, halves: Sequence[Half]) -> None:
        if halves:
            raise error

    return fails


def undecided(broker: BlockingEmbeddedBroker) -> int:
    """How many half messages wait: those stored less those decided."""
    half, done = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    with Admin(broker.namesrv) as admin:
        ends = [
            sum(stats.max_offset for stats in admin.topics.stats(topic).queues.values())
            for topic in (half, done)
        ]
    return ends[0] - ends[1]
