"""Topics and stores in SQL alone: views to read and to write. Tables, which Spark would leave
without their options, are refused with what to do."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cometmq.client.blocking import Producer
from cometmq.testing import BlockingEmbeddedBroker

from .log_stores import filled
from .sending import send

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

VIEWS = ("drinks", "bar", "files")
INSTEAD = "CREATE TEMPORARY VIEW name USING `{}` OPTIONS"


@pytest.fixture
def spark_sql(spark: "SparkSession") -> "Iterator[SparkSession]":
    yield spark
    for view in VIEWS:
        spark.catalog.dropTempView(view)
    spark.sql("DROP TABLE IF EXISTS unusable")


def view(spark: "SparkSession", name: str, source: str = "rocketmq", **given: str) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW {name} USING `{source}` OPTIONS ({_listed(given)})")


def _listed(given: dict[str, str]) -> str:
    return ", ".join(f"{name} '{value}'" for name, value in given.items())


def values(spark: "SparkSession", query: str) -> "list[Row]":
    return spark.sql(query).collect()


def refusal(spark: "SparkSession", statement: str) -> str:
    with pytest.raises(Exception, match="BadOption") as raised:
        spark.sql(statement).collect()
    return str(raised.value)


def test_a_view_is_read_and_another_one_written_to(
    spark_sql: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("drinks", 2)
    send(producer, "drinks", 10, queues=range(2))
    where = {"namesrvAddr": broker.namesrv, "topic": "drinks"}
    view(spark_sql, "drinks", **where)
    assert values(spark_sql, "SELECT queueId, count(*) FROM drinks GROUP BY 1 ORDER BY 1") == [
        (0, 5), (1, 5),
    ]  # fmt: skip
    view(spark_sql, "bar (body STRING, keys STRING)", **where)
    spark_sql.sql(
        "INSERT INTO bar SELECT concat('again: ', decode(body, 'utf-8')), 'k' FROM drinks"
    )
    view(spark_sql, "files", **where)
    assert values(spark_sql, "SELECT count(*) FROM files WHERE keys = 'k'") == [(10,)]
    assert values(spark_sql, "SELECT count(*) FROM drinks") == [(10,)], "it was planned before"


def test_files_are_a_view(spark_sql: "SparkSession", tmp_path: Path) -> None:
    view(spark_sql, "files", "rocketmq-log", path=str(filled(tmp_path / "store", 30)))
    assert values(spark_sql, "SELECT count(*) FROM files WHERE topic = 'orders'") == [(10,)]


@pytest.mark.parametrize(
    ("source", "given"),
    [
        ("rocketmq", {"namesrvAddr": "127.0.0.1:9876", "topic": "drinks"}),
        ("rocketmq-log", {"path": "/data/store"}),
    ],
)
def test_tables_are_refused_with_what_to_do(
    spark_sql: "SparkSession", source: str, given: dict[str, str]
) -> None:
    using = f"USING `{source}` OPTIONS ({_listed(given)})"
    said = refusal(spark_sql, f"CREATE TABLE unusable {using}")
    assert INSTEAD.format(source) in said
    # Spark asks nobody about a table that says its columns, so it comes into being.
    spark_sql.sql(f"CREATE TABLE unusable (body BINARY) {using}")
    assert INSTEAD.format(source) in refusal(spark_sql, "SELECT * FROM unusable")


def test_writing_to_a_table_is_refused_with_what_to_do(spark_sql: "SparkSession") -> None:
    spark_sql.sql("CREATE TABLE unusable (body BINARY) USING rocketmq OPTIONS (topic 'drinks')")
    said = refusal(spark_sql, "INSERT INTO unusable SELECT cast('coffee' AS BINARY)")
    assert INSTEAD.format("rocketmq") in said
