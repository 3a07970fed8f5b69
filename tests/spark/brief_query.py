"""Reads what is there and ends: `python -m tests.spark.brief_query NAMESRV TOPIC DIR`.

A script that waits for its query and for nothing else.
"""

import sys

from cometmq.spark import session


def main(namesrv: str, topic: str, checkpoint: str) -> None:
    spark = session("brief", "local[1]", **{"spark.driver.memory": "1g"})
    given = {
        "namesrvAddr": namesrv, "topic": topic, "startingOffsets": "earliest",
        "consumerGroup": f"{topic}-readers", "commitGroupOffsets": "true",
    }  # fmt: skip
    frame = spark.readStream.format("rocketmq").options(**given).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
