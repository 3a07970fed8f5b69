"""What a task does: its rows into topics, in order, until all are acknowledged.

Rows are made ready in Spark's thread; an event loop beside sends them and waits for answers.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from cometmq.protocol.message_queue import MessageQueue
from cometmq.transport.background import BackgroundLoop

from .ids import Origin, fixed_ids, fresh_ids
from .options import SinkOptions
from .parcels import Parcels, batch_of
from .places import places
from .rows import rows_of
from .sending import Sending, Stored

Known = Mapping[str, Sequence[MessageQueue]]
PLACING: Final = frozenset({"shardingKey", "queueId"})
"""Columns that say where a row goes."""


class Task:
    """Sends the rows of one partition. In use from entry to exit."""

    def __init__(
        self,
        options: SinkOptions,
        origin: Origin,
        columns: Collection[str],
        known: Known,
        stored: Stored | None = None,
    ) -> None:
        """`known`: queues of topics on which all attempts at this partition agree. `stored` is left
        out where nobody asks what became of each parcel: all are acknowledged in the end."""
        self._options = options
        self._origin = origin
        self._known = dict(known)
        self._background = BackgroundLoop("cometmq-sink")
        self._sending = Sending(options, stored)
        self._parcels = Parcels(
            batch_bytes=options.batch_bytes,
            is_free=not options.has_fixed_ids and PLACING.isdisjoint(columns),
            half_of_group=options.producer_group if options.is_transactional else "",
        )
        self.rows = 0

    def __enter__(self) -> Self:
        self._background.start()
        self._background.call(self._sending.start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._background.call(self._sending.close())
        self._background.stop()

    def send(self, batches: Iterable[pa.RecordBatch]) -> None:
        """All of them. Returns when every row is acknowledged; when that fails, `stored` has been
        told of all that are."""
        try:
            for batch in batches:
                if batch.num_rows:
                    self._send(batch)
            self._background.call(self._finish())
        except Exception as error:
            self._background.call(self._sending.settle(error))
            raise

    def _send(self, batch: pa.RecordBatch) -> None:
        first_row, partition = self.rows, self._origin.partition
        rows = rows_of(
            batch, self._options.topic, first_row, partition,
            are_halves=self._options.is_transactional,
        )  # fmt: skip
        queues = {topic: self._queues(topic) for topic in rows.topics}
        fixed = self._options.has_fixed_ids
        ids = fixed_ids(self._origin, first_row, rows.number) if fixed else fresh_ids(rows.number)
        ready = batch_of(rows, ids, first_row, _now_ms())
        parcels = [
            parcel
            for place in places(rows, queues, first_row, partition)
            for parcel in self._parcels.made(place, ready)
        ]
        parcels += self._parcels.crowded_out(ready.now_ms)
        self._background.call(self._sending.put(parcels))
        self.rows += rows.number

    def _queues(self, topic: str) -> Sequence[MessageQueue]:
        """Those that must stay the same are asked for once."""
        if known := self._known.get(topic):
            return known
        if not self._options.has_fixed_ids:
            return self._sending.known(topic) or self._background.call(self._sending.queues(topic))
        found = self._known[topic] = self._background.call(self._sending.queues(topic))
        return found

    async def _finish(self) -> None:
        await self._sending.put(self._parcels.rest(_now_ms()))
        await self._sending.flush()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
