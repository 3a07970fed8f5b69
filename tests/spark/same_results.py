"""Tests of every place where Spark can run: it gives what it gives here.

Modules that import them have a fixture `driver`, which runs the tests' queries in that place.
"""

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from cometmq.client.blocking import Producer
from cometmq.client.names import Message
from cometmq.testing import BlockingEmbeddedBroker

from . import queries
from .drivers import Driver
from .log_stores import filled
from .sending import Sent, options, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT: Final = 200
_numbers = itertools.count()


class Orders:
    """A topic of one test alone, with messages in four queues."""

    def __init__(self, broker: BlockingEmbeddedBroker, producer: Producer) -> None:
        self.topic = f"elsewhere-{next(_numbers)}"
        broker.create_topic(self.topic, 4)
        self.options = options(broker, topic=self.topic)
        self.sent = send(producer, self.topic, COUNT, message=self._message)

    def _message(self, number: int) -> Message:
        return Message(self.topic, b"order %d" % number, tags=f"t{number % 3}", keys=f"k{number}")


@pytest.fixture
def orders(broker: BlockingEmbeddedBroker, producer: Producer) -> Orders:
    return Orders(broker, producer)


def places(rows: queries.Rows) -> Sent:
    found = {(row[0], row[1], row[2]): row[-1].encode() for row in rows}
    assert len(found) == len(rows), "a message came twice"
    return found


def test_a_batch(driver: Driver, spark: "SparkSession", orders: Orders) -> None:
    found = driver.ask("batch", **orders.options)
    assert places(found) == orders.sent
    assert found == queries.batch(spark, **orders.options)


def test_a_batch_with_a_filter_and_split_queues(
    driver: Driver, spark: "SparkSession", orders: Orders
) -> None:
    chosen = {**orders.options, "tags": "t1 || t2", "maxRecordsPerPartition": "17"}
    found = driver.ask("batch", **chosen)
    assert {row[3] for row in found} == {"t1", "t2"}
    assert len(found) == COUNT - len(range(0, COUNT, 3))
    assert found == queries.batch(spark, **chosen)


def test_a_join_and_a_shuffle(driver: Driver, orders: Orders) -> None:
    quarter = COUNT // 4
    assert driver.ask("counted", **orders.options) == [[n, quarter - 1, quarter] for n in range(4)]


def test_a_stream(driver: Driver, spark: "SparkSession", orders: Orders, checkpoint: str) -> None:
    limited = {**orders.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "80"}
    name = orders.topic.replace("-", "_")
    found = driver.ask("stream", name=name, checkpoint=f"{checkpoint}-there", **limited)
    assert places(found) == orders.sent
    assert found == queries.stream(spark, name, f"{checkpoint}-here", **limited)


@pytest.mark.parametrize("guarantee", ["at-least-once", "idempotent", "transactional"])
def test_a_batch_written(
    driver: Driver, spark: "SparkSession", broker: BlockingEmbeddedBroker, guarantee: str
) -> None:
    topic = f"elsewhere-{next(_numbers)}"
    broker.create_topic(topic, 4)
    target = options(broker, topic=topic)
    driver.ask("sink", count=str(COUNT), deliveryGuarantee=guarantee, **target)
    found = queries.batch(spark, **target)
    wanted = [[f"t{n % 3}", f"k{n}", f"row {n}"] for n in range(COUNT)]
    assert sorted(row[3:] for row in found) == sorted(wanted)


@pytest.mark.parametrize("guarantee", ["idempotent", "transactional"])
def test_a_stream_from_topic_to_topic(
    driver: Driver,
    spark: "SparkSession",
    broker: BlockingEmbeddedBroker,
    orders: Orders,
    checkpoint: str,
    guarantee: str,
) -> None:
    target = f"{orders.topic}-copy"
    broker.create_topic(target, 4)
    names = {"source": orders.topic, "target": target, "guarantee": guarantee}
    driver.ask("forward", checkpoint=checkpoint, namesrv=broker.namesrv, **names)
    found = queries.batch(spark, **options(broker, topic=target))
    assert sorted(row[-1].encode() for row in found) == sorted(orders.sent.values())


def test_a_stores_files(driver: Driver, spark: "SparkSession", tmp_path: Path) -> None:
    store, small = str(filled(tmp_path / "store", 1000)), {"maxBytesPerPartition": "20000"}
    found = driver.ask("log", store=store, **small)
    assert len(found) == 1000
    assert found == queries.log(spark, store, **small)


def test_what_is_wrong_is_told(driver: Driver, orders: Orders) -> None:
    said = driver.error_of("batch", **{**orders.options, "topics": "orders"})
    assert "unknown option topics; did you mean topic?" in said
