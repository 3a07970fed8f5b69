"""Messages that are whole but cannot be read: one of them does not stop a reader for ever."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cometmq.client.blocking import Producer
from cometmq.client.names import Message
from cometmq.client.producer.packing import Packing
from cometmq.protocol.flags import COMPRESSED, INNER_BATCH, NEED_UNWRAP
from cometmq.protocol.message_queue import MessageQueue
from cometmq.spark.errors import Unreadable
from cometmq.spark.pipelines import archive, report
from cometmq.spark.topic.pulls import Pulls
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .lakes import rows_in
from .test_nearby import COUNT
from .test_ranges import TOPIC, expected, filled, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHOLE_BATCH = INNER_BATCH | NEED_UNWRAP
COLUMN_SETS = [("queueOffset", "body"), ("body", "queueOffset", "topic", "queueId", "sysFlag")]
SendOdd = Callable[[BlockingEmbeddedBroker, int, str], None]


@pytest.fixture
def send_odd(monkeypatch: pytest.MonkeyPatch) -> SendOdd:
    """Send a message as a broken producer does, which a broker does not see."""

    def send(broker: BlockingEmbeddedBroker, flag: int, topic: str = TOPIC) -> None:
        with monkeypatch.context() as patched, Producer(broker.namesrv, group="odd") as producer:
            patched.setattr(Packing, "packed", lambda _, body: (body, flag))
            producer.send(Message(topic, b"odd"), queue=MessageQueue(topic, "broker-a", 0))

    return send


@pytest.fixture
def own_broker() -> Iterator[BlockingEmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.mark.parametrize("columns", COLUMN_SETS, ids=["two columns", "more"])
def test_a_body_that_cannot_be_unpacked_is_an_error_or_null(
    own_broker: BlockingEmbeddedBroker,
    send_odd: SendOdd,
    caplog: pytest.LogCaptureFixture,
    columns: tuple[str, ...],
) -> None:
    filled(own_broker, 20)
    send_odd(own_broker, COMPRESSED, TOPIC)
    filled(own_broker, 5)
    place = f"topic {TOPIC}, queue broker-a:0, offset 20"
    with pytest.raises(
        Unreadable, match=f"{place}: a compressed body cannot be .*; failOnDataLoss=false has null"
    ):
        rows(own_broker, 0, 26, columns)
    found = rows(own_broker, 0, 26, columns, failOnDataLoss=False)
    assert [row["queueOffset"] for row in found] == list(range(26))
    assert [row["queueOffset"] for row in found if row["body"] is None] == [20]
    assert f"{place}: a compressed body" in caplog.text
    assert rows(own_broker, 0, 20, columns) == found[:20]
    assert len(rows(own_broker, 0, 26, ["queueOffset"])) == 26  # Bodies nobody asked for.


def test_a_record_that_is_a_whole_batch_is_an_error_or_left_out(
    own_broker: BlockingEmbeddedBroker, send_odd: SendOdd, caplog: pytest.LogCaptureFixture
) -> None:
    filled(own_broker, 20)
    send_odd(own_broker, WHOLE_BATCH, TOPIC)
    filled(own_broker, 5)
    with pytest.raises(
        Unreadable, match=r"broker-a:0, offset 20: .* whole batch .*; failOnDataLoss=false leaves"
    ):
        rows(own_broker, 0, 26)
    for drops in (False, True):
        caplog.clear()
        found = rows(own_broker, 0, 26, failOnDataLoss=False, dropDuplicates=drops)
        assert [row["queueOffset"] for row in found] == [*range(20), *range(21, 26)]
        assert "broker-a:0, offset 20: the record is a whole batch" in caplog.text


def test_messages_that_only_a_whole_batch_has_are_an_error_or_lost(
    own_broker: BlockingEmbeddedBroker,
    send_odd: SendOdd,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A queue of batches goes on behind all messages of a record."""
    filled(own_broker, 20)
    send_odd(own_broker, WHOLE_BATCH, TOPIC)
    answer = Pulls.answer

    async def further(self: Pulls, asked: object) -> object:
        pulled = await answer(self, asked)  # type: ignore[arg-type]
        return pulled._replace(next_offset=25) if pulled.next_offset == 21 else pulled

    monkeypatch.setattr(Pulls, "answer", further)
    with pytest.raises(Unreadable, match=r"has a whole batch .*; failOnDataLoss=false reads"):
        rows(own_broker, 0, 25)
    assert rows(own_broker, 0, 25, failOnDataLoss=False) == expected(0, 20)
    assert "lost between 0 and 25: 4 of them: in a whole batch" in caplog.text


def test_files_give_the_same_rows_as_pulls(
    own_broker: BlockingEmbeddedBroker, send_odd: SendOdd, caplog: pytest.LogCaptureFixture
) -> None:
    filled(own_broker, COUNT)
    send_odd(own_broker, COMPRESSED, TOPIC)
    send_odd(own_broker, WHOLE_BATCH, TOPIC)
    filled(own_broker, 10)
    found = rows(own_broker, 0, COUNT + 12, failOnDataLoss=False, localFiles=True)
    assert found[COUNT] == {"queueOffset": COUNT, "body": None}
    assert found[COUNT + 1] == {"queueOffset": COUNT + 2, "body": b"0"}
    assert found == rows(own_broker, 0, COUNT + 12, failOnDataLoss=False)
    assert f"offset {COUNT}: a compressed body" in caplog.text


def test_an_archive_gets_past_them(
    spark: "SparkSession", own_broker: BlockingEmbeddedBroker, send_odd: SendOdd, tmp_path: Path
) -> None:
    filled(own_broker, 20)
    send_odd(own_broker, COMPRESSED, TOPIC)
    send_odd(own_broker, WHOLE_BATCH, TOPIC)
    filled(own_broker, 5)
    lake = tmp_path / "lake"
    run = functools.partial(
        archive, own_broker.namesrv, str(lake), topics=[TOPIC], once=True, spark=spark
    )
    with pytest.raises(Exception, match="failOnDataLoss=false "):
        run()
    told = run(options={"failOnDataLoss": "false"})
    assert (told.rows, told.lag) == (26, {TOPIC: 0})
    found = rows_in(lake, "delta").sort_by("queueOffset").to_pylist()
    assert [row["queueOffset"] for row in found] == [*range(21), *range(22, 27)]
    assert [row["queueOffset"] for row in found if row["body"] is None] == [20]


def test_a_report_counts_all_but_them(
    spark: "SparkSession", own_broker: BlockingEmbeddedBroker, send_odd: SendOdd
) -> None:
    for topic in (TOPIC, "only-odd"):
        own_broker.create_topic(topic, 1)
        send_odd(own_broker, COMPRESSED, topic)
    filled(own_broker, 5)
    store = str(own_broker.directory / "broker-a")
    for told in (report(own_broker.namesrv, spark=spark), report(store=store, spark=spark)):
        assert {one.topic: (one.messages, one.bytes) for one in told.topics} == {
            TOPIC: (6, 5), "only-odd": (1, 0),
        }  # fmt: skip
