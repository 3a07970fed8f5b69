"""Spark's source, sink and log reader at CometMQ and at the real RocketMQ, by the same tests.

What was written is read by the real Java client, what is read was written by it, wherever it can.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.client import Credentials, Message
from cometmq.client import cluster as clusters
from cometmq.protocol.flags import COMPRESSED
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.properties import RECORD_CRC
from cometmq.spark.topic.offsets import QueueRange
from cometmq.spark.topic.options import read_options
from interop import systems
from interop.python_client import CONFIG, PythonBench, numbered
from interop.rocketmq import ConfigValue, JsonObject, peer
from interop.systems import SYSTEMS, Cluster, System
from interop.test_python_servers import ACCESS_CONTROL, SECRET, USER, certificate, with_tls

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

__all__ = ["certificate"]

COUNT = 120
WAIT_S = 120
ALL = (
    "topic", "brokerName", "queueId", "queueOffset", "msgId", "bornTimestamp", "storeTimestamp",
    "keys", "tags", "body", "reconsumeTimes", "bornHost", "storeHost", "sysFlag", "physicalOffset",
    "properties",
)  # fmt: skip
GUARANTEES = ("at-least-once", "idempotent", "transactional")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="needs pip install 'cometmq[spark]'")
    from cometmq.spark import session

    running = session(
        "cometmq-interop",
        "local[2]",
        **{
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": 2,
            "spark.ui.showConsoleProgress": False,
            "spark.sql.warehouse.dir": tmp_path_factory.mktemp("warehouse"),
        },
    )
    running.sparkContext.setLogLevel("OFF")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def shared(system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with systems.running(system, tmp_path_factory.mktemp("spark"), CONFIG) as cluster:
        yield cluster


@pytest.fixture
def bench(shared: Cluster) -> Iterator[PythonBench]:
    with PythonBench(shared) as started:
        yield started


class Topic:
    """A topic as Spark and as the Java client see it."""

    def __init__(self, spark: SparkSession, bench: PythonBench, what: str, queues: int = 4) -> None:
        self.name = bench.run(bench.topic(what, queues))
        self._spark = spark
        self._bench = bench

    @property
    def options(self) -> dict[str, str]:
        return {"namesrvAddr": self._bench.cluster.namesrv.address, "topic": self.name}

    def send(self, *messages: Message) -> None:
        self._bench.run(self._bench.send(*messages))

    def frame(self, **more: str) -> DataFrame:
        return self._spark.read.format("rocketmq").options(**self.options, **more).load()

    def stream(self, checkpoint: Path, name: str, **more: str) -> list[Row]:
        """All that is there now."""
        frame = self._spark.readStream.format("rocketmq").options(**self.options, **more).load()
        writer = frame.writeStream.format("memory").queryName(name)
        run_to_its_end(writer.option("checkpointLocation", str(checkpoint)))
        return self._spark.table(name).collect()

    def dump(self) -> list[JsonObject]:
        """By the Java client."""
        *messages, _ = peer("dump", namesrv=self.options["namesrvAddr"], topic=[self.name])
        return messages

    def stored(self) -> int:
        return self._bench.run(self._bench.stored(self.name))

    def wait_for(self, count: int) -> None:
        until(lambda: self.stored() >= count, f"{count} messages in {self.name}")


MakeTopic = Callable[..., Topic]


@pytest.fixture
def topic(spark: SparkSession, bench: PythonBench) -> MakeTopic:
    def make(what: str, queues: int = 4) -> Topic:
        return Topic(spark, bench, f"Spark-{what}", queues)

    return make


def run_to_its_end(writer: Any) -> None:
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(WAIT_S), "the query did not end"
    finally:
        query.stop()


def until(fact: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not fact():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)


def place(line: JsonObject) -> tuple[int, int]:
    return line["queueId"], line["queueOffset"]


def body(line: JsonObject) -> bytes:
    return base64.b64decode(line["bodyBase64"])


def ends(lines: Iterable[JsonObject]) -> dict[str, int]:
    """Behind the last message of each queue, as the options write it."""
    found: Counter[str] = Counter()
    for line in lines:
        queue = f"broker-a:{line['queueId']}"
        found[queue] = max(found[queue], line["queueOffset"] + 1)
    return dict(found)


def in_words_of_java(row: Row) -> JsonObject:
    """A row as the Java client tells a message."""
    return {
        "topic": row.topic,
        "queueId": row.queueId,
        "queueOffset": row.queueOffset,
        "commitLogOffset": row.physicalOffset,
        "uniqKey": row.msgId,
        "bornTimestamp": milliseconds(row.bornTimestamp),
        "storeTimestamp": milliseconds(row.storeTimestamp),
        "bornHost": row.bornHost,
        "storeHost": row.storeHost,
        "sysFlag": row.sysFlag & ~COMPRESSED,
        "reconsumeTimes": row.reconsumeTimes,
        "bodyBase64": base64.b64encode(row.body).decode(),
        "properties": row.properties,
    }


def comparable(line: JsonObject) -> JsonObject:
    """Java's clients unpack a body and forget that it was packed; a record's check sum is no
    property to Spark, though it is stored as one."""
    kept = {name: value for name, value in line["properties"].items() if name != RECORD_CRC}
    return {**line, "properties": kept, "sysFlag": line["sysFlag"] & ~COMPRESSED}


def milliseconds(moment: dt.datetime) -> int:
    # Spark hands times over in this machine's zone, without saying so.
    return round(moment.timestamp() * 1000)


def assert_the_same(rows: Iterable[Row], lines: Iterable[JsonObject]) -> None:
    found = sorted((in_words_of_java(row) for row in rows), key=place)
    wanted = sorted(map(comparable, lines), key=place)
    assert [place(row) for row in found] == [place(line) for line in wanted]
    for row, line in zip(found, wanted, strict=True):
        assert row == {name: line[name] for name in row}


# -- source --------------------------------------------------------------------------------------


def test_rows_are_what_the_java_client_sent_and_reads(
    topic: MakeTopic, rocketmq_classpath: str
) -> None:
    """Of every shape that its producer makes: packed, delayed, with odd names and many bytes."""
    assert rocketmq_classpath
    orders = topic("Java")
    peer("produce", namesrv=orders.options["namesrvAddr"], topic=orders.name, count=COUNT, seed=7)
    lines = orders.dump()
    # Delayed ones go on arriving.
    until_there = {orders.name: ends(lines)}
    frame = orders.frame(columns=",".join(ALL), endingOffsets=json.dumps(until_there))
    assert len(lines) > COUNT // 2
    assert_the_same(frame.collect(), lines)
    assert {(row.keys, row.tags) for row in frame.collect()} == {
        (line["properties"].get("KEYS"), line["properties"].get("TAGS")) for line in lines
    }


def test_a_stream_reads_all_that_is_there_in_small_batches(
    topic: MakeTopic, tmp_path: Path
) -> None:
    orders = topic("Stream")
    orders.send(*numbered(orders.name, COUNT))
    small = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "50", "columns": ",".join(ALL)}
    rows = orders.stream(tmp_path / "checkpoint", "interop_stream", **small)
    assert len(rows) == COUNT
    assert_the_same(rows, orders.dump())


def test_brokers_filter_by_tags_and_by_sql(topic: MakeTopic) -> None:
    orders = topic("Filtered")
    orders.send(*(
        Message(orders.name, b"%d" % n, tags=f"T{n % 3}", properties={"number": str(n)})
        for n in range(60)
    ))  # fmt: skip
    by_tags = orders.frame(tags="T0 || T2").collect()
    assert sorted(int(row.body) for row in by_tags) == [n for n in range(60) if n % 3 != 1]
    by_sql = orders.frame(sql92="number >= 50 AND TAGS = 'T1'").collect()
    assert sorted(int(row.body) for row in by_sql) == [52, 55, 58]


def test_times_are_places(topic: MakeTopic) -> None:
    orders = topic("Times")
    orders.send(*numbered(orders.name, 20, "before"))
    time.sleep(0.05)  # Moments are told in milliseconds; let this one be its own.
    moment = str(time.time_ns() // 1_000_000)
    time.sleep(0.05)
    orders.send(*numbered(orders.name, 20, "after"))

    def prefixes(**more: str) -> Counter[bytes]:
        return Counter(bytes(row.body).split(b"-")[0] for row in orders.frame(**more).collect())

    assert prefixes(startingTimestamp=moment) == {b"after": 20}
    assert prefixes(endingTimestamp=moment) == {b"before": 20}
    assert prefixes() == {b"before": 20, b"after": 20}


def test_a_group_is_where_the_stream_is(
    topic: MakeTopic, spark: SparkSession, bench: PythonBench, tmp_path: Path
) -> None:
    orders, group = topic("Group"), bench.name("group")
    own = {"consumerGroup": group, "commitGroupOffsets": "true", "startingOffsets": "earliest"}
    orders.send(*numbered(orders.name, 40))
    frame = spark.readStream.format("rocketmq").options(**orders.options, **own).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        until(lambda: query.lastProgress is not None, "a batch is durable")
        # The next batch tells the group about the one before it.
        orders.send(*numbered(orders.name, 8, "later"))
        until(lambda: sum(committed(bench, group, orders).values()) >= 40, "the group knows")
    finally:
        query.stop()
    behind = committed(bench, group, orders)
    wanted = [line for line in orders.dump() if line["queueOffset"] >= behind[line["queueId"]]]
    rest = orders.frame(consumerGroup=group, startingOffsets="group").collect()
    assert sorted((row.queueId, row.queueOffset) for row in rest) == sorted(map(place, wanted))
    assert len(wanted) <= 8


def test_files_of_a_broker_on_this_machine_have_the_same_rows(
    topic: MakeTopic, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cometmq.spark.topic.pulls import Pulls

    orders, count = topic("Nearby", 1), 12_000
    rows = spark.range(0, count, 1, 1).selectExpr("concat('row ', id) body", "string(id) keys")
    rows.write.format("rocketmq").options(**orders.options).mode("append").save()
    orders.wait_for(count)
    pulled = range_of(orders, count)
    asked, ask = list[int](), Pulls.ask

    def noted(pulls: Pulls, offset: int, messages_max: int) -> object:
        asked.append(offset)
        return ask(pulls, offset, messages_max)

    monkeypatch.setattr(Pulls, "ask", noted)
    assert range_of(orders, count, localFiles="true") == pulled
    assert asked == [0], "one message is pulled, to see that the files are the broker's"
    assert [row["queueOffset"] for row in pulled] == list(range(count))


def range_of(orders: Topic, count: int, **more: str) -> list[dict[str, Any]]:
    """The messages of its first queue, as a task reads them."""
    from cometmq.spark.topic.ranges import read_range

    options = read_options({**orders.options, **more}, streaming=False)
    part = QueueRange(MessageQueue(orders.name, "broker-a", 0), 0, count)
    return [row for batch in read_range(options, part, ALL) for row in batch.to_pylist()]


def committed(bench: PythonBench, group: str, orders: Topic) -> dict[int, int]:
    return bench.run(bench.committed(group, orders.name))


# -- sink ----------------------------------------------------------------------------------------

WRITTEN = (
    "concat('row ', id) body", "concat('k', id) keys", "concat('T', id % 3) tags",
    "concat('shard', id % 7) shardingKey", "map('number', string(id), '城市', '杭州') properties",
)  # fmt: skip


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_the_java_client_reads_what_spark_wrote(
    topic: MakeTopic, spark: SparkSession, guarantee: str
) -> None:
    orders = topic(f"Sink-{guarantee}")
    rows = spark.range(0, COUNT, 1, 3).selectExpr(*WRITTEN)
    writer = rows.write.format("rocketmq").options(**orders.options)
    writer.option("deliveryGuarantee", guarantee).mode("append").save()
    orders.wait_for(COUNT)
    lines = orders.dump()
    assert sorted(map(body, lines)) == sorted(b"row %d" % n for n in range(COUNT))
    queues = defaultdict(set)
    for line in lines:
        number, stored = int(body(line).split()[1]), line["properties"]
        assert stored["KEYS"] == f"k{number}"
        assert stored["TAGS"] == f"T{number % 3}"
        assert (stored["number"], stored["城市"]) == (str(number), "杭州")
        queues[f"shard{number % 7}"].add(line["queueId"])
    assert all(len(found) == 1 for found in queues.values()), "a key is in one queue"
    assert len({line["uniqKey"] for line in lines}) == COUNT


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_stream_from_topic_to_topic(
    topic: MakeTopic, spark: SparkSession, guarantee: str, tmp_path: Path
) -> None:
    source, target = topic("From"), topic(f"To-{guarantee}")
    source.send(*numbered(source.name, COUNT))
    small = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "50"}
    frame = spark.readStream.format("rocketmq").options(**source.options, **small).load()
    writer = frame.selectExpr("body", "msgId keys").writeStream.format("rocketmq")
    writer = writer.options(**target.options).option("deliveryGuarantee", guarantee)
    run_to_its_end(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))
    target.wait_for(COUNT)
    wanted = {line["uniqKey"]: body(line) for line in source.dump()}
    lines = target.dump()
    assert len(lines) == COUNT
    assert {line["properties"]["KEYS"]: body(line) for line in lines} == wanted


def test_rows_of_a_transaction_keep_the_order_of_their_sharding_key(
    topic: MakeTopic, spark: SparkSession
) -> None:
    """RocketMQ's broker decides what comes together in many threads, in any order."""
    orders, count = topic("Ordered", 1), 2000
    rows = spark.range(0, count, 1, 1).selectExpr("string(id) body", "'same' shardingKey")
    writer = rows.write.format("rocketmq").options(**orders.options)
    writer.option("deliveryGuarantee", "transactional").mode("append").save()
    orders.wait_for(count)
    lines = sorted(orders.dump(), key=place)
    assert [int(body(line)) for line in lines] == list(range(count))


def test_rows_can_choose_their_queue_and_their_time(topic: MakeTopic, spark: SparkSession) -> None:
    orders = topic("Chosen")
    at = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=4)
    rows = spark.createDataFrame(
        [(b"now", 3, None, None), (b"level", 1, 5, None), (b"moment", 2, None, at)],
        "body binary, queueId int, delayLevel int, deliverAt timestamp",
    )
    rows.write.format("rocketmq").options(**orders.options).mode("append").save()
    orders.wait_for(3)
    found = {body(line): line for line in orders.dump()}
    assert {name: line["queueId"] for name, line in found.items()} == {
        b"now": 3, b"level": 1, b"moment": 2,
    }  # fmt: skip
    level = found[b"level"]
    assert level["storeTimestamp"] - level["bornTimestamp"] >= 2000
    assert found[b"moment"]["storeTimestamp"] >= milliseconds(at) - 1000


# -- the log -------------------------------------------------------------------------------------


def test_files_are_read_while_their_broker_writes_them(
    topic: MakeTopic, spark: SparkSession, shared: Cluster
) -> None:
    orders = topic("Log")
    orders.send(*(
        Message(orders.name, b"logged %d" % n * 50, tags=f"T{n}", keys=f"k{n}")
        for n in range(COUNT)
    ))  # fmt: skip
    reader = spark.read.format("rocketmq-log").option("columns", ",".join(ALL))

    def rows() -> list[Row]:
        frame = reader.load(str(shared.broker.store))
        return frame.where(f"topic = '{orders.name}'").collect()

    assert_the_same(rows(), orders.dump())
    orders.send(*numbered(orders.name, 10, "more"))
    assert_the_same(rows(), orders.dump())


# -- servers that want to know who is there --------------------------------------------------------


def write_and_read(spark: SparkSession, options: Mapping[str, str]) -> list[bytes]:
    rows = spark.createDataFrame([(b"%d" % n,) for n in range(10)], "body binary")
    rows.write.format("rocketmq").options(**options).mode("append").save()
    found = spark.read.format("rocketmq").options(**options).load().collect()
    return sorted(bytes(row.body) for row in found)


def test_source_and_sink_speak_tls(
    spark: SparkSession, system: System, tmp_path: Path, certificate: dict[str, ConfigValue]
) -> None:
    with systems.running(with_tls(system, certificate), tmp_path, certificate) as cluster:
        with PythonBench(cluster) as bench:
            name = bench.run(bench.topic("Spark-Tls"))
        encrypted = {
            "namesrvAddr": cluster.namesrv.address, "topic": name, "tls": "true",
            "tlsCaFile": str(tmp_path / "authority.pem"),
        }  # fmt: skip
        assert write_and_read(spark, encrypted) == [b"%d" % n for n in range(10)]


@pytest.mark.full
@pytest.mark.skipif(SYSTEMS["rocketmq"] not in systems.chosen(), reason="of RocketMQ alone")
def test_rocketmq_knows_spark_by_its_signature(spark: SparkSession, tmp_path: Path) -> None:
    with systems.running(SYSTEMS["rocketmq"], tmp_path, ACCESS_CONTROL) as cluster:
        address = cluster.namesrv.address
        where = clusters.Cluster(address, credentials=Credentials(USER, SECRET))
        with PythonBench(cluster, where) as bench:
            name = bench.run(bench.topic("Spark-Guarded"))
        known = {"namesrvAddr": address, "topic": name, "accessKey": USER, "secretKey": SECRET}
        assert write_and_read(spark, known) == [b"%d" % n for n in range(10)]
        with pytest.raises(Exception, match="check signature failed") as refused:
            write_and_read(spark, {**known, "secretKey": "a-wrong-guess"})
        assert "a-wrong-guess" not in str(refused.value)
