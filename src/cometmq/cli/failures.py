"""Errors as a user is told them: one line, what to do about it, and an exit code.

Imported only once something has failed. What is not listed here is a bug, and keeps its trace.
"""

from typing import Final

from cometmq.client.errors import (
    AnswerTimedOut,
    BrokerError,
    BrokerNotFound,
    ClientError,
    ConnectionLost,
    ConsumerNotOnline,
    GroupNotFound,
    IllegalArgument,
    NoPermission,
    NoRoute,
    NotFound,
    SendFailed,
    TopicNotFound,
    Unreachable,
)
from cometmq.settings import BadSetting
from cometmq.spark.errors import BadOption, ClusterAway, NotPermitted, NotThere, SparkError
from cometmq.store.errors import StoreError

from .exits import Exit, NothingThere, WrongUse

_KINDS: Final[tuple[tuple[type[Exception], Exit, str], ...]] = (
    (WrongUse, Exit.USAGE, ""),
    (BadSetting, Exit.USAGE, ""),
    (IllegalArgument, Exit.USAGE, ""),
    (NothingThere, Exit.NOT_FOUND, ""),
    (TopicNotFound, Exit.NOT_FOUND, "`cometmq topic list` shows those that are there"),
    (GroupNotFound, Exit.NOT_FOUND, "`cometmq group list` shows those that are there"),
    (BrokerNotFound, Exit.NOT_FOUND, "`cometmq broker list` shows those that are there"),
    (ConsumerNotOnline, Exit.NOT_FOUND, ""),
    (NotFound, Exit.NOT_FOUND, ""),
    (NotThere, Exit.NOT_FOUND, ""),
    (BadOption, Exit.USAGE, ""),
    (NoPermission, Exit.NOT_PERMITTED, ""),
    (NotPermitted, Exit.NOT_PERMITTED, ""),
    (ClusterAway, Exit.UNREACHABLE, ""),
    (
        Unreachable,
        Exit.UNREACHABLE,
        "is it running, and is the address right (-n HOST:PORT)? `cometmq doctor` looks closer",
    ),
    (ConnectionLost, Exit.UNREACHABLE, "see whether it was done, then try again"),
    (AnswerTimedOut, Exit.UNREACHABLE, "try again, or give it more time (--timeout SECONDS)"),
    (NoRoute, Exit.UNREACHABLE, "`cometmq broker list` shows which brokers are there"),
)
_TOLD: Final = (BrokerError, ClientError, SparkError, StoreError, OSError)
"""Whose texts say by themselves what to do."""


def told(error: Exception) -> tuple[Exit, str] | None:
    """Exit code and text; None of what no user is to blame for."""
    cause = error.__cause__
    if isinstance(error, SendFailed) and isinstance(cause, Exception):
        code, _ = told(cause) or (Exit.FAILED, "")
        return code, f"{error}: {told_text(cause)}"
    for kind, code, _ in _KINDS:
        if isinstance(error, kind):
            return code, told_text(error)
    return (Exit.FAILED, told_text(error)) if isinstance(error, _TOLD) else None


def told_text(error: Exception) -> str:
    advice = next((advice for kind, _, advice in _KINDS if isinstance(error, kind)), "")
    said = " ".join(str(error).split())  # Brokers answer with several lines.
    lines = [f"{said}; {advice}" if advice else said, *getattr(error, "__notes__", ())]
    return "\n  ".join(lines)
