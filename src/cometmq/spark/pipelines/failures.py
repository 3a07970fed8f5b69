"""What Spark says when a job fails, in the words of who failed.

Spark wraps an error of a worker in pages of traces; what a user can act on is one line of them.
"""

import re
from typing import Final

from .. import errors

_OURS: Final = re.compile(r"^(?:[\w.]+\.)?errors\.(\w+): (.+)$", re.MULTILINE)
_ANY: Final = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception): .+)$", re.MULTILINE)
_JAVA: Final = "JVM stacktrace:"
_LINE_LENGTH_MAX: Final = 500


def plain(error: BaseException) -> errors.SparkError:
    """The same failure as one of our errors, with its own line only."""
    if isinstance(error, errors.SparkError):
        return error
    text = str(error)
    for name, said in reversed(_OURS.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, errors.SparkError):
            return kind(said)
    if found := _ANY.findall(text.partition(_JAVA)[0]):  # A worker's own error ends its trace.
        return errors.SparkError(found[-1][:_LINE_LENGTH_MAX])
    first = text.strip().partition("\n")[0][:_LINE_LENGTH_MAX]
    return errors.SparkError(f"{type(error).__name__}: {first}" if first else type(error).__name__)
