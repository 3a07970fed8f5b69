"""What Spark says when a job fails, in the words of who failed.

Spark wraps an error of a worker in pages of traces; what a user can act on is one line of them.
"""

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Final

from cometmq.client import errors as client_errors
from cometmq.client.errors import (
    BrokerNotFound,
    ClientError,
    GroupNotFound,
    IllegalArgument,
    NoPermission,
    TopicNotFound,
)

from .. import errors
from ..topic.patience import AWAY

_OURS: Final = re.compile(r"^(?:[\w.]+\.)?errors\.(\w+): (.+)$", re.MULTILINE)
_ANY: Final = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception): .+)$", re.MULTILINE)
_JAVA: Final = "JVM stacktrace:"
_LINE_LENGTH_MAX: Final = 500
_NOT_THERE: Final = ("PATH_NOT_FOUND",)
_ENDED: Final = "Spark's Java has ended; the kernel does that to it when memory is short"
_KINDS: Final[tuple[tuple[tuple[type[ClientError], ...], type[errors.SparkError]], ...]] = (
    (AWAY, errors.ClusterAway),
    ((TopicNotFound, GroupNotFound, BrokerNotFound), errors.NotThere),
    ((IllegalArgument,), errors.BadOption),
    ((NoPermission,), errors.NotPermitted),
)
"""What an error of a client is among ours."""


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """Whatever fails in the block is one of our errors."""
    try:
        yield
    except Exception as error:
        if (told := plain(error)) is error:
            raise
        raise told from error


def plain(error: BaseException) -> errors.SparkError:
    """The same failure as one of our errors, with its own line only."""
    if isinstance(error, errors.SparkError):
        return error
    if isinstance(error, ClientError):
        return _ours(type(error))(str(error))
    if _java_has_ended():
        return errors.SparkError(_ENDED)
    text = str(error)
    for name, said in reversed(_OURS.findall(text)):
        if kind := _named(name):
            return kind(said)
    if found := _ANY.findall(text.partition(_JAVA)[0]):  # A worker's own error ends its trace.
        return errors.SparkError(found[-1][:_LINE_LENGTH_MAX])
    first = text.strip().partition("\n")[0][:_LINE_LENGTH_MAX]
    if condition := _analysis_condition(error):
        return errors.NotThere(first) if condition in _NOT_THERE else errors.BadOption(first)
    return errors.SparkError(f"{type(error).__name__}: {first}" if first else type(error).__name__)


def _java_has_ended() -> bool:
    """Then all fails that needs it, in words that could be of anything."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    process = getattr(getattr(context, "_gateway", None), "proc", None)
    return process is not None and process.poll() is not None


def _named(name: str) -> type[errors.SparkError] | None:
    """As which a worker's error is told; None if it is neither of Spark's room nor a client's."""
    if isinstance(kind := getattr(errors, name, None), type):
        return kind if issubclass(kind, errors.SparkError) else None
    kind = getattr(client_errors, name, None)
    return _ours(kind) if isinstance(kind, type) and issubclass(kind, ClientError) else None


def _ours(theirs: type[ClientError]) -> type[errors.SparkError]:
    kinds = (kind for some, kind in _KINDS if issubclass(theirs, some))
    return next(kinds, errors.SparkError)


def _analysis_condition(error: BaseException) -> str:
    """Of a query that Spark does not understand, as with a misspelt column; else empty."""
    from pyspark.errors import AnalysisException

    return (error.getCondition() or "") if isinstance(error, AnalysisException) else ""
