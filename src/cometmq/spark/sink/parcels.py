"""Rows as requests: many of one queue in one where that is possible, alone where it is not.

Pure. What is delayed, large or half of a transaction goes alone: brokers take no batches of those.
Rows of one queue stay in their order.
"""

import dataclasses
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from cometmq.client.message import UNIQUE_ID_BYTES_MAX, WAIT, with_unique_id
from cometmq.client.producer.parcels import Content
from cometmq.client.producer.transactions import GROUP, HALF
from cometmq.protocol.batch import BATCHED_BYTES
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.flags import TRANSACTION_PREPARED
from cometmq.protocol.hot import encode_rows
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.names import RETRY_PREFIX

from .ids import Ids
from .places import Place
from .rows import Numbers, Rows, Truths, Values

COMMON: Final = f"{WAIT}\x01true\x02"
"""What all requests say: the answer is to wait for the disk, if the broker does."""
SMALL_BYTES: Final = 64 << 10
"""Less than that waits for more rows of its queue."""
HELD_BYTES_MAX: Final = 8 << 20
"""Of all that waits, of all queues together."""
_NOTHING: Final = Values(b"", b"")


class Batch(NamedTuple):
    """Rows that came together. The first of them is `first_row` of the task."""

    rows: Rows
    ids: Ids
    first_row: int
    now_ms: int
    takes: Numbers
    """What each takes of a request."""


@dataclasses.dataclass(slots=True)
class Parcel:
    """One request's worth of rows."""

    queue: MessageQueue
    content: Content
    first_row: int
    rows: int
    is_free: bool
    """Whether another queue of its topic will do as well."""
    is_ordered: bool = True
    """Whether it must be stored before what follows to the same queue."""
    unique_id: str = ""
    """Of what goes alone."""


@dataclasses.dataclass(slots=True)
class _Held:
    bodies: list[bytes]
    size: int
    first_row: int
    rows: int

    def add(self, body: bytes, rows: int) -> None:
        self.bodies.append(body)
        self.size += len(body)
        self.rows += rows


def batch_of(rows: Rows, ids: Ids, first_row: int, now_ms: int) -> Batch:
    return Batch(rows, ids, first_row, now_ms, rows.takes + BATCHED_BYTES + UNIQUE_ID_BYTES_MAX)


class Parcels:
    """Made of the rows of one task. Small ones are held back until more comes, or `rest`."""

    def __init__(self, *, batch_bytes: int, is_free: bool, half_of_group: str = "") -> None:
        """`half_of_group`: all are half messages of this producer group."""
        self._batch_bytes = batch_bytes
        self._is_free = is_free
        self._is_half = bool(half_of_group)
        self._common = COMMON
        if half_of_group:
            self._common += f"{HALF}\x01true\x02{GROUP}\x01{half_of_group}\x02"
        self._held: dict[MessageQueue, _Held] = {}

    def made(self, place: Place, batch: Batch) -> list[Parcel]:
        """What can leave now that these rows came."""
        queue = place.queue
        alone, together = self._divided(place.rows, batch.rows.delayed)
        made = [self._alone(queue, row, batch) for row in alone.tolist()]
        for rows, size in self._pieces(together, batch, queue.topic):
            if size > self._batch_bytes:
                made += [*self._leave(queue, batch.now_ms), self._alone(queue, rows[0], batch)]
            else:
                made += self._hold(queue, rows, batch)
        return made

    def _divided(self, rows: Numbers, delayed: Truths | None) -> tuple[Numbers, Numbers]:
        """Those that go alone, and the others."""
        if self._is_half:
            return rows, rows[:0]
        if delayed is None:
            return rows[:0], rows
        apart = delayed[rows]
        return rows[apart], rows[~apart]

    def rest(self, now_ms: int) -> list[Parcel]:
        return [parcel for queue in list(self._held) for parcel in self._leave(queue, now_ms)]

    def crowded_out(self, now_ms: int) -> list[Parcel]:
        """What must leave so that not too much is held."""
        held = sum(one.size for one in self._held.values())
        return self.rest(now_ms) if held > HELD_BYTES_MAX else []

    # -- together --------------------------------------------------------------------------------

    def _pieces(self, chosen: Numbers, batch: Batch, topic: str) -> Iterator[tuple[Numbers, int]]:
        """The rows in pieces that fit into a request, in order, with their sizes. One row alone
        may be too large, and counts as that where its topic takes no batches."""
        takes = batch.takes[chosen]
        if topic.startswith(RETRY_PREFIX):
            takes += self._batch_bytes
        ends, start = np.cumsum(takes), 0
        while start < len(chosen):
            before = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, before + self._batch_bytes, side="right"))
            stop = max(stop, start + 1)
            yield chosen[start:stop], int(ends[stop - 1]) - before
            start = stop

    def _hold(self, queue: MessageQueue, rows: Numbers, batch: Batch) -> list[Parcel]:
        properties = batch.rows.properties or _NOTHING
        body = encode_rows(
            batch.rows.bodies.offsets, batch.rows.bodies.data,
            properties.offsets, properties.data,
            rows.astype(np.int32).data,
            batch.ids.beginning, batch.ids.number,
        )  # fmt: skip
        held, leaving = self._held.get(queue), []
        if held is not None and held.size + len(body) > self._batch_bytes:
            leaving = self._leave(queue, batch.now_ms)
            held = None
        if held is None:
            held = self._held[queue] = _Held([], 0, batch.first_row + int(rows[0]), 0)
        held.add(body, len(rows))
        return leaving + (self._leave(queue, batch.now_ms) if held.size >= SMALL_BYTES else [])

    def _leave(self, queue: MessageQueue, now_ms: int) -> list[Parcel]:
        held = self._held.pop(queue, None)
        if held is None:
            return []
        content = Content(
            RequestCode.SEND_BATCH_MESSAGE, COMMON, b"".join(held.bodies),
            sys_flag=0, flag=0, born_ms=now_ms, is_batch=True,
        )  # fmt: skip
        return [Parcel(queue, content, held.first_row, held.rows, self._is_free)]

    # -- alone -----------------------------------------------------------------------------------

    def _alone(self, queue: MessageQueue, row: int, batch: Batch) -> Parcel:
        rows = batch.rows
        delayed = rows.delayed is not None and bool(rows.delayed[row])
        own = rows.properties.of(row).decode() if rows.properties is not None else ""
        unique_id = (batch.ids.of_delayed if delayed else batch.ids).text(row)
        content = Content(
            RequestCode.SEND_MESSAGE_V2,
            with_unique_id(unique_id, self._common + own),
            rows.bodies.of(row),
            sys_flag=TRANSACTION_PREPARED if self._is_half else 0, flag=0, born_ms=batch.now_ms,
        )  # fmt: skip
        return Parcel(
            queue, content, batch.first_row + row, 1, self._is_free,
            is_ordered=not (delayed or self._is_half), unique_id=unique_id,
        )  # fmt: skip
