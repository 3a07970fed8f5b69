"""One range of one queue as Arrow batches: what a task does.

Every message of the range is in exactly one row, or is told as lost. The event loop runs only while
a batch is awaited, so nothing goes on behind Spark's back, and a reader that is closed early ends
everything that it began.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from cometmq.client.errors import BadAnswer, ClientError
from cometmq.client.link import Link
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.columns import Column
from cometmq.protocol.command import Command
from cometmq.protocol.errors import MalformedRecord
from cometmq.protocol.flags import INNER_BATCH, NEED_UNWRAP
from cometmq.protocol.hot import ColumnBuilder, split_records
from cometmq.protocol.subscription import ALL, split_tags
from cometmq.transport.memory import keep_freed_memory

from ..arrow import BYTES_MAX, ROWS_MAX, WHOLE_BATCH, ArrowRows, Odd
from ..errors import ClusterAway, Unreadable
from .ahead import Ahead
from .duplicates import Duplicates, Earlier, Piece, piece_of
from .loss import Losses
from .nearby import RANGE_MIN, NearbyQueue, nearby_queue
from .offsets import QueueRange, queue_text
from .options import SourceOptions
from .patience import AWAY, patiently
from .pulls import Pulled, Pulls, QueueGone

LOOK_BACK_FIRST = 1024
LOOK_BACK_MAX = 1 << 16
"""Messages at a time, of those before a range."""
PAUSE_MAX_S = 5.0
"""Of Spark between two batches, while the event loop stands still: far less than pulls wait for
their answers."""
_WRAPPED = INNER_BATCH | NEED_UNWRAP
_QUEUE_OFFSET = slice(20, 28)
"""Where a record has it."""
_TOLERATED = "failOnDataLoss=false"
_OFFSET = "queueOffset"
_OF_PIECES = ("msgId", "body", "properties")
"""What tells of duplicates."""


class _NotThere(Exception):
    """The queue ends before a message that was there when the batch was planned. A broker that
    recovers, or a slave, may have it in a moment."""


def read_range(
    options: SourceOptions,
    part: QueueRange,
    columns: Sequence[str],
    now_s: Callable[[], float] = time.monotonic,
) -> Iterator[pa.RecordBatch]:
    keep_freed_memory()
    with asyncio.Runner() as runner:
        reading = RangeReading(options, part, columns)
        runner.run(reading.start())
        try:
            while (batches := runner.run(reading.next_batches())) is not None:
                left_s = now_s()
                yield from batches
                if now_s() - left_s > PAUSE_MAX_S:
                    reading.pull_anew()
        finally:
            runner.run(reading.close())


class RangeReading:
    def __init__(self, options: SourceOptions, part: QueueRange, columns: Sequence[str]) -> None:
        self._options = options
        self._part = part
        self._duplicates = Duplicates(options.lookback) if options.drop_duplicates else None
        self._queue_begin = 0
        self._losses = Losses(fail=options.fail_on_data_loss)
        beside = _OF_PIECES if options.drop_duplicates else ()
        self._rows = ArrowRows(columns, part.queue.broker_name, (*beside, _OFFSET))
        self._builder = ColumnBuilder(self._rows.collected, _tags(options))
        self._is_filtered = bool(options.sql92) or options.tags not in ("", ALL)
        self._link = Link(options.cluster)
        self._pulls = Pulls(
            self._link, part.queue,
            group=options.consumer_group, tags=options.tags, sql92=options.sql92,
        )  # fmt: skip
        self._nearby: NearbyQueue | None = None
        self._ahead: Ahead[Command] = Ahead(part.start, part.end, self._pulls.ask)

    async def start(self) -> None:
        self._link.start()
        if self._options.local_files and not self._is_filtered and self._part.size >= RANGE_MIN:
            # Whatever is wrong, pulls meet it again, and tell.
            with contextlib.suppress(ClientError):
                self._nearby = await self._look_nearby()

    async def _look_nearby(self) -> NearbyQueue | None:
        """Pulls one message, to see whether the broker's files are here."""
        start = self._part.start
        await self._pulls.connect()
        pulled = await self._pulls.answer(self._pulls.ask(start, 1))
        if pulled.code != ResponseCode.SUCCESS:
            return None
        self._queue_begin = pulled.min_offset
        told = await self._pulls.broker_settings()
        return nearby_queue(told, self._part.queue, start, pulled.records)

    async def close(self) -> None:
        self._ahead.forget()
        await self._link.stop()

    def pull_anew(self) -> None:
        """What is under way is forgotten: it would be taken for late, though it may be here."""
        self._ahead.forget()

    async def next_batches(self) -> Iterator[pa.RecordBatch] | None:
        """The next rows; None behind the last one."""
        if not (count := await self._fill()):
            return None
        taken = self._builder.take()
        repeated: list[int] = []
        if self._duplicates is not None:
            repeated = await self._repeated(self._piece(taken, count), self._duplicates)
        return self._rows.batches(taken, count, self._odd(taken, count), repeated)

    def _odd(self, taken: Mapping[str, Column], count: int) -> Odd:
        def place(row: int) -> str:
            return f"{self._name}, offset {self._rows.column(_OFFSET, taken, count)[row]}"

        return Odd(place, not self._options.fail_on_data_loss, _TOLERATED)

    async def _fill(self) -> int:
        """Collect the messages of a batch; how many, 0 behind the last one."""
        builder, ahead = self._builder, self._ahead
        while not ahead.is_done and builder.count < ROWS_MAX and builder.data_bytes < BYTES_MAX:
            if self._nearby is None or not self._take_nearby(self._nearby):
                await self._step()
        return builder.count

    def _piece(self, taken: Mapping[str, Column], count: int) -> Piece:
        ids = self._rows.column("msgId", taken, count).to_pylist()
        return piece_of(ids, taken["body"], taken["properties"])

    async def _repeated(self, piece: Piece, duplicates: Duplicates) -> list[int]:
        unknown = duplicates.unknown(piece)
        if unknown:
            await self._look_back(Earlier(unknown), duplicates)
        return duplicates.repeated(piece)

    async def _look_back(self, earlier: Earlier, duplicates: Duplicates) -> None:
        """Go back from the range's beginning, as far as needed, in pieces that grow."""
        end, size = self._part.start, LOOK_BACK_FIRST
        begin = max(self._queue_begin, end - self._options.lookback)
        plain = dataclasses.replace(self._options, drop_duplicates=False, fail_on_data_loss=False)
        while end > begin and not earlier.is_complete:
            start = max(begin, end - size)
            part = QueueRange(self._part.queue, start, end)
            for piece in reversed(await RangeReading(plain, part, _OF_PIECES).pieces()):
                earlier.add(piece)
            end, size = start, min(size * 2, LOOK_BACK_MAX)
        duplicates.before(earlier, is_all=end <= begin)

    async def pieces(self) -> list[Piece]:
        """Those of the whole range, read at once."""
        await self.start()
        try:
            found: list[Piece] = []
            while count := await self._fill():
                found.append(self._piece(self._builder.take(), count))
            return found
        finally:
            await self.close()

    def _take_nearby(self, nearby: NearbyQueue) -> bool:
        """Add what the files have next; False where pulls must go on, which tell why."""
        builder, ahead = self._builder, self._ahead
        wanted = min(self._part.end - ahead.position, ROWS_MAX - builder.count)
        taken = nearby.take(builder, ahead.position, wanted, BYTES_MAX - builder.data_bytes)
        if taken:
            ahead.pass_over(taken)
        else:
            self._nearby = None
        return taken > 0

    async def _step(self) -> None:
        """Take one answer, however long its broker is away."""
        what = f"reading {self._name} from offset {self._ahead.position}"
        try:
            await patiently(self._take_next, what, (*AWAY, _NotThere))
        except QueueGone as gone:
            self._lose_rest(f"the queue is gone: {gone}")
        except ClusterAway as error:
            if not isinstance(error.__cause__, _NotThere):
                raise
            self._lose_rest(str(error.__cause__))

    def _lose_rest(self, why: str) -> None:
        self._losses.found(self._part._replace(start=self._ahead.position), why)
        self._ahead.give_up()

    @property
    def _name(self) -> str:
        return f"topic {self._part.queue.topic}, queue {queue_text(self._part.queue)}"

    async def _take_next(self) -> None:
        try:
            if await self._pulls.connect():
                self._ahead.forget()
            piece = self._ahead.current()
            pulled = await self._pulls.answer(piece.answer)
            reached = self._take(pulled, piece.start)
        except (*AWAY, _NotThere):
            self._ahead.forget()
            self._pulls.look_again()
            raise
        self._ahead.took(reached, len(pulled.records))

    def _take(self, pulled: Pulled, start: int) -> int:
        """Add what an answer has; up to where that is all there is."""
        self._queue_begin = pulled.min_offset
        if pulled.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
            reached = pulled.next_offset
            if reached <= start and pulled.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
                raise _NotThere("the broker wants to be asked again")
            if reached <= start:
                raise BadAnswer(f"{self._name} goes on at {reached} after {start}, says its broker")
            self._add(pulled.records, start, reached)
            return reached
        if start < pulled.min_offset:
            reached = min(pulled.min_offset, self._part.end)
            lost = QueueRange(self._part.queue, start, reached)
            self._losses.found(lost, f"the queue now begins at {pulled.min_offset}")
            return reached
        # Also when an operator has just moved the group by whose name we pull.
        raise _NotThere(f"the queue ends at {pulled.max_offset}")

    def _add(self, records: bytes, start: int, reached: int) -> None:
        end, damaged = min(reached, self._ahead.limit), 0
        try:
            added, why = self._builder.add(records, start, end), "they cannot be read there"
        except MalformedRecord as error:
            added, damaged = self._add_one_by_one(records, start, end, reached)
            why = str(error)
        missing = end - start - added
        # A filter passes messages over, but what came has passed it.
        lost = min(damaged, missing) if self._is_filtered else missing
        if lost > 0:
            why = self._about_wrapped(records) or why
            self._losses.found(QueueRange(self._part.queue, start, end), f"{lost} of them: {why}")

    def _add_one_by_one(
        self, records: bytes, start: int, end: int, reached: int
    ) -> tuple[int, int]:
        """All but those that are damaged; how many, and how many are. Those that say themselves
        that they are behind the end come again with what is asked for there."""
        added = damaged = at = 0
        while at < len(records):
            # Without a size nothing behind it can be found.
            size = int.from_bytes(records[at : at + 4], "big") or len(records)
            record = records[at : at + size]
            try:
                added += self._builder.add(record, start, end)
            except MalformedRecord:
                damaged += not end <= int.from_bytes(record[_QUEUE_OFFSET], "big") < reached
            at += size
        return added, damaged

    def _about_wrapped(self, records: bytes) -> str:
        """Why there are fewer records than messages, if there are whole batches among them."""
        with contextlib.suppress(MalformedRecord):
            if any(record[8] & _WRAPPED == _WRAPPED for record in split_records(records)):
                if self._options.fail_on_data_loss:
                    raise Unreadable(
                        f"{self._name} has {WHOLE_BATCH}; {_TOLERATED} reads what is left"
                    )
                return f"in {WHOLE_BATCH}"
        return ""


def _tags(options: SourceOptions) -> frozenset[bytes] | None:
    """A broker compares hashes of tags; the tags themselves are compared here."""
    if options.tags in ("", ALL):
        return None
    return frozenset(tag.encode() for tag in split_tags(options.tags))
