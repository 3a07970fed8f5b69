"""Drivers and workers are killed at random moments, and the lake has every message once.

`COMETMQ_CHAOS_ROUNDS` set: a million messages and 20 kills; `COMETMQ_CHAOS_SEED` replays moments.
"""

import os
import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cometmq.client.blocking import Admin, Producer
from cometmq.spark.pipelines import read_lake
from cometmq.testing import BlockingEmbeddedBroker

from .killing import QUEUES, Driver, Killer, check_exact, send_many
from .lakes import left_over, rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOR_LONG = "COMETMQ_CHAOS_ROUNDS" in os.environ
SEED = int(os.environ.get("COMETMQ_CHAOS_SEED", random.randrange(10**6)))
MESSAGES = 1_000_000 if FOR_LONG else 50_000
KILLS = 20 if FOR_LONG else 2
BATCH_ROWS = MESSAGES // (60 if FOR_LONG else 30)
MOMENT_S = 1.0 if FOR_LONG else 0.3
"""A few batches on a fast machine: there must be some left for the next one who is killed."""
FINISH_S = 1800.0
pytestmark = pytest.mark.timeout(7200 if FOR_LONG else 600)


def ends_of(broker: BlockingEmbeddedBroker, topic: str) -> dict[int, int]:
    with Admin(broker.namesrv) as admin:
        stats = admin.topics.stats(topic).queues
    return {queue.queue_id: one.max_offset for queue, one in stats.items()}


@pytest.mark.parametrize("format_name", ["delta", "parquet"] if FOR_LONG else ["delta"])
def test_a_driver_that_is_killed_again_and_again_archives_everything_once(
    broker: BlockingEmbeddedBroker,
    producer: Producer,
    tmp_path: Path,
    spark: "SparkSession",
    format_name: str,
) -> None:
    print(f"COMETMQ_CHAOS_SEED={SEED}")
    topic, lake = f"killed-archive-{format_name}", tmp_path / "lake"
    broker.create_topic(topic, QUEUES)
    # The rest is sent while drivers are at work.
    send_many(producer, topic, 0, MESSAGES // 2)
    sending = threading.Thread(target=send_many, args=(producer, topic, MESSAGES // 2, MESSAGES))
    sending.start()
    given = (broker.namesrv, topic, lake, format_name, BATCH_ROWS)
    killer = Killer(SEED, MOMENT_S)
    for _ in range(KILLS):
        with Driver("kill_archive", *given) as driver:
            killer.strike(driver)
    sending.join()
    with Driver("kill_archive", *given) as driver:
        killer.strike_a_worker(driver)
        driver.finish(FINISH_S)
    killer.bury()
    assert killer.kills > KILLS // 2, "hardly anything was killed"
    ends = ends_of(broker, topic)
    check_exact(rows_in(lake, format_name), ends, MESSAGES)
    by_spark = read_lake(spark, str(lake)).select("queueId", "queueOffset").toArrow()
    check_exact(by_spark, ends, MESSAGES)
    assert not left_over(lake)


def test_a_stream_that_is_killed_between_two_topics_leaves_each_message_once_in_the_lake(
    broker: BlockingEmbeddedBroker, producer: Producer, tmp_path: Path, spark: "SparkSession"
) -> None:
    print(f"COMETMQ_CHAOS_SEED={SEED}")
    source, target, lake = "killed-from", "killed-to", tmp_path / "lake"
    broker.create_topic(source, QUEUES)
    broker.create_topic(target, QUEUES)
    send_many(producer, source, 0, MESSAGES)
    stream = (broker.namesrv, source, target, tmp_path / "checkpoint", BATCH_ROWS)
    archive = (broker.namesrv, target, lake, "delta", BATCH_ROWS, "dropDuplicates=true")
    killer = Killer(SEED, MOMENT_S)
    for _ in range(KILLS):
        with Driver("kill_stream", *stream) as driver:
            killer.strike(driver)
    with Driver("kill_stream", *stream) as driver:
        killer.strike_a_worker(driver)
        driver.finish(FINISH_S)
    for _ in range(KILLS // 2):
        with Driver("kill_archive", *archive) as driver:
            killer.strike(driver)
    with Driver("kill_archive", *archive) as driver:
        driver.finish(FINISH_S)
    killer.bury()
    assert killer.kills > KILLS // 2, "hardly anything was killed"
    ends = ends_of(broker, source)
    check_exact(first_places(rows_in(lake, "delta")), ends, MESSAGES)
    by_spark = read_lake(spark, str(lake)).select("body").toArrow()
    check_exact(first_places(by_spark), ends, MESSAGES)


def first_places(rows: pa.Table) -> pa.Table:
    """What the bodies tell of where the stream has read."""
    texts = pc.split_pattern(rows.column("body").cast(pa.string()), " ", max_splits=2)
    names = ("queueId", "queueOffset", "body")
    parts = [pc.list_element(texts, number) for number in range(len(names))]
    kinds = (pa.int32(), pa.int64(), pa.binary())
    return pa.table({n: p.cast(k) for n, p, k in zip(names, parts, kinds, strict=True)})
