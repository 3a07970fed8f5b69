"""Reports of clients that trace: what happened to a message, as they send it to a topic.

A report holds several lines, each ended by \\x02; their fields stand with \\x01 between them. Which
fields there are depends on the line's kind and on the client's version: newer ones add at the end.
"""

import msgspec

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
"""Where clients report to unless they are told another topic."""
_LINE, _FIELD = "\x02", "\x01"
_NUMBER_MAX = 2**53
"""No count and no time in milliseconds is larger, and nobody's sums overflow."""


class Trace(msgspec.Struct, frozen=True):
    """One event: `Pub` is a send, `SubBefore` and `SubAfter` stand around a consumption,
    `EndTransaction` is a commit or rollback."""

    kind: str
    message_id: str
    timestamp: int = 0
    """0 where an old client does not tell."""
    group: str = ""
    topic: str = ""
    keys: str = ""
    cost_ms: int = 0
    success: bool = True
    request_id: str = ""
    """The same for both ends of a consumption."""
    retry_times: int = 0
    state: str = ""
    """Of a transaction: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""


def traces_in(body: bytes) -> list[Trace]:
    """All lines that can be read. Other kinds are left out, and lines that are cut or have a number
    that cannot be meant: anybody can write to the topic."""
    lines = body.decode(errors="replace").split(_LINE)
    found = [_trace(line.split(_FIELD)) for line in lines if line]
    return [trace for trace in found if trace is not None]


def _trace(line: list[str]) -> Trace | None:
    read = {
        "Pub": _sent, "SubBefore": _taken, "SubAfter": _consumed, "EndTransaction": _ended,
    }.get(line[0])  # fmt: skip
    try:
        return read(line) if read is not None else None
    except (IndexError, ValueError):
        return None


def _sent(line: list[str]) -> Trace:
    # The offset id came in between later.
    success = line[12] if len(line) == 13 else line[13]
    return Trace(
        "Pub", line[5], _number(line[1]), line[3], line[4], line[7], _number(line[10]),
        success == "true",
    )  # fmt: skip


def _taken(line: list[str]) -> Trace:
    return Trace(
        "SubBefore", line[5], _number(line[1]), line[3], keys=line[7], request_id=line[4],
        retry_times=_number(line[6]),
    )  # fmt: skip


def _consumed(line: list[str]) -> Trace:
    has_time = len(line) >= 9
    return Trace(
        "SubAfter", line[2], _number(line[7]) if has_time else 0, line[8] if has_time else "",
        keys=line[5], cost_ms=_number(line[3]), success=line[4] == "true", request_id=line[1],
    )  # fmt: skip


def _ended(line: list[str]) -> Trace:
    return Trace(
        "EndTransaction", line[5], _number(line[1]), line[3], line[4], line[7], state=line[11]
    )


def _number(text: str) -> int:
    value = int(text)
    if abs(value) > _NUMBER_MAX:
        raise ValueError(f"{text} is no number of a trace")
    return value
