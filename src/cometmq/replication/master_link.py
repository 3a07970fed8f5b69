"""A slave's end of the stream: bytes go into the log as they come, and are acknowledged when the
flush mode lets them be: with synchronous flush, when this slave's disk has them."""

import asyncio
import logging
import time
from typing import Final, cast

from cometmq.store.config import FlushMode
from cometmq.store.errors import StoreError
from cometmq.store.message_store import MessageStore
from cometmq.store.raw_tail import HEAD_BYTES, begins_record
from cometmq.store.turns import LoopTurns

from .errors import LogsDiffer, OutOfStep, ReplicationError
from .pace import Pace
from .stream import Frames, report

log = logging.getLogger(__name__)
_UNCHECKED_MAX: Final = HEAD_BYTES


def now_ms() -> int:
    return int(time.time() * 1000)


class MasterLink(asyncio.Protocol):
    def __init__(
        self, store: MessageStore, turns: LoopTurns, pace: Pace, *, is_checked: bool = False
    ) -> None:
        """`is_checked`: our log is known to be a copy of the master's."""
        self._store = store
        self._turns = turns
        self._pace = pace
        self._frames = Frames()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.over: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection has ended; with what was wrong, if anything was."""
        # Whoever waits for it may be gone.
        self.over.add_done_callback(lambda over: over.exception())
        self._wrong: Exception | None = None
        self._connected = self._loop.time()
        self.heard = 0.0
        """When the master was last heard of; 0 when it has not been."""
        self.heard_ms = self.reported_ms = 0
        """The same, and when we last reported, by the clock on the wall."""
        self.end: int | None = None
        """Where the master's log ended when it last had nothing to send; None: it always had."""
        self._reported = 0
        self._reporting: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None
        # Where our log ends with a whole record, the next one must begin in the master's.
        self._unchecked = bytearray()
        ends_whole = store.confirmed.value == store.appended.value > 0
        self._is_checked = is_checked or not ends_whole

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self, why: Exception | None = None) -> None:
        self._wrong = self._wrong or why
        if self._transport is not None:
            self._transport.abort()

    # -- the event loop's side -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do what asyncio.Transport does without being one.
        self._transport = cast(asyncio.Transport, transport)
        self._watch()
        # The first report says where to begin, whether that is on disk or not.
        self._report(self._store.appended.value)

    def data_received(self, data: bytes) -> None:
        self.heard = self._loop.time()
        self.heard_ms = now_ms()
        before = self._store.appended.value
        try:
            for offset, piece in self._frames.feed(data):
                self._take(offset, piece)
        except (ReplicationError, StoreError) as error:
            self.close(error)
        if self._store.appended.value > before:
            self._turns.appended(self._settled)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        for timer in (self._reporting, self._watching):
            if timer is not None:
                timer.cancel()
        if self.over.done():
            return
        wrong = self._wrong or error
        if wrong is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(wrong)

    # -- bytes -----------------------------------------------------------------------------------

    def _take(self, offset: int, piece: memoryview) -> None:
        expected = self._store.appended.value + len(self._unchecked)
        # A log that has nothing begins wherever the master does.
        if expected not in (0, offset):
            raise OutOfStep(f"the master sends offset {offset}, but {expected} comes next here")
        if not self._is_checked:
            piece, offset = self._checked(offset, piece)
        if len(piece):
            self._store.append_raw(offset, piece)
        elif self._is_checked:
            self.end = offset

    def _checked(self, offset: int, piece: memoryview) -> tuple[memoryview, int]:
        """The same when it begins a record; nothing as long as that is not known."""
        if not len(piece):
            return piece, offset
        start = offset - len(self._unchecked)
        self._unchecked += piece[: _UNCHECKED_MAX * 2]
        if not begins_record(self._unchecked, start):
            raise LogsDiffer(
                f"the master has no record at {start}, where this log ends: this slave followed "
                "another master, or its master lost messages. Empty this store and it begins "
                "anew, or make this broker the master"
            )
        if len(self._unchecked) < _UNCHECKED_MAX:
            return piece[:0], offset
        self._is_checked = True
        held = bytes(self._unchecked)[: offset - start] + bytes(piece)
        self._unchecked.clear()
        return memoryview(held), start

    # -- reports ---------------------------------------------------------------------------------

    def _settled(self, error: BaseException | None) -> None:
        if error is not None:
            log.error("what the master sent may not be durable here: %s", error)
        elif self._safe() > self._reported:
            self._report(self._safe())

    def _safe(self) -> int:
        """How far the log goes that may be acknowledged."""
        if self._store.config.flush is FlushMode.SYNC:
            return self._store.flushed.value
        return self._store.appended.value

    def _report(self, offset: int) -> None:
        if self._transport is None:
            return
        self._reported = max(offset, self._reported)
        self.reported_ms = now_ms()
        self._transport.write(report(self._reported))
        if self._reporting is not None:
            self._reporting.cancel()
        self._reporting = self._loop.call_later(
            self._pace.heartbeat_ms / 1000, self._report, self._reported
        )

    # -- life signs ------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Give up a master that has been silent for too long."""
        patience_s = self._pace.silence_ms / 1000
        left_s = max(self.heard, self._connected) + patience_s - self._loop.time()
        if left_s <= 0:
            self.close(ReplicationError(f"the master is silent for {patience_s:g} s"))
        else:
            self._watching = self._loop.call_later(left_s, self._watch)
