"""Where the rows of a source queue come from, by which a user is told of one that is not sent.

The sink numbers the rows of a partition, which means nothing to who replays a topic or a lake.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cometmq.client.errors import MessageIllegal

from ..errors import NotSent
from .replay_plan import SourceQueue

_ROW: Final = re.compile(r"\brow (?P<number>\d+)(?P<is_odd> of partition \d+)?")
"""As the sink names a row; with its partition, when it cannot be a message at all."""


class Places:
    """Of one source queue, as far as its rows were taken."""

    def __init__(self, queue: SourceQueue) -> None:
        self._queue = queue
        self._offsets: list[Any] = []

    def noted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same rows without their offsets, which are the first column."""
        for batch in batches:
            # Not Arrow's own, which would keep all of the batch in memory.
            self._offsets.append(np.array(batch.column(0)))
            yield batch.remove_column(0)

    def named(self, error: NotSent) -> NotSent:
        """The same, with the message's place instead of the row's number."""
        said = str(error)
        row = _ROW.search(said)
        if row is None:
            return error
        queue, offset = self._queue, int(np.concatenate(self._offsets)[int(row["number"])])
        place = f"{queue.topic} {queue.broker or '?'}:{queue.queue} {offset}"
        said = f"{said[: row.start()]}{place}{said[row.end() :]}"
        is_alone = row.start() == 0  # Others are not refused with it.
        if row["is_odd"] or (is_alone and isinstance(error.__cause__, MessageIllegal)):
            said = f'{said}; to leave it out: --where "{_all_but(queue, offset)}"'
        return NotSent(said)


def _all_but(queue: SourceQueue, offset: int) -> str:
    """As SQL over the source's columns."""
    broker = f"brokerName = '{queue.broker}' and " if queue.broker else ""
    return (
        f"not (topic = '{queue.topic}' and {broker}queueId = {queue.queue} and "
        f"queueOffset = {offset})"
    )
