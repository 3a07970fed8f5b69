"""Unique ids of rows. All have 32 hex digits, as RocketMQ's own: a beginning and a number.

An id that is fixed follows from what is written and from where the row stands in it, so whoever
sends the row again gives it the same id:

    0  int8  0, or 255 if the row is delayed: no address of a machine begins so
    1  5 bytes of a hash of the query, or of the job of a batch write
    6  int32 batch; of a job, more of its name
    10 int48 partition (20 bits), row (28 bits)

It means the same row only if a partition that is computed again has the same rows in the same
order: a plan without chance and time, over a source that repeats itself, as ours does.

Others begin as RocketMQ's do, with address, process and time, and are counted in this process.
"""

import hashlib
import time
import uuid
from typing import Final, NamedTuple

from cometmq.client.producer.message_ids import unique_ids

from ..errors import NotSent

FIXED: Final = "00"
"""How fixed ids begin, in hex digits."""
QUERY_DIGITS: Final = 12
BATCH_DIGITS: Final = 20
"""Ids of one query, and those of one of its batches, have so many digits in common."""
_DELAYED: Final = b"\xff"
_ROW_BITS: Final = 28
_PARTITION_BITS: Final = 20
_BATCH_MAX: Final = 2**32 - 1
_BEGINNING_BYTES: Final = 12
_NUMBER_MASK: Final = 2**32 - 1


class Origin(NamedTuple):
    """What a task writes: a partition of a batch of a query, or of a job's only batch."""

    query: str
    batch: int
    partition: int


def origin_in_job(job: uuid.UUID, partition: int) -> Origin:
    """Of a batch write. There are many more jobs than queries, so the number of its batch, which
    means nothing, helps to tell them apart."""
    return Origin(str(job), job.int & _BATCH_MAX, partition)


def batch_before(batch: str) -> str:
    """How ids of the batch before one begin, as those of its own do; of the first, the same."""
    number = int(batch[QUERY_DIGITS:], 16)
    return f"{batch[:QUERY_DIGITS]}{max(0, number - 1):08X}"


class Ids(NamedTuple):
    """The ids of some rows: that of row 0 has `number`, those behind it count on."""

    beginning: bytes
    number: int

    def text(self, row: int) -> str:
        return f"{self.beginning.hex().upper()}{(self.number + row) & _NUMBER_MASK:08X}"

    @property
    def of_delayed(self) -> "Ids":
        """The same for rows that come to their queue when their time has come, in any order."""
        if self.beginning[0]:
            return self
        return self._replace(beginning=_DELAYED + self.beginning[1:])


def fixed_ids(origin: Origin, first_row: int, rows: int) -> Ids:
    """The ids of rows from `first_row` on. NotSent if there are more than can be told apart."""
    query, batch, partition = origin
    if first_row + rows > 1 << _ROW_BITS:
        raise NotSent(
            f"partition {partition} has over {1 << _ROW_BITS} rows, which ids cannot tell apart; "
            "repartition the DataFrame into more partitions"
        )
    if partition >> _PARTITION_BITS or batch > _BATCH_MAX:
        raise NotSent(f"ids cannot tell batch {batch} with partition {partition} from others")
    hashed = hashlib.blake2b(query.encode(), digest_size=5).digest()
    place = (partition << _ROW_BITS | first_row).to_bytes(6, "big")
    whole = b"\0" + hashed + batch.to_bytes(4, "big") + place
    return Ids(whole[:_BEGINNING_BYTES], int.from_bytes(whole[_BEGINNING_BYTES:], "big"))


class _Counter:
    def __init__(self) -> None:
        self._taken = 0

    def take(self, count: int) -> int:
        """The first of so many numbers."""
        first, self._taken = self._taken, self._taken + count
        return first & _NUMBER_MASK


_fresh = _Counter()


def fresh_ids(rows: int) -> Ids:
    """Ids that nobody had before. All tasks of a process take them from one counter."""
    whole = bytes.fromhex(unique_ids().make(time.time_ns() // 1_000_000))
    return Ids(whole[:_BEGINNING_BYTES], _fresh.take(rows))
