"""A driver whose stream reads a topic and writes another, for tests that kill it.

`python -m tests.spark.kill_stream NAMESRV FROM TO CHECKPOINT ROWS`. What it writes tells where it
was read: the body is queue, offset and the first body, with spaces between.
"""

import sys

from cometmq.spark import session

from .killing import SMALL, say


def main(namesrv: str, source: str, target: str, checkpoint: str, rows: str) -> None:
    spark = session("killed", "local[2,4]", **SMALL)
    spark.sparkContext.setLogLevel("OFF")
    say("begun")
    reader = spark.readStream.format("rocketmq").option("namesrvAddr", namesrv)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", rows)
    frame = reader.option("topic", source).load()
    told = frame.selectExpr(
        "cast(concat_ws(' ', queueId, queueOffset, cast(body as string)) as binary) as body",
        "cast(queueId as string) as keys",
    )
    writer = told.writeStream.format("rocketmq").option("namesrvAddr", namesrv)
    writer = writer.option("topic", target).option("deliveryGuarantee", "idempotent")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    seen = -1
    while not query.awaitTermination(0.2):  # type: ignore[arg-type] # parts of seconds, too
        last = query.lastProgress
        if last is not None and last.batchId > seen:
            seen = last.batchId
            say(f"batch {seen}")
    say("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
