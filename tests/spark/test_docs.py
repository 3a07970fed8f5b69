"""The guide names every option and column there is and none that is not; its programs run."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.client.blocking import Producer
from cometmq.client.names import Message
from cometmq.spark.log import options as log_options
from cometmq.spark.schema import COLUMNS, ON_REQUEST
from cometmq.spark.sink import columns as sink_columns
from cometmq.spark.sink import options as sink_options
from cometmq.spark.topic import options as topic_options
from cometmq.testing import BlockingEmbeddedBroker

from .sending import options, send
from .streaming import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRINKS = (b"coffee", b"tea")
GUARANTEES = [guarantee.value for guarantee in sink_options.Guarantee]
ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "spark.md").read_text()
PROGRAM = re.compile(r"```python\n(.*?)```", re.DOTALL)


def section(title: str) -> str:
    """A part of the guide with all below it."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", GUIDE, re.DOTALL | re.MULTILINE)
    assert found, f"no part is called {title}"
    return found[1]


def first_cells(text: str) -> set[str]:
    """The names that tables of options begin their rows with."""
    rows = re.findall(r"^\|((?: ?`[^`|]+`,?)+) *\|", text, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


@pytest.mark.parametrize(
    ("title", "known"),
    [
        ("Read a topic", topic_options.KNOWN),
        ("Read log files", log_options.KNOWN),
        ("Write to a topic", (*sink_options.KNOWN, *sink_columns.TYPES, *GUARANTEES)),
    ],
)
def test_the_tables_have_all_names_and_no_other(title: str, known: tuple[str, ...]) -> None:
    elsewhere = {"columns", "includeProperties"}
    assert first_cells(section(title)) | elsewhere == set(known) | elsewhere


def test_every_column_is_told() -> None:
    text = section("Columns")
    assert [name for name in (*COLUMNS, *ON_REQUEST) if f"`{name}`" not in text] == []


@pytest.fixture
def orders(broker: BlockingEmbeddedBroker, request: pytest.FixtureRequest) -> str:
    """A topic for the programs, which call theirs orders."""
    name = str(request.function.__name__).removeprefix("test_")
    broker.create_topic(name)
    broker.create_topic(f"{name}_out")
    return name


def adapted(text: str, broker: BlockingEmbeddedBroker, orders: str, directory: Path) -> str:
    """A program of the guide, at the tests' broker with topics and files of its own."""
    store = next(broker.directory.rglob("commitlog")).parent
    text = text.replace("127.0.0.1:9876", broker.namesrv).replace("/data/store", str(store))
    text = re.sub("/var/lib/node_exporter|/tmp/checkpoint", str(directory), text)
    text = text.replace('"orders"', f'"{orders}"')
    return re.sub('"(alerts|coffees)"', f'"{orders}_out"', text)


def bodies_of(spark: "SparkSession", broker: BlockingEmbeddedBroker, topic: str) -> list[bytes]:
    rows = spark.read.format("rocketmq").options(**options(broker, topic=topic)).load()
    return sorted(bytes(row.body) for row in rows.collect())


def test_the_programs_of_the_guide_run(
    spark: "SparkSession",
    broker: BlockingEmbeddedBroker,
    producer: Producer,
    orders: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from cometmq.spark.listener import detach

    send(producer, orders, 6, message=lambda n: Message(orders, b"%d" % n, tags="paid"))
    given = {"spark": spark, "alerts": spark.createDataFrame([("too many",)], "body string")}
    programs = PROGRAM.findall(GUIDE)
    try:
        for text in programs:
            exec(adapted(text, broker, orders, tmp_path), given)
    finally:
        detach(spark)
    assert len(programs) == 4
    assert "|paid|    6|" in capfd.readouterr().out
    assert bodies_of(spark, broker, f"{orders}_out") == [b"too many"]


def test_the_program_of_the_readme_runs(
    spark: "SparkSession",
    broker: BlockingEmbeddedBroker,
    producer: Producer,
    orders: str,
    tmp_path: Path,
) -> None:
    readme = (ROOT / "README.md").read_text()
    (text,) = [found for found in PROGRAM.findall(readme) if "cometmq.spark" in found]
    assert "\nsink." in text
    text = text.replace("\nsink.", "\nquery = sink.").replace(".awaitTermination()", "")
    given: dict[str, Any] = {}
    exec(adapted(text, broker, orders, tmp_path), given)
    query = given["query"]
    try:
        until((tmp_path / "offsets" / "0").exists, query)
        send(producer, orders, 4, message=lambda n: Message(orders, b"%d %s" % (n, DRINKS[n % 2])))
        query.processAllAvailable()
    finally:
        query.stop()
    assert bodies_of(spark, broker, f"{orders}_out") == [b"0 coffee", b"2 coffee"]
