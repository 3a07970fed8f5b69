"""The session of a pipeline: one that runs, or one that is made when it is first needed.

Spark takes seconds to start. What is wrong with a request, and what is not there, is told before.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Sessions = Callable[[], SparkSession]
    Given = SparkSession | Sessions | None
    """What callers hand over: a session, who makes one, or nothing."""


def when_needed(spark: "Given", name: str) -> "Sessions":
    """Always the same session, made at the first call."""
    if spark is None:
        return functools.cache(lambda: session(name))
    if callable(spark):
        return functools.cache(spark)
    return lambda: spark
