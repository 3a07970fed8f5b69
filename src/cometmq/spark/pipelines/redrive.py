"""Dead letters back to their topics, each once: `redrive("127.0.0.1:9876", "billing")`.

Letters are read and chosen by Spark, and sent by the driver in the order of their queues. See
`dead_letters` for how they are sent, and why no letter comes twice.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from ..connection import CONNECTION, cluster_of
from ..dead_letters.letters import COLUMNS, Candidate, candidate_of
from ..dead_letters.redriving import WAIT_S, Redriven, redrive_letters
from ..errors import BadOption
from ..topic.offsets import ByQueue, to_json
from .failures import plainly
from .sessions import when_needed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .sessions import Given

LETTERS_AT_ONCE: Final = 1000
"""Of a queue, as a job of its own: Spark has all of a partition in the driver's memory."""
BODY_BYTES_MAX: Final = 64 * 1024
"""Of a body that comes along. A driver of 1 GiB, which is Spark's default, dies of 64 letters with
bodies of 4 MiB, and with fewer letters at once small ones would take several times as long."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which letters are redriven: those that fit all that is said."""

    tags: Sequence[str] = ()
    keys: Sequence[str] = ()
    since_ms: int | None = None
    """When they became dead letters."""
    until_ms: int | None = None
    where: str = ""
    """SQL over the source's columns, as in `reconsumeTimes > 3 and properties['shop'] = '7'`."""
    limit: int | None = None

    def condition(self) -> str:
        """As SQL."""
        tests = [
            f"tags in ({_texts(self.tags)})" if self.tags else "",
            f"arrays_overlap(split(keys, ' '), array({_texts(self.keys)}))" if self.keys else "",
            f"stored_ms >= {self.since_ms:d}" if self.since_ms is not None else "",
            f"stored_ms < {self.until_ms:d}" if self.until_ms is not None else "",
            f"({self.where})" if self.where else "",
        ]
        return " and ".join(filter(None, tests)) or "true"


def redrive(
    namesrv: str,
    group: str,
    *,
    to: str = "",
    choice: Choice = Choice(),  # noqa: B008 - it cannot be changed
    rate: float | None = None,
    dry_run: bool = False,
    wait_s: float = WAIT_S,
    options: Mapping[str, str] | None = None,
    spark: "Given" = None,
    on_progress: Callable[[Redriven], object] = lambda _: None,
    on_wait: Callable[[], object] = lambda: None,
) -> Redriven:
    """`redrive_letters` with letters that Spark reads. `options` are those of the source that say
    how to reach the cluster. Errors are those of `cometmq.spark.errors`."""
    wrong = [name for name in options or {} if name not in CONNECTION[1:]]
    if wrong:
        raise BadOption(f"{wrong[0]}: a redrive takes {', '.join(CONNECTION[1:])}")
    where = {**(options or {}), "namesrvAddr": namesrv}
    sessions = when_needed(spark, "cometmq-redrive")

    def read(starts: ByQueue) -> Iterator[Candidate]:
        return _candidates(sessions(), where, starts, choice)

    with plainly():
        return redrive_letters(
            cluster_of(where), group, read, to=to, limit=choice.limit, rate=rate, dry_run=dry_run,
            wait_s=wait_s, on_progress=on_progress, on_wait=on_wait,
        )  # fmt: skip


def _candidates(
    spark: "SparkSession", where: Mapping[str, str], starts: ByQueue, choice: Choice
) -> Iterator[Candidate]:
    """In order, as Spark keeps it. Only those that are chosen come with their bodies."""
    from pyspark.sql import functions as f

    told = to_json(starts)
    reader = spark.read.format("rocketmq").options(**dict(where)).option("topic", ",".join(told))
    reader = reader.option("startingOffsets", msgspec.json.encode(told).decode())
    # What retention takes meanwhile is gone; what is left is to be redriven.
    reader = reader.option("failOnDataLoss", "false").option("columns", ",".join(COLUMNS))
    reader = reader.option("maxRecordsPerPartition", str(LETTERS_AT_ONCE))
    frame = reader.load().withColumn("stored_ms", f.unix_millis("storeTimestamp"))
    chosen = f.coalesce(f.expr(choice.condition()), f.lit(False))
    comes_along = f.col("chosen") & (f.col("body_bytes") <= BODY_BYTES_MAX)
    frame = frame.withColumn("chosen", chosen).withColumn("body_bytes", f.octet_length("body"))
    frame = frame.withColumn("body", f.when(comes_along, f.col("body")))
    return map(candidate_of, frame.toLocalIterator())


def _texts(values: Sequence[str]) -> str:
    """As SQL has them; nothing in them means anything there."""
    return ", ".join(f"decode(unhex('{value.encode().hex()}'), 'UTF-8')" for value in values)
