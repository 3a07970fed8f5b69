"""The thread that makes the log durable.

Asynchronous: a sync every interval, or (not timed) at each request and at least every interval.
Synchronous: group commit. Each sync covers everything appended before it began, so all who wait
meanwhile are served by the next one together.
"""

import logging
import sys
import threading
from collections.abc import Callable

from .commit_log import CommitLog
from .config import FlushMode, StoreConfig
from .errors import StoreFailed
from .watermark import Watermark

log = logging.getLogger(__name__)
SWITCH_INTERVAL_S = 0.0005
"""A thread back from a sync waits this long for a busy interpreter, not Python's 5 ms."""


class Flusher:
    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        appended: Watermark,
        flushed: Watermark,
        on_failure: Callable[[StoreFailed], None],
    ) -> None:
        self._log = commit_log
        self._appended = appended
        self._flushed = flushed
        self._on_failure = on_failure
        self._sync_mode = config.flush is FlushMode.SYNC
        self._interval_s = config.flush_interval_ms / 1000
        self.wakes_on_append = self._sync_mode or not config.flush_timed
        # A lock as a one-place signal: held means nothing was asked for.
        self._asked = False
        self._signal = threading.Lock()
        self._signal.acquire()
        self._stopping = False
        self._flushing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="cometmq-flush", daemon=True)

    def start(self) -> None:
        if self._sync_mode:
            sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
        self._thread.start()

    def request(self) -> None:
        """Ask for a sync of what has been appended so far."""
        if not self._asked:
            self._asked = True
            self._signal.release()

    def stop(self) -> None:
        """End the thread; what is left is not synced here."""
        self._stopping = True
        self.request()
        self._thread.join()

    def held(self) -> threading.Lock:
        """Held by whoever cuts the log, so that no sync counts what is cut."""
        return self._flushing

    def flush(self) -> None:
        """Make everything appended so far durable, in this thread."""
        with self._flushing:
            if self._flushed.failure is not None:
                raise self._flushed.failure
            start, end = self._flushed.value, self._appended.value
            if end <= start:
                return
            try:
                self._log.sync(start, end)
            except OSError as error:
                failure = StoreFailed(
                    f"CommitLog bytes {start} to {end} could not be made durable: {error};"
                    " none of them is acknowledged, and no more messages are taken"
                )
                self._flushed.fail(failure)
                raise failure from error
            self._flushed.advance(end)

    def _run(self) -> None:
        while not self._stopping:
            self._pause()
            try:
                self.flush()
            except StoreFailed as failure:
                log.critical("%s", failure)
                self._on_failure(failure)
                return

    def _pause(self) -> None:
        """Until something is asked for, or the interval is over."""
        if self._signal.acquire(timeout=self._interval_s):
            # First the flag, then the look at the watermark: an append in between asks again.
            self._asked = False
