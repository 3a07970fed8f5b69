"""How far a group has read: at the brokers for all members together, or in a file of one's own."""

import asyncio
import logging
import os
from pathlib import Path
from typing import Protocol

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.message_queue import MessageQueue

from ..errors import IllegalArgument, NoRoute
from ..link import SUCCESS, Link

log = logging.getLogger(__name__)
_OR_NONE = SUCCESS | {int(ResponseCode.QUERY_NOT_FOUND)}


class Progress(Protocol):
    async def read(self, queue: MessageQueue, *, exact: bool) -> int | None:
        """Where the group is; None when it has never read this queue.

        Without `exact` a broker may answer 0 for a queue whose first message is still there.
        """
        ...

    async def write(self, offsets: dict[MessageQueue, int]) -> None: ...


class BrokerProgress:
    """Kept by the broker that has the queue."""

    def __init__(self, link: Link, group: str) -> None:
        self._link = link
        self._group = group

    async def read(self, queue: MessageQueue, *, exact: bool) -> int | None:
        answer = await self._link.ask(
            master_of(self._link, queue),
            RequestCode.QUERY_CONSUMER_OFFSET,
            {**self._fields(queue), "setZeroIfNotFound": not exact},
            accept=_OR_NONE,
        )
        if answer.code not in SUCCESS:
            return None
        offset = int(answer.text_fields()["offset"])
        return offset if offset >= 0 else None

    async def write(self, offsets: dict[MessageQueue, int]) -> None:
        """All of them, even when one fails; the first failure is raised then."""
        written = await asyncio.gather(
            *(self._write(queue, offset) for queue, offset in offsets.items()),
            return_exceptions=True,
        )
        for failure in written:
            if isinstance(failure, BaseException):
                raise failure

    async def _write(self, queue: MessageQueue, offset: int) -> None:
        await self._link.ask(
            master_of(self._link, queue),
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {**self._fields(queue), "commitOffset": offset},
        )

    def _fields(self, queue: MessageQueue) -> dict[str, object]:
        return {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": queue.queue_id,
        }


class _Entry(msgspec.Struct):
    queue: MessageQueue
    offset: int


class FileProgress:
    """Kept in a file: members of a broadcasting group each have their own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets: dict[MessageQueue, int] | None = None

    async def read(self, queue: MessageQueue, *, exact: bool) -> int | None:  # noqa: ARG002
        return self._loaded().get(queue)

    async def write(self, offsets: dict[MessageQueue, int]) -> None:
        known = self._loaded()
        if any(known.get(queue) != offset for queue, offset in offsets.items()):
            known.update(offsets)
            await asyncio.to_thread(self._save, [_Entry(*item) for item in known.items()])

    def _loaded(self) -> dict[MessageQueue, int]:
        if self._offsets is None:
            try:
                entries = msgspec.json.decode(self._path.read_bytes(), type=list[_Entry])
            except FileNotFoundError:
                entries = []
            except (OSError, msgspec.MsgspecError) as error:
                raise IllegalArgument(
                    f"the offsets in {self._path} cannot be read ({error}); mend or remove the file"
                ) from error
            self._offsets = {entry.queue: entry.offset for entry in entries}
        return self._offsets

    def _save(self, entries: list[_Entry]) -> None:
        """Old or new, never half."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".tmp")
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(entries))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)


def master_of(link: Link, queue: MessageQueue) -> str:
    """Where a queue's offsets are kept: at its master, or at who stands in for it."""
    address = link.routes.any_address_of(queue.broker_name)
    if address is None:
        raise NoRoute(f"no broker {queue.broker_name} is known now")
    return address


async def queue_offset(link: Link, queue: MessageQueue, code: int, **more: object) -> int:
    """An offset that a broker knows of a queue: its least, its greatest, one by time."""
    fields = {"topic": queue.topic, "queueId": queue.queue_id, **more}
    answer = await link.ask(master_of(link, queue), code, fields)
    return int(answer.text_fields()["offset"])


def default_offsets_file(group: str) -> Path:
    """For a member of a broadcasting group. Two members on one machine need a file each."""
    return Path.home() / ".cometmq" / "offsets" / f"{group.replace('%', '_')}.json"
