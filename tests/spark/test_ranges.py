"""One range of one queue becomes Arrow batches, against real brokers. Without Spark."""

import asyncio
import threading
import time
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pytest

from cometmq.client.blocking import Admin, Producer
from cometmq.client.errors import BadAnswer
from cometmq.client.names import Message, ProducerOptions
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.command import Command
from cometmq.protocol.message_queue import MessageQueue
from cometmq.spark.errors import ClusterAway, DataLost
from cometmq.spark.topic import patience
from cometmq.spark.topic.offsets import QueueRange
from cometmq.spark.topic.options import read_options
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .sending import SHORT, options, send

if TYPE_CHECKING:
    import pyarrow as pa

TOPIC = "ranges"


@pytest.fixture(autouse=True)
def _arrow() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'cometmq[spark]'")


def batches(
    broker: BlockingEmbeddedBroker,
    topic: str,
    start: int,
    end: int,
    columns: Sequence[str],
    *,
    queue: int = 0,
    **more: object,
) -> "Generator[pa.RecordBatch, None, None]":
    from cometmq.spark.topic.ranges import read_range

    read = read_options(options(broker, topic=topic, **more), streaming=False)
    part = QueueRange(MessageQueue(topic, "broker-a", queue), start, end)
    yield from read_range(read, part, columns)


def rows(
    broker: BlockingEmbeddedBroker,
    start: int,
    end: int,
    columns: Sequence[str] = ("queueOffset", "body"),
    *,
    topic: str = TOPIC,
    queue: int = 0,
    **more: object,
) -> list[dict[str, Any]]:
    found = batches(broker, topic, start, end, columns, queue=queue, **more)
    return [row for batch in found for row in batch.to_pylist()]


def filled(broker: BlockingEmbeddedBroker, count: int, topic: str = TOPIC) -> None:
    broker.create_topic(topic, 1)
    with Producer(broker.namesrv, group="ranges") as producer:
        queue = MessageQueue(topic, "broker-a", 0)
        for base in range(0, count, 500):
            numbers = range(base, min(count, base + 500))
            producer.send_batch([Message(topic, b"%d" % n) for n in numbers], queue=queue)


def expected(start: int, end: int) -> list[dict[str, Any]]:
    return [{"queueOffset": number, "body": b"%d" % number} for number in range(start, end)]


@pytest.mark.parametrize("most", [1, 7, 32, 1024])
def test_a_range_is_whole_however_little_an_answer_brings(most: int) -> None:
    limits = {"maxTransferCountOnMessageInMemory": most, "maxTransferCountOnMessageInDisk": most}
    with EmbeddedBroker(settings=limits) as broker:
        filled(broker, 3000)
        assert rows(broker, 0, 3000) == expected(0, 3000)
        assert rows(broker, 123, 1777) == expected(123, 1777)
        assert rows(broker, 2999, 3000) == expected(2999, 3000)


def test_answers_that_are_bounded_by_bytes_are_filled_up() -> None:
    with EmbeddedBroker(settings={"maxTransferBytesOnMessageInMemory": 5000}) as broker:
        broker.create_topic(TOPIC, 1)
        sizes = [10, 4000, 3, 6000, 1, 1, 1, 2500, 2500, *[20] * 300, 7000]
        with Producer(broker.namesrv, group="ranges") as producer:
            for size in sizes:
                producer.send(Message(TOPIC, b"x" * size))
        found = rows(broker, 0, len(sizes))
        assert [len(row["body"]) for row in found] == sizes
        assert [row["queueOffset"] for row in found] == list(range(len(sizes)))


def test_only_wanted_tags_come_also_when_others_have_the_same_hash(
    broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("tagged", 1)
    tags = ["Aa", "BB", "other", ""]  # The first two have one hash code.
    send(
        producer, "tagged", 400, queues=[0],
        message=lambda n: Message("tagged", b"%d" % n, tags=tags[n % 4]),
    )  # fmt: skip
    found = rows(broker, 0, 400, ("tags", "queueOffset"), topic="tagged", tags="Aa || other")
    wanted = [(n, tags[n % 4]) for n in range(400) if tags[n % 4] in ("Aa", "other")]
    assert [(row["queueOffset"], row["tags"]) for row in found] == wanted


def test_a_filter_that_matches_little_comes_to_its_end() -> None:
    with EmbeddedBroker(settings={"enablePropertyFilter": True}) as broker:
        broker.create_topic(TOPIC, 1)
        with Producer(broker.namesrv, group="ranges") as producer:
            send(
                producer, TOPIC, 1500, queues=[0],
                message=lambda n: Message(TOPIC, b"%d" % n, properties={"number": str(n)}),
            )  # fmt: skip
        assert rows(broker, 0, 1500, sql92="number BETWEEN 700 AND 702") == expected(700, 703)
        assert rows(broker, 0, 1500, sql92="number > 5000") == []


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_packed_bodies_are_unpacked(
    broker: BlockingEmbeddedBroker, kind: Literal["zlib", "lz4", "zstd"]
) -> None:
    topic = f"packed-{kind}"
    broker.create_topic(topic, 1)
    long = [b"%d " % number * 2000 for number in range(20)]
    with Producer(
        broker.namesrv,
        group="packing",
        options=ProducerOptions(compression=kind, compress_over=1000),
    ) as producer:
        for body in long:
            producer.send(Message(topic, body))
        producer.send(Message(topic, b"short"))
    found = rows(broker, 0, 21, ("body", "sysFlag"), topic=topic)
    assert [row["body"] for row in found] == [*long, b"short"]
    assert [row["sysFlag"] & 1 for row in found] == [1] * 20 + [0]


def test_a_reader_that_is_closed_early_leaves_nothing_behind(
    broker: BlockingEmbeddedBroker,
) -> None:
    filled(broker, 80_000, "closed-early")
    before = set(threading.enumerate())
    reading = batches(broker, "closed-early", 0, 80_000, ["queueOffset"])
    first = next(reading)
    assert 10_000 <= first.num_rows < 80_000
    assert first.column(0).to_pylist() == list(range(first.num_rows))
    reading.close()
    assert set(threading.enumerate()) == before


def test_a_broker_that_is_started_anew_is_waited_for() -> None:
    with EmbeddedBroker() as broker:
        filled(broker, 80_000)
        reading = batches(broker, TOPIC, 0, 80_000, ["queueOffset"])
        found = next(reading).column(0).to_pylist()
        broker.stop_broker(abrupt=True)
        back = threading.Timer(1.0, broker.start_broker)
        back.start()
        for batch in reading:
            found += batch.column(0).to_pylist()
        back.join()
        assert found == list(range(80_000))


def test_a_connection_that_closes_while_answers_wait_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first answer brings less than was asked for, and its rest cannot be asked for any more,
    while those behind it are here already."""
    from cometmq.spark.topic.pulls import Pulled, Pulls

    ask, answer = Pulls.ask, Pulls.answer
    under_way: list[asyncio.Future[Command]] = []
    stale: list[asyncio.Future[Command]] = []

    def noted(pulls: Pulls, offset: int, messages_max: int) -> "asyncio.Future[Command]":
        under_way.append(ask(pulls, offset, messages_max))
        return under_way[-1]

    async def cut_off(pulls: Pulls, asked: "asyncio.Future[Command]") -> Pulled:
        assert asked not in stale, "another broker may have answered it"
        told = await answer(pulls, asked)
        if told.next_offset > 1000 and not stale:
            await asyncio.gather(*under_way)
            stale.extend(under_way)
            assert pulls._connection is not None
            pulls._connection.close()
        return told

    with EmbeddedBroker(settings={"maxTransferBytesOnMessageInMemory": 65536}) as broker:
        broker.create_topic(TOPIC, 1)
        queue = MessageQueue(TOPIC, "broker-a", 0)
        with Producer(broker.namesrv, group="ranges") as producer:
            for size in (100, 1000):  # More of the small ones fit into an answer.
                for _ in range(10):
                    producer.send_batch([Message(TOPIC, b"x" * size)] * 100, queue=queue)
        monkeypatch.setattr(Pulls, "ask", noted)
        monkeypatch.setattr(Pulls, "answer", cut_off)
        found = rows(broker, 0, 2000, ["queueOffset"])
    assert stale
    assert [row["queueOffset"] for row in found] == list(range(2000))


def test_a_consumer_that_takes_its_time_is_not_told_that_the_broker_did(
    monkeypatch: pytest.MonkeyPatch,
    broker: BlockingEmbeddedBroker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from cometmq.spark.topic import pulls, ranges

    broker.create_topic("slowly", 1)
    queue = MessageQueue("slowly", "broker-a", 0)
    with Producer(broker.namesrv, group="ranges") as producer:
        for _ in range(10):
            producer.send_batch([Message("slowly", b"x" * 1000)] * 500, queue=queue)
    monkeypatch.setattr(pulls, "ANSWER_TIMEOUT_S", 1.0)
    monkeypatch.setattr(ranges, "ROWS_MAX", 2000)
    now_s = 1000.0
    read = read_options(options(broker, topic="slowly"), streaming=False)
    reading = ranges.read_range(read, QueueRange(queue, 0, 5000), ["queueOffset"], lambda: now_s)
    found = next(reading).column(0).to_pylist()
    time.sleep(1.2)  # In this process nothing goes on meanwhile, and answers time out.
    now_s += 20
    for batch in reading:
        found += batch.column(0).to_pylist()
    assert found == list(range(5000))
    assert not caplog.records


def test_a_broker_that_stays_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.5)
    with EmbeddedBroker() as broker:
        filled(broker, 10)
        broker.stop_broker()
        begun = time.monotonic()
        with pytest.raises(ClusterAway, match=r"topic ranges, queue broker-a:0 from offset 0: tri"):
            rows(broker, 0, 10)
        assert time.monotonic() - begun < 30


def shortened(broker: BlockingEmbeddedBroker) -> int:
    """A topic whose first messages are gone; where it begins."""
    filled(broker, 100)
    with Admin(broker.namesrv) as admin:
        admin.brokers.delete_expired_log()
        begin = admin.offsets.min(MessageQueue(TOPIC, "broker-a", 0))
    assert 0 < begin < 100
    return begin


def test_messages_that_are_gone_are_an_error_that_names_them() -> None:
    with EmbeddedBroker(settings=SHORT) as broker:
        begin = shortened(broker)
        with pytest.raises(
            DataLost,
            match=f"topic ranges, queue broker-a:0: .* between 0 and {begin}: "
            f"the queue now begins at {begin}; failOnDataLoss=false",
        ):
            rows(broker, 0, 100)


def test_what_is_left_is_read_and_the_loss_told(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(settings=SHORT) as broker:
        begin = shortened(broker)
        assert rows(broker, 0, 100, failOnDataLoss=False) == expected(begin, 100)
        assert f"lost between 0 and {begin}" in caplog.text
        caplog.clear()
        assert rows(broker, 0, begin - 2, failOnDataLoss=False) == []
        assert f"lost between 0 and {begin - 2}" in caplog.text


def test_a_queue_that_ends_too_early_is_a_loss(
    monkeypatch: pytest.MonkeyPatch,
    broker: BlockingEmbeddedBroker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.5)
    filled(broker, 10, "cut")
    with pytest.raises(DataLost, match="between 10 and 15: the queue ends at 10"):
        rows(broker, 5, 15, topic="cut")
    assert rows(broker, 5, 15, topic="cut", failOnDataLoss=False) == expected(5, 10)
    assert "lost between 10 and 15" in caplog.text


def damage(monkeypatch: pytest.MonkeyPatch, numbers: set[int], field: slice) -> None:
    """Have some records come with a field damaged, as from a broker with a bad disk."""
    from cometmq.spark.topic.pulls import Pulled, Pulls

    answer = Pulls.answer

    async def damaged(pulls: Pulls, asked: Any) -> Pulled:
        told = await answer(pulls, asked)
        records, at = bytearray(told.records), 0
        while at < len(records):
            size = int.from_bytes(records[at : at + 4], "big")
            if int.from_bytes(records[at + 20 : at + 28], "big") in numbers:
                records[at + field.start : at + field.stop] = bytes(field.stop - field.start)
            at += size
        return told._replace(records=bytes(records))

    monkeypatch.setattr(Pulls, "answer", damaged)


SIZE, MAGIC = slice(0, 4), slice(4, 8)
FILTERS: list[dict[str, Any]] = [{}, {"tags": "even"}, {"sql92": "TAGS = 'even'"}]


@pytest.mark.parametrize("where", FILTERS, ids=["all", "tags", "sql92"])
def test_messages_that_are_damaged_are_lost_also_with_a_filter(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: dict[str, Any]
) -> None:
    with EmbeddedBroker(settings={"enablePropertyFilter": True}) as broker:
        broker.create_topic(TOPIC, 1)
        with Producer(broker.namesrv, group="ranges") as producer:
            send(
                producer, TOPIC, 20, queues=[0],
                message=lambda n: Message(TOPIC, b"%d" % n, tags="odd" if n % 2 else "even"),
            )  # fmt: skip
        step = 2 if where else 1
        damage(monkeypatch, {4}, MAGIC)
        with pytest.raises(DataLost, match="between 0 and 20: 1 of them: no record at byte"):
            rows(broker, 0, 20, **where)
        found = rows(broker, 0, 20, ["queueOffset"], failOnDataLoss=False, **where)
        assert [row["queueOffset"] for row in found] == [n for n in range(0, 20, step) if n != 4]
        assert "lost between 0 and 20: 1 of them" in caplog.text
        damage(monkeypatch, {4}, SIZE)  # Nothing behind it can be found.
        with pytest.raises(DataLost, match=r"between 0 and 20: \d+ of them: no record at byte"):
            rows(broker, 0, 20, **where)


def test_a_damaged_message_behind_the_range_is_told_by_who_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer to a filter goes on behind what was asked for."""
    with EmbeddedBroker() as broker:
        broker.create_topic(TOPIC, 1)
        with Producer(broker.namesrv, group="ranges") as producer:
            send(
                producer, TOPIC, 20, queues=[0],
                message=lambda n: Message(TOPIC, b"%d" % n, tags="odd" if n % 2 else "even"),
            )  # fmt: skip
        damage(monkeypatch, {12}, MAGIC)
        found = rows(broker, 0, 10, ["queueOffset"], tags="even")
        assert [row["queueOffset"] for row in found] == [0, 2, 4, 6, 8]
        with pytest.raises(DataLost, match="between 10 and 20: 1 of them"):
            rows(broker, 10, 20, tags="even")


def answer_first(monkeypatch: pytest.MonkeyPatch, code: ResponseCode) -> None:
    """Have the first answer be one that brings nothing and goes on where it was asked, at 5."""
    from cometmq.spark.topic.pulls import Pulled, Pulls

    answer, strange = Pulls.answer, [Pulled(code, b"", 5, 0, 9)]

    async def first_strange(pulls: Pulls, asked: Any) -> Pulled:
        real = await answer(pulls, asked)
        return strange.pop() if strange else real

    monkeypatch.setattr(Pulls, "answer", first_strange)


def test_a_broker_that_wants_to_be_asked_again_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
    broker: BlockingEmbeddedBroker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    filled(broker, 9, "asked-again")
    answer_first(monkeypatch, ResponseCode.PULL_RETRY_IMMEDIATELY)
    assert rows(broker, 5, 9, topic="asked-again") == expected(5, 9)
    assert "tried again after the broker wants to be asked again" in caplog.text


def test_a_broker_that_does_not_get_on_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, broker: BlockingEmbeddedBroker
) -> None:
    filled(broker, 9, "stuck")
    answer_first(monkeypatch, ResponseCode.SUCCESS)
    with pytest.raises(BadAnswer, match="goes on at 5 after 5"):
        rows(broker, 5, 9, topic="stuck")


@pytest.mark.parametrize("how", ["deleted", "reduced"])
def test_a_queue_that_is_gone_is_a_loss_of_what_was_still_to_be_read(
    broker: BlockingEmbeddedBroker, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    topic = f"gone-{how}"
    broker.create_topic(topic, 2)
    with Admin(broker.namesrv) as admin:
        if how == "deleted":
            admin.topics.delete(topic)
        else:
            admin.topics.update(topic, read_queues=1)
    with pytest.raises(DataLost, match=f"{topic}, queue broker-a:1: .* between 3 and 8: .* gone"):
        rows(broker, 3, 8, topic=topic, queue=1)
    assert rows(broker, 3, 8, topic=topic, queue=1, failOnDataLoss=False) == []
    assert "lost between 3 and 8" in caplog.text


def test_a_reset_of_the_group_does_not_move_the_reader(broker: BlockingEmbeddedBroker) -> None:
    filled(broker, 50, "reset")
    with Admin(broker.namesrv) as admin:
        admin.groups.create("moved")
        admin.offsets.set("moved", {MessageQueue("reset", "broker-a", 0): 40})
    found = rows(broker, 10, 50, topic="reset", consumerGroup="moved")
    assert found == expected(10, 50)
