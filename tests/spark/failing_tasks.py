"""A job whose tasks all fail once: `python -m tests.spark.failing_tasks NAMESRV TOPIC GUARANTEE…`.

The first attempt at every partition fails in its middle, when something of it has arrived; the
second one writes all of it. The topic's name is completed by each guarantee.
"""

import sys
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import TaskContext

from cometmq.client.blocking import Admin
from cometmq.protocol.names import HALF_TOPIC
from cometmq.spark import session

ROWS = 12_000
BODY = "lpad(id, 300, '0')"
WAIT_S = 100.0
_BATCHES_BEFORE = 5
Pass = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def fails_once(namesrv: str, topic: str) -> Pass:
    """`topic`: where the first rows arrive."""

    def passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        for number, batch in enumerate(batches):
            if number == _BATCHES_BEFORE and task.attemptNumber() == 0:
                wait_for_messages(namesrv, topic)
                raise RuntimeError("this attempt is to fail")
            yield batch

    return passing


def wait_for_messages(namesrv: str, topic: str) -> None:
    deadline = time.monotonic() + WAIT_S
    with Admin(namesrv) as admin:
        while not any(stats.max_offset for stats in admin.topics.stats(topic).queues.values()):
            assert time.monotonic() < deadline, "nothing has arrived"
            time.sleep(0.05)


def main(namesrv: str, topic: str, *guarantees: str) -> None:
    settings = {
        "spark.driver.memory": "1g",
        "spark.sql.execution.arrow.maxRecordsPerBatch": 1000,
        "spark.ui.showConsoleProgress": False,
    }
    spark = session("failing", "local[2,3]", **settings)
    rows = spark.range(0, ROWS, 1, 2).selectExpr(f"{BODY} body")
    for guarantee in guarantees:
        target = f"{topic}-{guarantee}"
        arrives = HALF_TOPIC if guarantee == "transactional" else target
        failing = rows.mapInArrow(fails_once(namesrv, arrives), "body string")
        writer = failing.write.format("rocketmq").option("namesrvAddr", namesrv)
        writer = writer.option("topic", target).option("deliveryGuarantee", guarantee)
        writer.mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
