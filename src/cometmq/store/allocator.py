"""Prepares the next CommitLog file while the current one fills up.

Making a file takes its blocks (and, if wished, touches every page), which is too slow for the
moment when a message needs the room.
"""

import logging
import threading
from collections.abc import Callable

from .segment import Segment

log = logging.getLogger(__name__)


class Allocator:
    """Holds at most one prepared segment; `make` creates the one that begins at an offset."""

    def __init__(self, make: Callable[[int], Segment]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._wanted: int | None = None
        self._ready: Segment | None = None
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="cometmq-allocate", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def prepare(self, base: int) -> None:
        """Ask for the segment at `base`, without waiting."""
        self._wanted = base
        self._wake.set()

    def take(self, base: int) -> Segment:
        """The segment at `base`: prepared, or made on the spot. Raises OSError on a full disk."""
        with self._lock:
            self._wanted = None
            segment, self._ready = self._ready, None
            if segment is not None and segment.base != base:
                segment.delete()
                segment = None
            return segment or self._make(base)

    def drop(self) -> None:
        """Remove what was prepared: the log goes on elsewhere."""
        with self._lock:
            self._wanted = None
            if self._ready is not None:
                self._ready.delete()
                self._ready = None

    def stop(self) -> None:
        """End the thread. A prepared but unused file is removed: it would only confuse a reader
        of the directory."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self.drop()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._stopping:
                return
            with self._lock:
                if self._wanted is not None and self._ready is None:
                    self._try(self._wanted)

    def _try(self, base: int) -> None:
        try:
            self._ready = self._make(base)
        except OSError as error:
            # Not yet a failure: the file is made, or refused, when a message needs it.
            log.warning("cannot prepare the next CommitLog file ahead: %s", error)
