"""The stream of Spark that runs an archive's batches, until it is told to end.

Spark gives a new Python process ten seconds to come up, and a machine that is busy takes longer. A
query that fails for that is started again: where it goes on stands in its checkpoint.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..errors import SparkError
from ..session import register_source
from .archive_batches import Batches
from .archive_checkpoint import quick_checkpoint
from .archive_source import NAME, ArchiveDataSource
from .failures import plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)
STARTS_MAX: Final = 5
"""In a row, without a batch between them."""
_TOO_LATE: Final = ("failed to connect back", "Timed out while waiting for the Python worker")
_POLL_S: Final = 0.2


class ArchiveQuery:
    def __init__(
        self,
        spark: "SparkSession",
        given: Mapping[str, str],
        checkpoint: str,
        trigger: Mapping[str, Any],
    ) -> None:
        self._spark = spark
        self._given = dict(given)
        self._checkpoint = checkpoint
        self._trigger = trigger

    def run(self, make_batches: Callable[[], Batches], stop: threading.Event) -> None:
        """Until all is done, or the batch under way when `stop` was set."""
        starts = 0
        while not stop.is_set():
            batches = make_batches()
            try:
                self._run_once(batches, stop)
            except Exception as error:
                starts = 1 if batches.done else starts + 1
                if starts == STARTS_MAX or not _is_too_late(error):
                    raise _failure(error, batches) from error
                log.warning("the machine is too busy for Spark; the archive begins again")
            else:
                return

    def _run_once(self, batches: Batches, stop: threading.Event) -> None:
        batches.tell_again()
        query = self._started(batches)
        try:
            while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type] # parts, too
                if stop.is_set():
                    break
        finally:
            batches.close()
            query.stop()
        if batches.failure is not None:  # Of the batch that was waited for.
            raise batches.failure

    def _started(self, batches: Batches) -> "StreamingQuery":
        register_source(self._spark, ArchiveDataSource)
        frame = self._spark.readStream.format(NAME).options(**self._given).load()
        writer = frame.writeStream.foreachBatch(batches)
        writer = writer.option("checkpointLocation", self._checkpoint).trigger(**self._trigger)
        with quick_checkpoint(self._spark, self._checkpoint):
            query = writer.start()
        batches.query_id.set_result(query.id)
        return query


def _is_too_late(error: Exception) -> bool:
    return any(words in str(error) for words in _TOO_LATE)


def _failure(error: Exception, batches: Batches) -> SparkError:
    return plain(batches.failure or error)
