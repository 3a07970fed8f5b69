"""Whether a slave's log is a copy of its master's, found out before anything is copied.

The stream itself has no word for it. So the slave asks over the ordinary protocol how far the
master's log goes, and for the record that is the last one here: any master answers that.
"""

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Request
from cometmq.protocol.fastjson import decode_body
from cometmq.store.message_store import MessageStore
from cometmq.transport.connection import Connection
from cometmq.transport.errors import TransportError

from .errors import LogsDiffer

ASK_TIMEOUT_S = 5.0
_EITHER_WAY = "Empty this store and it begins anew, or make this broker the master"


class LogRange(msgspec.Struct, frozen=True):
    start: int
    end: int


class _RuntimeInfo(msgspec.Struct):
    table: dict[str, str] = {}


async def log_range(connection: Connection) -> LogRange:
    """From where to where a broker has its log."""
    answer = await _ask(connection, RequestCode.GET_BROKER_RUNTIME_INFO, {})
    table = decode_body(answer.body, _RuntimeInfo, "figures of a broker").table
    try:
        return LogRange(int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"]))
    except (KeyError, ValueError) as error:
        raise TransportError(f"{connection.peer} does not tell its log's range: {error}") from None


async def require_copy(connection: Connection, store: MessageStore) -> bool:
    """LogsDiffer when our log cannot go on with what the broker at the other end has; whether
    there was anything to compare."""
    end = store.appended.value
    if end == 0:
        return False
    master = await log_range(connection)
    if master.end < end:
        raise LogsDiffer(
            f"this log goes to {end}, the master's only to {master.end}: the master lost messages, "
            f"or this slave followed another one. {_EITHER_WAY}"
        )
    if master.start > end:
        raise LogsDiffer(
            f"this log ends at {end}, the master's begins at {master.start}: what lies between is "
            "deleted there. Empty this store and it begins anew"
        )
    last = store.last_queued_offset()
    ours = store.record_at(last) if last >= master.start else None
    if ours is None:
        return False
    answer = await _answer(connection, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(last)})
    if answer.code != ResponseCode.SUCCESS or answer.body != bytes(ours):
        raise LogsDiffer(
            f"the record at {last} is another one than the master's: this slave followed another "
            f"master, or its master lost messages. {_EITHER_WAY}"
        )
    return True


async def _answer(connection: Connection, code: int, fields: dict[str, str]) -> Command:
    return await connection.request(Request(code, fields), ASK_TIMEOUT_S)


async def _ask(connection: Connection, code: int, fields: dict[str, str]) -> Command:
    answer = await _answer(connection, code, fields)
    if answer.code != ResponseCode.SUCCESS:
        raise TransportError(f"{connection.peer}: {answer.remark or f'answer {answer.code}'}")
    return answer
