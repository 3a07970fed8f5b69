"""Columns as they are asked for: none twice, none that is said to be never null and may be."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cometmq.client.blocking import Producer
from cometmq.client.names import Message
from cometmq.spark.errors import BadOption
from cometmq.spark.option_values import columns
from cometmq.testing import BlockingEmbeddedBroker

from .log_stores import filled
from .sending import options, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = {"namesrvaddr": "127.0.0.1:9876", "topic": "orders"}
LOG = {"path": "/data/store"}


@pytest.fixture
def without_time_zones(spark: "SparkSession") -> "Iterator[SparkSession]":
    """A session in which `timestamp` means one without a time zone."""
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    yield spark
    spark.conf.unset("spark.sql.timestampType")


def test_times_are_moments_whatever_timestamp_means_in_a_session(
    without_time_zones: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer,
    tmp_path: Path,
) -> None:  # fmt: skip
    spark = without_time_zones
    broker.create_topic("moments", 1)
    send(producer, "moments", 3, queues=[0])
    topic = spark.read.format("rocketmq").options(**options(broker, topic="moments")).load()
    files = spark.read.format("rocketmq-log").load(str(filled(tmp_path / "store", 30)))
    for frame, count in ((topic, 3), (files.where("topic = 'orders'"), 10)):
        assert dict(frame.dtypes)["storeTimestamp"] == "timestamp"
        assert frame.where("unix_millis(bornTimestamp) > 0").count() == count


@pytest.mark.parametrize("named", ["body,queueId,body", "body, queueId, BODY"])
def test_a_column_that_is_named_twice_is_refused(named: str) -> None:
    with pytest.raises(BadOption, match="columns: body is named twice"):
        columns({"columns": named})
    assert columns({"columns": "properties", "includeProperties": "true"}) == ("properties",)


def check(stated: str, given: dict[str, str]) -> None:
    from pyspark.sql.types import StructType

    from cometmq.spark.schema import COLUMNS
    from cometmq.spark.spark_schema import check_schema

    schema = StructType.fromDDL(stated)
    assert isinstance(schema, StructType)
    check_schema(schema, given, COLUMNS)


@pytest.mark.usefixtures("spark")  # Which reads such texts.
@pytest.mark.parametrize(
    ("name", "kind", "given"),
    [
        ("keys", "string", TOPIC),
        ("tags", "string", LOG),
        ("body", "binary", {**TOPIC, "failondataloss": "false"}),
        ("body", "binary", {**LOG, "tolerateDamage": "TRUE"}),
        ("brokerName", "string", LOG),
    ],
)
def test_a_column_that_may_be_null_is_not_taken_for_one_that_is_not(
    name: str, kind: str, given: dict[str, str]
) -> None:
    with pytest.raises(BadOption) as refused:
        check(f"queueId int not null, {name} {kind} not null", given)
    said = f"schema: column {name} may be null here; write {name} {kind} without NOT NULL"
    assert str(refused.value) == said


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("stated", "given"),
    [
        ("brokerName string not null, body binary not null, msgId string not null", TOPIC),
        ("brokerName string not null", {**LOG, "brokerName": "broker-a"}),
        ("body binary not null", {**LOG, "failOnDataLoss": "false"}),
    ],
)
def test_a_column_that_is_never_null_may_be_called_so(stated: str, given: dict[str, str]) -> None:
    check(stated, given)


@pytest.mark.usefixtures("spark")
def test_a_schema_that_names_a_column_twice_is_refused() -> None:
    with pytest.raises(BadOption, match="schema: column body is named twice"):
        check("body binary, queueId int, body binary", TOPIC)


def test_spark_leaves_it_to_us_to_refuse_such_a_schema(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    from pyspark.errors import AnalysisException

    broker.create_topic("untagged", 1)
    send(producer, "untagged", 4, queues=[0], message=lambda number: Message(
        "untagged", b"%d" % number, tags="a" if number % 2 else "",
    ))  # fmt: skip
    reader = spark.read.format("rocketmq").options(**options(broker, topic="untagged"))
    with pytest.raises(AnalysisException, match="column tags may be null here"):
        reader.schema("queueOffset bigint not null, tags string not null").load().count()
    frame = reader.schema("queueOffset bigint not null, tags string").load()
    assert frame.where("tags is null").count() == 2
