"""How far a group has read: at the brokers for all members together, or in a file of one's own."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command
from cometmq.protocol.message_queue import MessageQueue

from ..errors import IllegalArgument, NoRoute, OffsetsNotSaved, answers_read
from ..link import SUCCESS, Link

log = logging.getLogger(__name__)
_OR_NONE = SUCCESS | {int(ResponseCode.QUERY_NOT_FOUND)}


class Progress(Protocol):
    def open(self) -> None:
        """Called once, before anything else; IllegalArgument when it cannot be used."""
        ...

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

    def open(self) -> None:
        """Brokers are asked when it matters."""

    async def read(self, queue: MessageQueue, *, exact: bool) -> int | None:
        answer = await self._link.ask(
            master_of(self._link, queue),
            RequestCode.QUERY_CONSUMER_OFFSET,
            {**self._fields(queue), "setZeroIfNotFound": not exact},
            accept=_OR_NONE,
        )
        if answer.code not in SUCCESS:
            return None
        offset = _offset_in(answer)
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
        self._offsets: dict[MessageQueue, int] = {}
        self._writing = asyncio.Lock()

    def open(self) -> None:
        try:
            entries = msgspec.json.decode(self._path.read_bytes(), type=list[_Entry])
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise IllegalArgument(
                f"the offsets in {self._path} cannot be read ({error}); mend or remove the file"
            ) from error
        self._offsets = {entry.queue: entry.offset for entry in entries}

    async def read(self, queue: MessageQueue, *, exact: bool) -> int | None:  # noqa: ARG002
        return self._offsets.get(queue)

    async def write(self, offsets: dict[MessageQueue, int]) -> None:
        async with self._writing:
            changed = {**self._offsets, **offsets}
            try:
                await asyncio.to_thread(self._save, [_Entry(*item) for item in changed.items()])
            except OSError as error:
                raise OffsetsNotSaved(f"{self._path} cannot be written: {error}") from error
            self._offsets = changed

    def _save(self, entries: list[_Entry]) -> None:
        """Old or new, never half."""
        parent = self._path.parent
        parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name(self._path.name + ".tmp")
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(entries))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)
        with _opened(parent) as directory:
            os.fsync(directory)


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    number = os.open(directory, os.O_RDONLY)
    try:
        yield number
    finally:
        os.close(number)


def master_of(link: Link, queue: MessageQueue) -> str:
    """Where a queue's offsets are kept: at its master, or at who stands in for it."""
    address = link.routes.any_address_of(queue.broker_name)
    if address is None:
        raise NoRoute(f"no broker {queue.broker_name} is known now")
    return address


async def queue_offset(link: Link, queue: MessageQueue, code: int, **more: object) -> int:
    """An offset that a broker knows of a queue: its least, its greatest, one by time."""
    fields = {"topic": queue.topic, "queueId": queue.queue_id, **more}
    return _offset_in(await link.ask(master_of(link, queue), code, fields))


def _offset_in(answer: Command) -> int:
    with answers_read():
        return int(answer.text_fields()["offset"])


def default_offsets_file(group: str) -> Path:
    """For a member of a broadcasting group. Two members on one machine need a file each."""
    return Path.home() / ".cometmq" / "offsets" / f"{group.replace('%', '_')}.json"
