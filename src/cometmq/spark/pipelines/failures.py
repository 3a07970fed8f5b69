"""What Spark says when a job fails, in the words of who failed.

Spark wraps an error of a worker in pages of traces; what a user can act on is one line of them.
"""

import re
from typing import Final

from cometmq.client.errors import ClientError

from .. import errors
from ..topic.patience import AWAY

_OURS: Final = re.compile(r"^(?:[\w.]+\.)?errors\.(\w+): (.+)$", re.MULTILINE)
_ANY: Final = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception): .+)$", re.MULTILINE)
_JAVA: Final = "JVM stacktrace:"
_LINE_LENGTH_MAX: Final = 500
_NOT_THERE: Final = ("PATH_NOT_FOUND",)


def plain(error: BaseException) -> errors.SparkError:
    """The same failure as one of our errors, with its own line only."""
    if isinstance(error, errors.SparkError):
        return error
    if isinstance(error, ClientError):
        return (errors.ClusterAway if isinstance(error, AWAY) else errors.SparkError)(str(error))
    text = str(error)
    for name, said in reversed(_OURS.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, errors.SparkError):
            return kind(said)
    if found := _ANY.findall(text.partition(_JAVA)[0]):  # A worker's own error ends its trace.
        return errors.SparkError(found[-1][:_LINE_LENGTH_MAX])
    first = text.strip().partition("\n")[0][:_LINE_LENGTH_MAX]
    if condition := _analysis_condition(error):
        return errors.NotThere(first) if condition in _NOT_THERE else errors.BadOption(first)
    return errors.SparkError(f"{type(error).__name__}: {first}" if first else type(error).__name__)


def _analysis_condition(error: BaseException) -> str:
    """Of a query that Spark does not understand, as with a misspelt column; else empty."""
    from pyspark.errors import AnalysisException

    return (error.getCondition() or "") if isinstance(error, AnalysisException) else ""
