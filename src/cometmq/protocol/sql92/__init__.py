"""SQL92 filters over message properties, in RocketMQ's dialect and with its answers.

`compile` reads a filter's text once; what it gives is asked for every message.
"""

from .errors import IllegalFilter
from .filter import Filter, compile  # noqa: A004 - called as sql92.compile

__all__ = ["Filter", "IllegalFilter", "compile"]
