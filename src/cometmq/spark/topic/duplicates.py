"""Which messages of a queue are there for a second time: those that Spark's sink had to send again.

Pure. Only ids that the sink gives to the same row each time are looked at (`sink/ids.py`), and a
message is left out only if one with the same id, body and properties stands before it in its queue.
Of every query the two newest batches are kept: a batch begins only when the one before has its end,
but a task that Spark gave up may still send some rows of that one. A batch write has one batch
however long it is, so of all ids together no more than the last ones are kept.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple
from zlib import crc32

from cometmq.protocol.columns import Column
from cometmq.protocol.properties import RECORD_CRC, without_property

from ..sink.ids import BATCH_DIGITS, FIXED, QUERY_DIGITS, batch_before

log = logging.getLogger(__name__)
BATCHES_KEPT: Final = 2
"""Of each query."""
_OF_ONE_COPY: Final = (
    RECORD_CRC.encode(), b"TRANSACTION_CHECK_TIMES", b"TRAN_PREPARED_QUEUE_OFFSET",
)  # fmt: skip
"""Properties that brokers add to a message, and not the same ones to its second copy."""


class Piece(NamedTuple):
    """Messages of a queue that stand behind one another."""

    ids: Sequence[str]
    crcs: Sequence[int]
    """Of their bodies and properties; nothing where no id is a sink's."""

    @property
    def has_fixed(self) -> bool:
        return any(text.startswith(FIXED) for text in self.ids)


def piece_of(ids: Sequence[str], bodies: Column, properties: Column) -> Piece:
    piece = Piece(ids, ())
    if not piece.has_fixed:
        return piece
    both = zip(_values(bodies), map(_lasting, _values(properties)), strict=True)
    return Piece(ids, [crc32(own, crc32(body)) for body, own in both])


def _values(column: Column) -> Iterator[memoryview]:
    ends, data = memoryview(column.offsets).cast("i").tolist(), memoryview(column.data)
    return (data[start:end] for start, end in pairwise(ends))


def _lasting(properties: memoryview) -> bytes:
    """Less those of one copy."""
    encoded = bytes(properties)
    for name in _OF_ONE_COPY:
        encoded = without_property(encoded, name)
    return encoded


class _Known:
    """Ids of one batch, with the check sums of their messages."""

    def __init__(self) -> None:
        self._newer: dict[str, int] = {}
        self._older: dict[str, int] = {}
        self._others: set[tuple[str, int]] = set()
        """Messages whose id another one had before."""

    def has(self, text: str, crc: int) -> bool:
        return (
            self._newer.get(text) == crc
            or self._older.get(text) == crc
            or (text, crc) in self._others
        )

    def has_none(self, ids: Iterable[str]) -> bool:
        return self._newer.keys().isdisjoint(ids) and self._older.keys().isdisjoint(ids)

    def add(self, text: str, crc: int) -> bool:
        """Whether its id is that of another one."""
        if text not in self._newer and text not in self._older:
            self._newer[text] = crc
            return False
        self._others.add((text, crc))
        return True

    def add_all(self, fresh: Mapping[str, int]) -> None:
        self._newer.update(fresh)

    def age(self) -> bool:
        """Forget those that were there the last time already; whether others are left."""
        self._older, self._newer = self._newer, {}
        self._others.clear()
        return bool(self._older)


class Duplicates:
    """Fed with the messages of a queue, in order."""

    def __init__(self, kept_max: int) -> None:
        """`kept_max`: so many ids of those that come are kept, and less than twice as many."""
        self._kept_max = kept_max
        self._batches: dict[str, list[str]] = {}
        """The newest of each query, the oldest one first."""
        self._known: dict[str, _Known] = {}
        """Of each such batch."""
        self._fresh = 0
        self._stood: frozenset[str] | None = None
        """Queries that have messages before those that come, once that is known."""
        self._has_warned = False

    def unknown(self, piece: Piece) -> dict[str, str]:
        """Queries of which nothing is known yet, with the oldest batch that comes of each: what
        stands before these messages has to be told by `before`."""
        batches = {text[:BATCH_DIGITS] for text in piece.ids if text.startswith(FIXED)}
        new: dict[str, str] = {}
        for batch in sorted(batches):
            query = batch[:QUERY_DIGITS]
            if query not in self._batches and (self._stood is None or query in self._stood):
                new.setdefault(query, batch)
        return new

    def before(self, earlier: "Earlier", *, is_all: bool = False) -> None:
        """`is_all`: it was told of everything that stands there, as far as anybody would look."""
        for query, batches in earlier.batches.items():
            self._batches[query] = sorted(batches)[-BATCHES_KEPT:]
            self._known |= {batch: batches[batch] for batch in self._batches[query]}
        if is_all:
            self._stood = frozenset(earlier.queries)

    def repeated(self, piece: Piece) -> list[int]:
        """Which of the next messages are there already, by their numbers."""
        if not piece.crcs:
            return []
        batch, fresh = piece.ids[0][:BATCH_DIGITS], dict(zip(piece.ids, piece.crcs, strict=True))
        self._make_room(len(fresh))
        known = self._known.get(batch)
        if (
            known is not None
            and len(fresh) == len(piece.ids)
            and known.has_none(fresh)
            and all(text.startswith(batch) for text in piece.ids)
        ):
            known.add_all(fresh)
            return []
        both = enumerate(zip(piece.ids, piece.crcs, strict=True))
        return [number for number, (text, crc) in both if self._is_repeated(text, crc)]

    def _make_room(self, count: int) -> None:
        if self._fresh >= self._kept_max:
            self._fresh = 0
            self._known = {batch: known for batch, known in self._known.items() if known.age()}
        self._fresh += count

    def _is_repeated(self, text: str, crc: int) -> bool:
        if not text.startswith(FIXED):
            return False
        known = self._of_batch(text[:BATCH_DIGITS])
        if known is None:
            return False
        if known.has(text, crc):
            return True
        if known.add(text, crc) and not self._has_warned:
            self._has_warned = True
            log.warning(
                "two messages have the id %s, but not the same body and properties: both are read; "
                "what was written gave other rows, or another order, when it ran again", text,
            )  # fmt: skip
        return False

    def _of_batch(self, batch: str) -> _Known | None:
        """None if the batch is too old to be kept."""
        batches = self._batches.setdefault(batch[:QUERY_DIGITS], [])
        if batch not in batches:
            batches.append(batch)
            batches.sort()
            for old in batches[:-BATCHES_KEPT]:
                self._known.pop(old, None)
            del batches[:-BATCHES_KEPT]
        return self._known.setdefault(batch, _Known()) if batch in batches else None


class Earlier:
    """What stands before a place in the queue, of some queries; fed backwards, piece by piece."""

    def __init__(self, wanted: Mapping[str, str]) -> None:
        """`wanted`: as `Duplicates.unknown` tells it."""
        self._oldest = {query: batch_before(batch) for query, batch in wanted.items()}
        """A row of this one may be a late one, with what is looked for on both sides of it."""
        self._open = set(wanted)
        self.batches = {query: {batch: _Known()} for query, batch in wanted.items()}
        self.queries: set[str] = set()
        """All of which there is a message, wanted or not."""

    @property
    def is_complete(self) -> bool:
        """Whether of each query a message was found that is older than the batch before the one
        wanted: what stands before that message does not matter."""
        return not self._open

    def add(self, piece: Piece) -> None:
        """Messages in their order, which stand behind all that are told later."""
        if not piece.crcs:
            return
        for text, crc in zip(reversed(piece.ids), reversed(piece.crcs), strict=True):
            if text.startswith(FIXED):
                self._add(text, crc)

    def _add(self, text: str, crc: int) -> None:
        query, batch = text[:QUERY_DIGITS], text[:BATCH_DIGITS]
        self.queries.add(query)
        if query not in self._open:
            return
        if batch < self._oldest[query]:
            self._open.discard(query)
            return
        known = self.batches[query].setdefault(batch, _Known())
        if not known.has(text, crc):
            known.add(text, crc)
