"""Where a replay's messages come from: a lake, a store's files, or a topic.

Each tells which messages it has, by queue, and gives the rows of one step.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from cometmq.protocol.message_queue import MessageQueue

from ..errors import BadOption
from ..topic.offsets import to_json
from .lake.place import Place as LakePlace
from .lake.reading import read_lake
from .lake.records import Records
from .replay_plan import Plan, SourceQueue
from .report_sources import INTERNAL_PREFIXES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PHYSICAL: Final = "physicalOffset"
OFFSET: Final = "queueOffset"
SOURCE: Final = "source"
NEEDED: Final = ("topic", "queueId", "queueOffset", "storeTimestamp", "body")
_EPOCH: Final = dt.date(1970, 1, 1)
_DAY_MS: Final = 86_400_000
_FIRST_DAY: Final = (dt.date.min - _EPOCH).days
_LAST_DAY: Final = (dt.date.max - _EPOCH).days
WANTED: Final = (
    "topic", "brokerName", "queueId", "queueOffset", "msgId", "bornTimestamp", "storeTimestamp",
    "keys", "tags", "body", "reconsumeTimes", "properties",
)  # fmt: skip


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages are replayed: those that fit all that is said."""

    topics: tuple[str, ...] = ()
    """Of the source. None: all of a lake or a store but the system's own."""
    since_ms: int | None = None
    """When they were stored."""
    until_ms: int | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    """Of every queue; the end is not replayed."""
    where: str = ""
    """SQL over the columns, as in `tags = 'paid' and queueId < 2`."""
    times_typed: tuple[str, ...] = ()
    """What a user typed for the times, as `2h`: who types it again means those of the first run."""

    def asked(self) -> "Choice":
        """The part that is the same whenever a user asks for the same."""
        if not self.times_typed:
            return self
        return msgspec.structs.replace(self, since_ms=None, until_ms=None)

    def of_times(self, since_ms: int | None, until_ms: int | None) -> "Choice":
        return msgspec.structs.replace(self, since_ms=since_ms, until_ms=until_ms)

    def condition(self) -> str:
        """All but the topics, as SQL."""
        tests = [
            f"unix_millis(storeTimestamp) >= {self.since_ms:d}"
            if self.since_ms is not None
            else "",
            f"unix_millis(storeTimestamp) < {self.until_ms:d}" if self.until_ms is not None else "",
            f"queueOffset >= {self.first_offset:d}" if self.first_offset is not None else "",
            f"queueOffset < {self.end_offset:d}" if self.end_offset is not None else "",
            f"({self.where})" if self.where else "",
        ]
        return " and ".join(filter(None, tests)) or "true"

    def dates(self) -> str:
        """The days of the times, as SQL over a lake's `date`: the day of storeTimestamp in UTC."""
        tests = [
            f"date >= {_date(self.since_ms)}" if self.since_ms is not None else "",
            f"date <= {_date(self.until_ms)}" if self.until_ms is not None else "",
        ]
        return " and ".join(filter(None, tests)) or "true"

    def times(self) -> dict[str, str]:
        """As options of both formats."""
        named = {"startingTimestamp": self.since_ms, "endingTimestamp": self.until_ms}
        return {name: str(moment) for name, moment in named.items() if moment is not None}


class Source(Protocol):
    shown: str
    order: str
    """The column that tells which message of a queue comes before which."""

    def all(self) -> "DataFrame":
        """Everything that is chosen."""
        ...

    def has(self, topic: str) -> bool:
        """Whether there is a message of it, chosen or not."""
        ...

    def step(self, plan: Plan, step: int) -> "DataFrame":
        """Of that, the rows of a step, each with the number of its queue as `source`."""
        ...


class LakeSource:
    """A lake that the archive has made, or any directory of Parquet files with such columns."""

    order = OFFSET

    def __init__(self, spark: "SparkSession", path: str, choice: Choice) -> None:
        self.shown = path
        is_ours = Records(LakePlace(path)).facts() is not None
        self._whole = frame = read_lake(spark, path) if is_ours else spark.read.parquet(path)
        missing = [name for name in NEEDED if name not in frame.columns]
        if missing:
            raise BadOption(f"{path} has no column {missing[0]}: it is no lake of messages")
        named = frame.topic.isin(*choice.topics)
        frame = frame.where(named) if choice.topics else _of_users(frame)
        if is_ours:  # Days lie in directories: others need not be opened.
            frame = frame.where(choice.dates())
        self._chosen = frame.where(choice.condition())

    def all(self) -> "DataFrame":
        return self._chosen

    def has(self, topic: str) -> bool:
        return not self._whole.where(self._whole.topic == topic).select("topic").isEmpty()

    def step(self, plan: Plan, step: int) -> "DataFrame":
        pieces = [queue.piece(step, plan.steps) for queue in plan.queues]
        # What a Parquet file tells of itself is the offsets in it: most need not be opened.
        first, end = min(piece[0] for piece in pieces), max(piece[1] for piece in pieces)
        near = self._chosen.where(f"queueOffset >= {first} and queueOffset < {end}")
        return _numbered(near, plan, pieces)


class TopicSource:
    order = OFFSET

    def __init__(self, spark: "SparkSession", options: Mapping[str, str], choice: Choice) -> None:
        """`options` of the source that say where the cluster is; the choice names its topics."""
        self.shown = f"{options['namesrvAddr']} {', '.join(choice.topics)}"
        self._spark = spark
        self._options = {**options, "columns": ",".join(WANTED)}
        self._choice = choice

    def all(self) -> "DataFrame":
        more = {**self._choice.times(), "subscribe": ",".join(self._choice.topics)}
        if self._choice.since_ms is not None:
            more["startingOffsetsByTimestampStrategy"] = "latest"
        return self._load(more)

    def has(self, topic: str) -> bool:  # noqa: ARG002 - reading one that is not there is an error
        return True

    def step(self, plan: Plan, step: int) -> "DataFrame":
        pieces = [queue.piece(step, plan.steps) for queue in plan.queues]
        queues = [MessageQueue(queue.topic, queue.broker, queue.queue) for queue in plan.queues]
        both = list(zip(queues, pieces, strict=True))
        starts = to_json({queue: start for queue, (start, end) in both if start < end})
        ends = to_json({queue: end for queue, (start, end) in both if start < end})
        if not starts:  # Of fewer messages than steps.
            return _numbered(self.all().where("false"), plan, pieces)
        more = {
            "assign": _json({topic: list(places) for topic, places in starts.items()}),
            "startingOffsets": _json(starts),
            "endingOffsets": _json(ends),
        }
        return _numbered(self._load(more), plan, pieces)

    def _load(self, more: Mapping[str, str]) -> "DataFrame":
        frame = self._spark.read.format("rocketmq").options(**{**self._options, **more}).load()
        return frame.where(self._choice.condition())


class StoreSource:
    """A broker's files. The log is cut into steps where it lies, so each part is read once."""

    order = PHYSICAL
    """A topic that was deleted and made anew is there with the same offsets twice."""

    def __init__(
        self, spark: "SparkSession", path: str, choice: Choice, options: Mapping[str, str]
    ) -> None:
        """`options` of the log reader that say what it makes of damage and loss."""
        self.shown = path
        self._spark = spark
        self._path = path
        self._choice = choice
        self._options = {**options, "columns": ",".join((*WANTED, PHYSICAL))}

    def all(self) -> "DataFrame":
        return self._load({})

    def has(self, topic: str) -> bool:
        whole = {**self._options, "columns": "topic", "topic": topic}
        reader = self._spark.read.format("rocketmq-log").options(**whole)
        return not reader.load(self._path).isEmpty()

    def step(self, plan: Plan, step: int) -> "DataFrame":
        start, end = plan.physical_piece(step)
        frame = self._load({"startingOffset": str(start), "endingOffset": str(end)})
        return _numbered(frame, plan, [(queue.start, queue.end) for queue in plan.queues])

    def _load(self, more: Mapping[str, str]) -> "DataFrame":
        options = {**self._options, **self._choice.times(), **more}
        if self._choice.topics:
            options["topics"] = ",".join(self._choice.topics)
        frame = self._spark.read.format("rocketmq-log").options(**options).load(self._path)
        frame = frame if self._choice.topics else _of_users(frame)
        return frame.where(self._choice.condition())


class Survey(NamedTuple):
    """What a source has."""

    queues: list[SourceQueue]
    first_physical: int
    end_physical: int
    without_body: int
    """Messages that were kept although their bodies could not be read: none can be sent."""


def survey(frame: "DataFrame") -> Survey:
    from pyspark.sql import functions as f

    physical = f.col(PHYSICAL) if PHYSICAL in frame.columns else f.lit(0)
    counted = frame.groupBy("topic", _broker(frame).alias("broker"), "queueId").agg(
        f.min("queueOffset").alias("first"),
        f.max("queueOffset").alias("last"),
        f.count("body").alias("rows"),
        f.coalesce(f.sum(f.octet_length("body")), f.lit(0)).alias("bytes"),
        f.count_if(f.col("body").isNull()).alias("without_body"),
        f.min(physical).alias("first_physical"),
        f.max(physical).alias("last_physical"),
    )
    rows = counted.orderBy("topic", "broker", "queueId").collect()
    queues = [
        SourceQueue(
            row.topic, row.broker, row.queueId, row.first, row.last + 1, row.rows, row.bytes
        )
        for row in rows
        if row.rows
    ]
    return Survey(
        queues,
        min((row.first_physical for row in rows), default=0),
        max((row.last_physical + 1 for row in rows), default=0),
        sum(row.without_body for row in rows),
    )


def _of_users(frame: "DataFrame") -> "DataFrame":
    """Without the system's topics."""
    for prefix in INTERNAL_PREFIXES:
        frame = frame.where(~frame.topic.startswith(prefix))
    return frame


def _date(moment_ms: int) -> str:
    """As SQL, within what SQL has."""
    day = min(max(moment_ms // _DAY_MS, _FIRST_DAY), _LAST_DAY)
    return f"date'{_EPOCH + dt.timedelta(days=day)}'"


def _broker(frame: "DataFrame") -> "Column":
    """As a plan has it."""
    from pyspark.sql import functions as f

    has_it = "brokerName" in frame.columns
    return f.coalesce(f.col("brokerName"), f.lit("")) if has_it else f.lit("")


def _numbered(frame: "DataFrame", plan: Plan, pieces: Sequence[tuple[int, int]]) -> "DataFrame":
    """The rows of the plan's queues that lie in their pieces and can be sent. What came later is
    not among them."""
    from pyspark.sql import functions as f

    names = [f"{queue.topic}/{queue.broker}/{queue.queue}" for queue in plan.queues]
    numbers = f.create_map(*(f.lit(part) for pair in zip(names, count()) for part in pair))
    name = f.concat_ws("/", f.col("topic"), _broker(frame), f.col("queueId").cast("string"))
    frame = frame.withColumn(SOURCE, numbers[name])
    starts, ends = (f.array(*(f.lit(piece[side]) for piece in pieces)) for side in (0, 1))
    offset, number = f.col("queueOffset"), f.col(SOURCE)
    return frame.where(
        number.isNotNull()
        & f.col("body").isNotNull()
        & (offset >= f.get(starts, number))
        & (offset < f.get(ends, number))
    )


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
