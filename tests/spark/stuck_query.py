"""A driver that never ends its first batch: `python -m tests.spark.stuck_query NAMESRV TOPIC DIR`.

For tests that kill it.
"""

import sys
import threading

from cometmq.spark import session


def never_end(_: object, __: int) -> None:
    threading.Event().wait()


def main(namesrv: str, topic: str, checkpoint: str) -> None:
    spark = session("stuck", "local[1]", **{"spark.driver.memory": "1g"})
    frame = (
        spark.readStream.format("rocketmq")
        .option("namesrvAddr", namesrv)
        .option("topic", topic)
        .load()
    )
    writer = frame.writeStream.foreachBatch(never_end)
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
