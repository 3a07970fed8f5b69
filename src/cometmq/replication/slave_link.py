"""The master's end of the stream to one slave.

Bytes go from the mapped log into the socket as slices of the mapping, a bounded number of frames a
turn of the loop, and no more than the socket takes: a slow slave costs the master no memory.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from cometmq.protocol.host import Host
from cometmq.store.errors import StoreError
from cometmq.store.message_store import MessageStore

from .errors import BrokenStream
from .pace import Pace
from .stream import Reports, frame_header

log = logging.getLogger(__name__)
FRAMES_PER_TURN: Final = 32
OUTPUT_BYTES_HIGH: Final = 1024**2
NOTHING: Final = -1
"""In the place of an offset: nothing was told yet."""


class SlaveLink(asyncio.Protocol):
    def __init__(
        self,
        store: MessageStore,
        pace: Pace,
        *,
        on_open: Callable[["SlaveLink"], None],
        on_report: Callable[["SlaveLink"], None],
        on_close: Callable[["SlaveLink"], None],
    ) -> None:
        self.peer = Host("", 0)
        self.acknowledged = NOTHING
        """The slave has everything below this."""
        self.sent = NOTHING
        """Everything below this is on its way."""
        self._store = store
        self._pace = pace
        self._on_open = on_open
        self._on_report = on_report
        self._on_close = on_close
        self._reports = Reports()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._heard = self._loop.time()
        self._watching: asyncio.TimerHandle | None = None
        self._news: asyncio.Future[None] | None = None
        self._pumping = False
        self._paused = False

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- the event loop's side -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do what asyncio.Transport does without being one.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(OUTPUT_BYTES_HIGH)
        self.peer = Host(*transport.get_extra_info("peername")[:2])
        self._watch()
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        try:
            offset = self._reports.feed(data)
        except BrokenStream as error:
            self._refuse(str(error))
            return
        if offset is not None:
            self._take_report(offset)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._pump_soon()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's call
        self._transport = None
        if self._watching is not None:
            self._watching.cancel()
        if self._news is not None:
            self._news.cancel()
        self._on_close(self)

    # -- reports ---------------------------------------------------------------------------------

    def _take_report(self, offset: int) -> None:
        end = self._store.appended.value
        if offset > end:
            self._refuse(
                f"its log goes to {offset} and ours only to {end}. It has messages that this "
                "master lost, or followed another one: make it the master, or empty its store"
            )
            return
        if self.sent == NOTHING and not self._begin(offset):
            return
        if offset > self.sent:
            self._refuse(f"it acknowledges {offset}, but was sent no more than {self.sent}")
            return
        self.acknowledged = max(offset, self.acknowledged)
        self._on_report(self)

    def _begin(self, offset: int) -> bool:
        """Send from where the slave's log ends; False when that cannot be."""
        commit_log, end = self._store.commit_log, self._store.appended.value
        if offset == 0:
            offset = end - end % commit_log.segments.segment_bytes
        if offset < commit_log.start_offset:
            self._refuse(
                f"its log ends at {offset} and ours begins at {commit_log.start_offset}: what lies "
                "between is deleted. Empty its store, and it begins anew"
            )
            return False
        log.info("slave %s follows from %d on", self.peer, offset)
        self.sent = offset
        self._pump_soon()
        return True

    def _refuse(self, why: str) -> None:
        log.error("slave %s is refused: %s", self.peer, why)
        self.close()

    # -- frames ----------------------------------------------------------------------------------

    def _pump_soon(self) -> None:
        if not self._pumping and self.sent != NOTHING:
            self._pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Send what there is, as long as the socket takes it."""
        self._pumping = False
        for _ in range(FRAMES_PER_TURN):
            if self._paused or not self.is_open:
                return
            if not self._send_frame():
                return
        self._pump_soon()

    def _send_frame(self) -> bool:
        """Send the next part of the log; False when there is none."""
        start, end = self.sent, self._store.appended.value
        if start >= end:
            self._await_news()
            return False
        segment = self._store.commit_log.segments.find(start)
        if segment is None:
            self._refuse(f"it was too slow: the log is deleted at {start}. Empty its store")
            return False
        stop = min(end, segment.end, start + self._pace.batch_bytes)
        # Two writes: one would join them, and so copy.
        self._write(frame_header(start, stop - start))
        self._write(segment.view[start - segment.base : stop - segment.base])
        self.sent = stop
        return True

    def _await_news(self) -> None:
        """Be called when the log goes on, or when it is time for a sign of life."""
        if self._news is not None:
            return
        self._news = self._loop.create_future()
        self._news.add_done_callback(self._has_news)
        try:
            self._store.appended.when_reached(self.sent + 1, self._pace.heartbeat_ms, self._news)
        except StoreError as error:
            self._news.set_exception(error)

    def _has_news(self, news: "asyncio.Future[None]") -> None:
        self._news = None
        if news.cancelled():
            return
        is_late = news.exception() is not None
        if not self.is_open:
            return
        if is_late:
            self._write(frame_header(self.sent, 0))
        self._pump()

    def _write(self, data: bytes | memoryview) -> None:
        if self._transport is not None:
            self._transport.write(data)

    # -- life signs ------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Give up a slave that has been silent for too long."""
        patience_s = self._pace.silence_ms / 1000
        left_s = self._heard + patience_s - self._loop.time()
        if left_s <= 0:
            log.warning("slave %s is silent for %g s: closed", self.peer, patience_s)
            self.close()
        else:
            self._watching = self._loop.call_later(left_s, self._watch)
