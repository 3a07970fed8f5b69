"""Topics and log files as Spark DataFrames, streams and sinks.

    spark = cometmq.spark.session()
    spark.read.format("rocketmq").option("namesrvAddr", "127.0.0.1:9876").option("topic", "orders")

Nothing of Spark is imported before a session or a format is asked for.
"""

from .errors import (
    BadOption,
    ClusterAway,
    DataLost,
    NotPermitted,
    NotReady,
    NotSent,
    NotThere,
    SparkError,
    Unreadable,
)
from .session import register, session

__all__ = [
    "BadOption", "ClusterAway", "DataLost", "NotPermitted", "NotReady", "NotSent", "NotThere",
    "SparkError", "Unreadable", "register", "session",
]  # fmt: skip
