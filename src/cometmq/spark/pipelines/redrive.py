"""Dead letters back to their topics, each once: `redrive("127.0.0.1:9876", "billing")`.

Letters are read and chosen by Spark, and sent by the driver in the order of their queues. See
`dead_letters` for how they are sent, and why no letter comes twice.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ..connection import CONNECTION, cluster_of
from ..dead_letters.letters import COLUMNS, Candidate, candidate_of
from ..dead_letters.redriving import WAIT_S, Redriven, redrive_letters
from ..errors import BadOption
from ..session import session
from ..topic.offsets import ByQueue, to_json
from .failures import plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    spark: "SparkSession | None" = None,
    on_progress: Callable[[Redriven], object] = lambda _: None,
    on_wait: Callable[[], object] = lambda: None,
) -> Redriven:
    """`redrive_letters` with letters that Spark reads. `options` are those of the source that say
    how to reach the cluster. Errors are those of `cometmq.spark.errors`."""
    wrong = [name for name in options or {} if name not in CONNECTION[1:]]
    if wrong:
        raise BadOption(f"{wrong[0]}: a redrive takes {', '.join(CONNECTION[1:])}")
    where = {**(options or {}), "namesrvAddr": namesrv}

    def read(starts: ByQueue) -> Iterator[Candidate]:
        running = spark if spark is not None else session("cometmq-redrive")
        return _candidates(running, where, starts, choice)

    try:
        return redrive_letters(
            cluster_of(where), group, read, to=to, limit=choice.limit, rate=rate, dry_run=dry_run,
            wait_s=wait_s, on_progress=on_progress, on_wait=on_wait,
        )  # fmt: skip
    except Exception as error:
        raise plain(error) from error


def _candidates(
    spark: "SparkSession", where: Mapping[str, str], starts: ByQueue, choice: Choice
) -> Iterator[Candidate]:
    """Only the chosen letters come with their bodies. Spark keeps their order."""
    from pyspark.sql import functions as f

    told = to_json(starts)
    reader = spark.read.format("rocketmq").options(**dict(where)).option("topic", ",".join(told))
    reader = reader.option("startingOffsets", msgspec.json.encode(told).decode())
    # What retention takes meanwhile is gone; what is left is to be redriven.
    reader = reader.option("failOnDataLoss", "false").option("columns", ",".join(COLUMNS))
    frame = reader.load().withColumn("stored_ms", f.unix_millis("storeTimestamp"))
    chosen = f.coalesce(f.expr(choice.condition()), f.lit(False))
    body = f.when(f.col("chosen"), f.col("body"))
    frame = frame.withColumn("chosen", chosen).withColumn("body", body)
    return map(candidate_of, frame.toLocalIterator())


def _texts(values: Sequence[str]) -> str:
    """As SQL has them; nothing in them means anything there."""
    return ", ".join(f"decode(unhex('{value.encode().hex()}'), 'UTF-8')" for value in values)
