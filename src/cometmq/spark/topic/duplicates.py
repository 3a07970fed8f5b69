"""Which messages of a queue are there for a second time: those that Spark's sink had to send again.

Pure. Only ids that the sink gives to the same row each time are looked at (`sink/ids.py`). Of every
query the ids of its newest batch are kept: a batch begins only when the one before has its end, so
whatever is sent twice stands between the messages of its own batch. A message is left out only if
the very same id stands before it in its queue.
"""

from collections.abc import Mapping, Sequence

from ..sink.ids import BATCH_DIGITS, FIXED, QUERY_DIGITS


class Duplicates:
    """Fed with the ids of a queue, in order."""

    def __init__(self) -> None:
        self._newest: dict[str, str] = {}
        """The newest batch of each query."""
        self._ids: dict[str, set[str]] = {}
        """Of each such batch."""

    def unknown(self, ids: Sequence[str]) -> dict[str, str]:
        """Queries of which nothing is known yet, with the oldest batch that comes of each: what
        stands before these ids has to be told by `before`."""
        batches = {text[:BATCH_DIGITS] for text in ids if text.startswith(FIXED)}
        new: dict[str, str] = {}
        for batch in sorted(batches):
            if batch[:QUERY_DIGITS] not in self._newest:
                new.setdefault(batch[:QUERY_DIGITS], batch)
        return new

    def before(self, earlier: "Earlier") -> None:
        for query, batch in earlier.batches.items():
            self._newest[query] = batch
            self._ids[batch] = earlier.ids[batch]

    def repeated(self, ids: Sequence[str]) -> list[int]:
        """Which of the next ids are there already, by their numbers."""
        if not any(text.startswith(FIXED) for text in ids):
            return []
        fresh, batch = set(ids), ids[0][:BATCH_DIGITS]
        seen = self._ids.get(batch)
        if (
            seen is not None
            and len(fresh) == len(ids)
            and seen.isdisjoint(fresh)
            and all(text.startswith(batch) for text in ids)
        ):
            seen |= fresh
            return []
        return [number for number, text in enumerate(ids) if self._is_repeated(text)]

    def _is_repeated(self, text: str) -> bool:
        if not text.startswith(FIXED):
            return False
        query, batch = text[:QUERY_DIGITS], text[:BATCH_DIGITS]
        newest = self._newest.get(query, "")
        if batch > newest:
            self._ids.pop(newest, None)
            self._newest[query], self._ids[batch] = batch, {text}
            return False
        if batch < newest:
            return False
        seen = self._ids[batch]
        if text in seen:
            return True
        seen.add(text)
        return False


class Earlier:
    """What stands before a place in the queue, of some queries; fed backwards, piece by piece."""

    def __init__(self, wanted: Mapping[str, str]) -> None:
        """`wanted`: as `Duplicates.unknown` tells it."""
        self._open = set(wanted)
        self.batches = dict(wanted)
        self.ids: dict[str, set[str]] = {batch: set() for batch in wanted.values()}

    @property
    def is_complete(self) -> bool:
        """Whether of each query a message of an earlier batch was found: what stands before that
        one does not matter."""
        return not self._open

    def add(self, ids: Sequence[str]) -> None:
        """A piece of the queue: its ids in order, behind all that are told later."""
        for text in reversed(ids):
            query = text[:QUERY_DIGITS]
            if query in self._open:
                batch, wanted = text[:BATCH_DIGITS], self.batches[query]
                if batch == wanted:
                    self.ids[batch].add(text)
                elif batch > wanted:  # What comes is late, and no longer looked at.
                    self.ids.pop(wanted)
                    self.batches[query], self.ids[batch] = batch, {text}
                else:
                    self._open.discard(query)
