"""Orders as a stream, alerts as messages, everything in a lake: Spark on CometMQ in two minutes.

    python -m examples.spark_demo [ORDERS] [DIRECTORY]

A cluster inside this process gets orders from the Python client. One Spark stream joins them with
the shops and writes them to a lake table; another counts failed payments by shop and window, and
sends an alert where there are many. The alerts are consumed, all topics archived.
"""

import asyncio
import json
import random
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from cometmq.client import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage
from cometmq.spark import session
from cometmq.spark.pipelines.archive import archive
from cometmq.spark.quiet import prepare_quiet, silence
from cometmq.testing import EmbeddedBroker

ORDERS, ALERTS = "orders", "alerts"
SHOPS = [("s1", "Berlin"), ("s2", "Berlin"), ("s3", "Porto"), ("s4", "Oslo"), ("s5", "Porto")]
SECOND_MS = 1000
ORDERS_A_SECOND = 100
"""By the orders' own time, which runs faster than ours."""
FAILURES = 25
"""Failed payments of a shop within ten seconds that somebody should know about."""
SETTINGS = {"spark.sql.shuffle.partitions": 2, "spark.ui.showConsoleProgress": False}
ORDER = "orderId bigint, shop string, amount double, failed boolean, paidAtMs bigint"


# -- orders --------------------------------------------------------------------------------------


def orders(count: int) -> Iterator[dict[str, Any]]:
    """Every order, and in the middle of the day a shop whose payments fail."""
    chance = random.Random(7)  # the same orders every time
    for number in range(count):
        shop, _ = chance.choice(SHOPS)
        broken = shop == "s3" and count * 0.4 < number < count * 0.6
        yield {
            "orderId": number,
            "shop": shop,
            "amount": round(chance.expovariate(1 / 40), 2),
            "failed": chance.random() < (0.7 if broken else 0.02),
            "paidAtMs": 1_790_000_000_000 + number * SECOND_MS // ORDERS_A_SECOND,
        }


def message_of(order: dict[str, Any]) -> Message:
    return Message(
        ORDERS, json.dumps(order).encode(), tags=order["shop"], keys=str(order["orderId"])
    )


async def send_orders(namesrv: str, count: int) -> None:
    """In ten portions, so that the streams have something to do again and again."""
    async with Producer(namesrv, group="shop-tills", linger_s=0.005) as producer:
        messages = [message_of(order) for order in orders(count)]
        portion = -(-count // 10)
        for first in range(0, count, portion):
            await asyncio.gather(*map(producer.send, messages[first : first + portion]))
            await asyncio.sleep(0.5)


# -- streams -------------------------------------------------------------------------------------


def enriched_orders(spark: SparkSession, namesrv: str) -> DataFrame:
    shops = spark.createDataFrame(SHOPS, "shop string, city string")
    messages = (
        spark.readStream.format("rocketmq")
        .options(namesrvAddr=namesrv, topic=ORDERS, startingOffsets="earliest")
        .option("columns", "queueId,queueOffset,body")
        .load()
    )
    order = f.from_json(f.col("body").cast("string"), ORDER)
    return (
        messages.select("queueId", "queueOffset", order.alias("order"))
        .select("queueId", "queueOffset", "order.*")
        .withColumn("paidAt", f.timestamp_millis("paidAtMs"))
        .drop("paidAtMs")
        .join(shops, "shop")
    )


def alerts(enriched: DataFrame) -> DataFrame:
    """A message for each shop and ten seconds with too many failed payments."""
    counted = (
        enriched.withWatermark("paidAt", "5 seconds")
        .groupBy(f.window("paidAt", "10 seconds"), "shop", "city")
        .agg(f.count("*").alias("orders"), f.count_if("failed").alias("failed"))
        .where(f.col("failed") >= FAILURES)
    )
    told = f.struct("shop", "city", "orders", "failed", f.col("window.start").alias("since"))
    return counted.select(
        f.to_json(told).alias("body"), f.col("shop").alias("keys"), f.col("city").alias("tags")
    )


def stream(spark: SparkSession, namesrv: str, place: Path, sending: threading.Thread) -> None:
    """Both streams, from before the first order until the last one has come."""
    enriched = enriched_orders(spark, namesrv)
    to_lake = (
        enriched.writeStream.format("parquet")
        .partitionBy("city")
        .options(path=str(place / "lake" / "orders"), checkpointLocation=str(place / "check-lake"))
        .trigger(processingTime="1 second")
        .start()
    )
    to_topic = (
        alerts(enriched)
        .writeStream.format("rocketmq")
        .options(namesrvAddr=namesrv, topic=ALERTS)
        .option("checkpointLocation", str(place / "check-alerts"))
        .trigger(processingTime="1 second")
        .start()
    )
    sending.start()
    sending.join()
    for query in (to_lake, to_topic):
        query.processAllAvailable()
        batches = query.lastProgress.batchId + 1 if query.lastProgress else 0
        print(f"  {batches} micro-batches to {'the lake' if query is to_lake else 'the topic'}")
        query.stop()


# -- what came out -------------------------------------------------------------------------------


async def consume_alerts(namesrv: str) -> list[str]:
    """What an operator's program would get."""
    came: list[str] = []
    quiet = asyncio.Event()

    async def handler(alert: ReceivedMessage) -> None:
        came.append(alert.body.decode())
        quiet.set()

    async with PushConsumer(
        namesrv, group="operators", topics=ALERTS, handler=handler, consume_from=ConsumeFrom.FIRST
    ):
        await asyncio.wait_for(quiet.wait(), 30)
        while quiet.is_set():  # Until a second passes without another one.
            quiet.clear()
            await asyncio.sleep(1)
    return sorted(came, key=lambda alert: json.loads(alert)["since"])


def show_orders(spark: SparkSession, table: Path, sent: int) -> None:
    rows = spark.read.parquet(str(table))
    places = rows.select("queueId", "queueOffset").distinct().count()
    print(f"  {sent} orders sent, {rows.count()} rows in the lake, {places} different ones")
    by_city = rows.groupBy("city").agg(
        f.count("*").alias("orders"),
        f.round(f.sum("amount"), 2).alias("amount"),
        f.count_if("failed").alias("failed"),
    )
    by_city.orderBy("city").show()


def show_archive(table: Path) -> None:
    """Without Spark: the lake is a Delta table, which other programs read as well."""
    rows = DeltaTable(str(table)).to_pyarrow_table(columns=["topic", "body"])
    for topic in (ORDERS, ALERTS):
        bodies = rows.filter(pc.equal(rows["topic"], topic))["body"]
        print(f"  {topic}: {len(bodies)} messages, {pc.sum(pc.binary_length(bodies))} bytes")


# -- the whole -----------------------------------------------------------------------------------


def show(count: int, place: Path) -> None:
    with EmbeddedBroker(directory=place / "broker") as broker:
        for topic in (ORDERS, ALERTS):
            broker.create_topic(topic)
        print(f"A cluster at {broker.namesrv}, and Spark:")
        prepare_quiet()
        spark = session("cometmq-demo", "local[2]", **SETTINGS)
        silence(spark)
        print(f"  Spark {spark.version}\n{count} orders while two streams run:")
        sending = threading.Thread(
            target=lambda: asyncio.run(send_orders(broker.namesrv, count)), daemon=True
        )
        stream(spark, broker.namesrv, place, sending)
        print("What an operator's program gets from the topic of alerts:")
        for alert in asyncio.run(consume_alerts(broker.namesrv)):
            print(f"  {alert}")
        print("What is in the lake:")
        show_orders(spark, place / "lake" / "orders", count)
        print("Both topics archived to a Delta table:")
        archive(
            broker.namesrv, str(place / "archive"), topics=[ORDERS, ALERTS], once=True, spark=spark
        )
        show_archive(place / "archive")
        spark.stop()
    print(f"Look next at\n  {place / 'lake' / 'orders'}: the table, Parquet files by city")
    print(f"  {place / 'archive'}: all messages, with their properties, a Delta table")
    print(f"  {place / 'broker'}: the log itself, a table by format('rocketmq-log')")
    print("  docs/spark.md: the guide; `cometmq spark --help`: the commands")


def empty_directory(given: str | None) -> Path:
    """The demo's own is emptied; what somebody else has in theirs is not touched."""
    place = Path(given or "build/demo").resolve()
    if given is None:
        shutil.rmtree(place, ignore_errors=True)
    elif place.exists() and any(place.iterdir()):
        sys.exit(f"{place} is not empty: name another directory, or none for build/demo")
    place.mkdir(parents=True, exist_ok=True)
    return place


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    show(count, empty_directory(sys.argv[2] if len(sys.argv) > 2 else None))


if __name__ == "__main__":
    main()
