"""A lake as an archive fills it: batch by batch, each exactly once.

The order in which a batch becomes part of it:

1. tasks leave files in `_staging`; the driver learns of those of attempts that succeeded
2. the batch's record is written: its files, and how far it goes in every queue
3. the files are moved to `topic=…/date=…/`
4. the table's log says that they are there (Delta only)

A driver that is killed comes back with the same batch. Where the batch was decided already (plain
Parquet: by step 2; Delta: by step 4), the rest is done, and the files that came again are not
taken. Otherwise what the first attempt moved is taken away, and the batch begins at step 2.

Spark numbers a query's batches without gaps, so a batch that does not follow the last one tells
that lake and checkpoint do not belong together.
"""

import contextlib
from collections.abc import Collection, Sequence
from typing import Final

from ...errors import BadOption
from ...topic.offsets import Offsets
from .errors import LakeError
from .lock import turn_in
from .place import Place
from .records import BatchRecord, LakeFacts, LakeFile, Records
from .staging import sweep
from .tables import Table, check_format, table_of

NEEDED: Final = ("brokerName", "queueId", "queueOffset", "storeTimestamp")
"""Columns without which nobody could tell that every message is there, once, and on which day."""


class Lake:
    def __init__(self, url: str, format: str, columns: Sequence[str]) -> None:  # noqa: A002
        check_request(format, columns)
        self.place = Place(url)
        self._records = Records(self.place)
        with turn_in(self.place):  # Else two archives could both be the first, with two formats.
            facts, known = LakeFacts(format, tuple(columns)), self._records.facts()
            self._check_facts(facts, known)
            self._table: Table = table_of(format, self.place, columns)
            if known is None:  # Not before there is a table: its package may be missing.
                self._records.write_facts(facts)

    def has(self, query: str, batch: int) -> bool:
        """Whether the query's last batch is this one, and decided."""
        last = self._last(query)
        return last is not None and last.batch == batch and self._is_decided(last)

    def reached(self, checkpoint: str) -> Offsets:
        """How far archives with this checkpoint are, each of topics of its own."""
        ends: Offsets = {}
        for records in self._records.with_checkpoint(checkpoint):
            ends |= next((record.ends for record in records if self._is_decided(record)), {})
        return ends

    def tidy(self, query: str, batch: int) -> None:
        """Throw away what killed attempts at a batch left that is not decided: were it the batch
        for which there is no room, they would fill the disk."""
        sweep(self.place, query, batch)

    def commit(self, record: BatchRecord, new_topics: Collection[str] = ()) -> BatchRecord:
        """Have a batch in the lake once, however often it comes. The batch as the lake has it.
        `new_topics` are those that may not be the query's: BadOption if another one has them."""
        if not new_topics:
            return self._commit(record)
        with turn_in(self.place):  # Else two archives could both be the first with a topic.
            self._refuse_foreign(new_topics, record)
            return self._commit(record)

    # -- parts -----------------------------------------------------------------------------------

    def _commit(self, record: BatchRecord) -> BatchRecord:
        last = self._last(record.query)
        if last is None or last.batch != record.batch:
            self._require_next(last, record)
            self._enter(record)
        elif self._is_decided(last):
            _require_same(last, record)
            self._complete(last)
            record = last
        else:
            self._take_back(last)
            self._enter(record)
        sweep(self.place, record.query, record.batch)
        return record

    def _refuse_foreign(self, topics: Collection[str], mine: BatchRecord) -> None:
        """A topic that two queries archive would be in the lake twice."""
        others = (query for query in self._records.queries() if query != mine.query)
        for record in (last for query in others if (last := self._last(query))):
            if shared := sorted(set(record.ends) & set(topics)):
                raise BadOption(
                    f"topic {shared[0]} is archived in {self.place.url} with "
                    + (
                        f"what was in the checkpoint {mine.checkpoint} before it was emptied: put "
                        "that back, or use another lake"
                        if record.checkpoint == mine.checkpoint
                        else f"the checkpoint {record.checkpoint}: use that one, or another lake"
                    )
                )

    def _last(self, query: str) -> BatchRecord | None:
        return next(iter(self._records.of(query)), None)

    def _is_decided(self, record: BatchRecord) -> bool:
        # A batch without files is not entered into tables.
        return self._table.by_record or not record.files or self._table.has(record)

    def _enter(self, record: BatchRecord) -> None:
        if self._table.by_record:  # The files that it names must not vanish in a power cut.
            self.place.sync_directories(file.staged for file in record.files)
        self._records.write(record)
        self._move(record)
        if record.files:
            self._table.add(record)

    def _complete(self, decided: BatchRecord) -> None:
        """A table has a batch when its files were moved; they may have been replaced since."""
        if self._table.by_record:
            self._move(decided)

    def _move(self, record: BatchRecord) -> None:
        for file in record.files:
            with contextlib.suppress(FileNotFoundError):
                self.place.move(file.staged, file.path)
                continue
            self._require_moved(file)
        self.place.sync_directories(file.path for file in record.files)

    def _require_moved(self, file: LakeFile) -> None:
        if not self.place.has(file.path):
            raise LakeError(
                f"{self.place.shown(file.path)} is gone, and {self.place.shown(file.staged)}, too: "
                "somebody removed files of a batch that was being archived"
            )

    def _take_back(self, record: BatchRecord) -> None:
        for file in record.files:
            self.place.remove(file.path)

    def _require_next(self, last: BatchRecord | None, record: BatchRecord) -> None:
        expected = 0 if last is None else last.batch + 1
        if record.batch < expected:
            raise LakeError(
                f"{self.place.url} has batch {expected - 1} of this query already, and its "
                f"checkpoint goes on at {record.batch}: the checkpoint is older than the lake"
            )
        if record.batch > expected:
            raise LakeError(
                f"batches {expected} to {record.batch - 1} of the checkpoint {record.checkpoint} "
                f"are not in {self.place.url}: put the lake back as it was, or archive into an "
                "empty one with a new checkpoint"
            )

    def _check_facts(self, facts: LakeFacts, known: LakeFacts | None) -> None:
        if known is not None and known.format != facts.format:
            raise BadOption(f"{self.place.url} has the format {known.format}, not {facts.format}")
        if known is not None and known.columns != facts.columns:
            raise BadOption(f"{self.place.url} has the columns {', '.join(known.columns)}")


def check_request(format: str, columns: Sequence[str]) -> None:  # noqa: A002 - as Spark calls it
    """BadOption for what no lake can be."""
    check_format(format)
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        raise BadOption(f"columns: a lake needs {', '.join(NEEDED)}; {missing[0]} is not there")


def _require_same(last: BatchRecord, record: BatchRecord) -> None:
    """A checkpoint that lost its last entry plans the same batch anew, with another end."""
    if last.ends != record.ends:
        raise LakeError(
            f"batch {record.batch} is in the lake, but ends elsewhere than the checkpoint "
            f"{record.checkpoint} says: the checkpoint has lost entries"
        )
