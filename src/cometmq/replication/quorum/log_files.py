"""The files of a member: its CommitLog in the store, and the file with epoch and vote.

What takes time runs in threads and comes back as a call in the loop. What cannot be made durable is
the member's end: `failed` is told.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from cometmq.protocol.flags import TRANSACTION_PREPARED
from cometmq.protocol.message import Message
from cometmq.protocol.names import SYSTEM_PREFIX
from cometmq.raft.epoch_table import Stretch
from cometmq.raft.hard_state import HardState
from cometmq.raft.ports import NoRoom
from cometmq.store.config import FlushMode
from cometmq.store.errors import DiskFull, LeadershipLost, StoreFailed
from cometmq.store.message_store import MessageStore

from .state_file import StateFile

MARK_TOPIC: Final = SYSTEM_PREFIX + "raft_epoch"
"""The topic of records that begin an epoch, or a change of members. They are flagged as prepared
parts of a transaction, so that no queue has them, here or in a RocketMQ that reads the files."""
SYNC_TIMEOUT_MS: Final = 24 * 3600 * 1000


class LogFiles:
    def __init__(
        self,
        store: MessageStore,
        state_file: StateFile,
        *,
        synced: Callable[[int, int], None],
        saved: Callable[[int], None],
        failed: Callable[[StoreFailed], None],
    ) -> None:
        self._store = store
        self._state_file = state_file
        self._synced = synced
        self._saved = saved
        self._failed = failed
        self._waits_for_disk = store.config.flush is FlushMode.SYNC
        self._thread = ThreadPoolExecutor(1, "cometmq-raft")
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        self._thread.shutdown()

    @property
    def end(self) -> int:
        return self._store.appended.value

    def read(self, start: int, end: int, bytes_max: int) -> bytes:
        return self._store.raw(start, end, bytes_max)

    def write(self, offset: int, data: bytes) -> None:
        try:
            # A chunk is of one file, so it finds room as a whole or not at all.
            self._store.append_raw(offset, memoryview(data))
        except DiskFull as error:
            raise NoRoom(str(error)) from error

    def mark(self, stretch: Stretch) -> int:
        record = Message(
            topic=MARK_TOPIC,
            queue_id=0,
            body=msgspec.json.encode(stretch),
            sys_flag=TRANSACTION_PREPARED,
        )
        try:
            self._store.append(record)
        except DiskFull as error:
            raise NoRoom(str(error)) from error
        return self._store.appended.value

    def cut(self, end: int) -> None:
        self._store.cut(end)
        self._forget_syncs()

    def restart(self, start: int) -> None:
        self._store.restart(start)
        self._forget_syncs()

    def _forget_syncs(self) -> None:
        """A sync under way may wait for an end that the log never has again."""
        self._store.flushed.give_up(LeadershipLost("the log was cut"))

    def sync(self, end: int, generation: int) -> None:
        if not self._waits_for_disk:
            self._loop.call_soon(self._synced, end, generation)
            return
        over: asyncio.Future[None] = self._loop.create_future()

        def done(future: "asyncio.Future[None]") -> None:
            error = future.exception()
            if error is None or isinstance(error, LeadershipLost):
                # Of a log that was cut it says nothing, as its generation tells.
                self._synced(end, generation)
            else:
                self._failed(_failure("CommitLog", error))

        over.add_done_callback(done)
        self._store.flushed.when_reached(end, SYNC_TIMEOUT_MS, over)
        self._store.request_flush()

    def save(self, state: HardState, number: int) -> None:
        def done(future: "asyncio.Future[None]") -> None:
            error = future.exception()
            if error is None:
                self._saved(number)
            else:
                self._failed(_failure(str(self._state_file.path), error))

        self._loop.run_in_executor(self._thread, self._state_file.save, state).add_done_callback(
            done
        )


def _failure(what: str, error: BaseException) -> StoreFailed:
    return StoreFailed(f"{what} could not be made durable: {error}; this member must stop")
