"""What the driver does with each batch of an archive.

The order is the promise: the tasks run, the lake has the batch durably, and only then the brokers
hear how far the group has come, since they may delete what lies before. All of it may happen again
for the same batch, which changes nothing. Tasks of a batch that the lake has already read nothing:
brokers may have deleted it, as they were allowed to.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

import msgspec

from ..topic.discovery import KnownQueues
from ..topic.offsets import ByQueue, Offsets, from_json
from ..topic.overview import Overview
from .archive_group import ArchiveGroup
from .archive_progress import BatchDone
from .archive_source import IN_LAKE, Written
from .lake.lake import Lake
from .lake.records import BatchRecord

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

    def tell_again(self) -> None:
        """Have the group be where the lake is before there is anything to archive: brokers may have
        forgotten what they were told, or it was another group, and the next batch may be far."""
        if reached := self._lake.reached(self._checkpoint):
            self._tell_brokers(from_json(reached))

    def close(self) -> None:
        """Let the batch that is under way end, and no other begin."""
        with self._working:
            self._is_closed = True

    def _archived(self, frame: "DataFrame", number: int) -> BatchDone:
        began_s = time.monotonic()
        batch = self._commit(self._written(frame, number))
        places = from_json(batch.ends)
        queues = self._tell_brokers(places)
        return BatchDone(
            number=number,
            rows=sum(file.rows for file in batch.files),
            bytes=sum(file.bytes for file in batch.files),
            files=len(batch.files),
            seconds=time.monotonic() - began_s,
            lag=_lag(places, queues),
        )

    def _tell_brokers(self, places: ByQueue) -> KnownQueues:
        queues = self._overview.queues(places)
        self._group.commit(_not_beyond(places, queues))
        return queues

    def _written(self, frame: "DataFrame", number: int) -> BatchRecord:
        """What the tasks wrote, and where the batch ends: nowhere, while no topic is there."""
        query = self.query_id.result(STARTED_TIMEOUT_S)
        # Only the first batch behind a start may have been here before.
        is_first = not self.done
        is_in_lake = is_first and self._lake.has(query, number)
        if is_first and not is_in_lake:
            self._lake.tidy(query, number)
        with _telling_tasks(frame, is_in_lake=is_in_lake):
            rows = frame.collect()
        written = [msgspec.json.decode(row[0], type=Written) for row in rows]
        files = [file for one in written for file in one.files]
        ends: Offsets = next((one.ends for one in written if one.ends), {})
        return BatchRecord(query, number, self._checkpoint, ends, files)

    def _commit(self, batch: BatchRecord) -> BatchRecord:
        entered = self._lake.commit(batch, batch.ends.keys() - self._topics)
        self._topics |= batch.ends.keys()
        return entered


def _not_beyond(places: ByQueue, queues: KnownQueues) -> ByQueue:
    """Without queues that end before the archive's place. Their topics were made anew: brokers
    would take their messages for archived."""
    ends = ((queue, at, queues.get(queue)) for queue, at in places.items())
    return {queue: at for queue, at, stats in ends if stats is None or stats.max_offset >= at}


def _lag(places: ByQueue, queues: KnownQueues) -> dict[str, int]:
    """Messages of each topic that are not archived yet."""
    lag: dict[str, int] = {}
    for queue, stats in queues.items():
        behind = stats.max_offset - places.get(queue, stats.min_offset)
        lag[queue.topic] = lag.get(queue.topic, 0) + max(0, behind)
    return lag


@contextlib.contextmanager
def _telling_tasks(frame: "DataFrame", *, is_in_lake: bool) -> Iterator[None]:
    """The property is that of the query's own thread in Java, which plans the job."""
    if not is_in_lake:
        yield
        return
    context = frame.sparkSession.sparkContext
    context.setLocalProperty(IN_LAKE, "true")
    try:
        yield
    finally:
        context.setLocalProperty(IN_LAKE, None)  # type: ignore[arg-type] # Takes it away.
