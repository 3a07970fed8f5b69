"""A driver that archives, for tests that kill it. It says which batches are done.

`python -m tests.spark.kill_archive NAMESRV TOPIC LAKE FORMAT ROWS [NAME=VALUE …]`
"""

import sys

from cometmq.spark import session
from cometmq.spark.pipelines import archive

from .killing import SMALL, say


def main(namesrv: str, topic: str, lake: str, format_name: str, rows: str, *more: str) -> None:
    spark = session("killed", "local[2,4]", **SMALL)
    spark.sparkContext.setLogLevel("OFF")
    say("begun")
    given = dict(one.split("=", 1) for one in more)
    archive(
        namesrv,
        lake,
        topics=[topic],
        format=format_name,
        once=True,
        options={"maxOffsetsPerTrigger": rows, **given},
        spark=spark,
        on_batch=lambda done: say(f"batch {done.number}"),
    )
    say("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
