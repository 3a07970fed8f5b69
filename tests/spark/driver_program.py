"""A Spark driver that runs the tests' queries as they come: one line of JSON in, one out.

Started by `cometmq spark submit`, which says where it runs.
"""

import json
import sys
from typing import Any

from cometmq.spark import session
from tests.spark.queries import QUERIES


def main() -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr
    spark = session("cometmq-tests")
    try:
        for line in sys.stdin:
            answers.write(json.dumps(_answer(spark, **json.loads(line))) + "\n")
            answers.flush()
    finally:
        spark.stop()


def _answer(spark: Any, query: str, arguments: dict[str, str]) -> dict[str, Any]:
    try:
        return {"answer": QUERIES[query](spark, **arguments)}
    except Exception as error:  # noqa: BLE001 - whatever Spark raises, for the test to read
        return {"error": str(error)}


if __name__ == "__main__":
    main()
