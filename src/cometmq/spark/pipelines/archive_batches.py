"""What the driver does with each batch of an archive.

The order is the promise: the tasks run, the lake has the batch durably, and only then the brokers
hear how far the group has come, since they may delete what lies before. All of it may happen again
for the same batch, which changes nothing.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

import msgspec

from ..topic.offsets import ByQueue, Offsets, from_json
from ..topic.overview import Overview
from .archive_group import ArchiveGroup
from .archive_progress import BatchDone
from .archive_source import Written
from .lake.lake import Lake
from .lake.records import BatchRecord, LakeFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STARTED_TIMEOUT_S: Final = 60.0


class Stopped(Exception):
    """A batch came when the archive was to end. It comes again with the next start."""


class Batches:
    """Called by Spark with each batch, in a thread of its own."""

    def __init__(
        self,
        lake: Lake,
        overview: Overview,
        group: ArchiveGroup,
        checkpoint: str,
        tell: Callable[[BatchDone], None],
    ) -> None:
        self.query_id: Future[str] = Future()
        """Known when the query has been started; the first batch may come before that."""
        self.failure: Exception | None = None
        self.done = 0
        """Batches that are in the lake."""
        self._lake = lake
        self._overview = overview
        self._group = group
        self._checkpoint = checkpoint
        self._tell = tell
        self._working = threading.Lock()
        self._is_closed = False
        self._topics: set[str] = set()

    def __call__(self, frame: "DataFrame", number: int) -> None:
        with self._working:
            if self._is_closed:
                raise Stopped
            try:
                self._tell(self._archived(frame, number))
                self.done += 1
            except Exception as error:
                self.failure = error
                raise

    def close(self) -> None:
        """Let the batch that is under way end, and no other begin."""
        with self._working:
            self._is_closed = True

    def _archived(self, frame: "DataFrame", number: int) -> BatchDone:
        began_s = time.monotonic()
        written = [msgspec.json.decode(row[0], type=Written) for row in frame.collect()]
        files = [file for one in written for file in one.files]
        ends = next(one.ends for one in written if one.ends)
        self._commit(number, ends, files)
        places = from_json(ends)
        self._group.commit(places)
        return BatchDone(
            number=number,
            rows=sum(file.rows for file in files),
            bytes=sum(file.bytes for file in files),
            files=len(files),
            seconds=time.monotonic() - began_s,
            lag=self._lag(places),
        )

    def _commit(self, number: int, ends: Offsets, files: list[LakeFile]) -> None:
        query = self.query_id.result(STARTED_TIMEOUT_S)
        if new := ends.keys() - self._topics:
            self._lake.refuse_foreign(new, query)
            self._topics |= new
        self._lake.commit(BatchRecord(query, number, self._checkpoint, ends, files))

    def _lag(self, places: ByQueue) -> dict[str, int]:
        """Messages of each topic that are not archived yet."""
        lag: dict[str, int] = {}
        for queue, stats in self._overview.queues({queue.topic for queue in places}).items():
            behind = stats.max_offset - places.get(queue, stats.min_offset)
            lag[queue.topic] = lag.get(queue.topic, 0) + max(0, behind)
        return lag
