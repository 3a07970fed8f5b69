"""Options of the source, read and checked. Names follow Spark's Kafka source where it has the same.

Pure. What is unknown, contradictory or unreadable is refused by its name, before anything is read.
"""

import dataclasses
import enum
import re
from collections.abc import Mapping

from cometmq.client.cluster import Cluster
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.subscription import ALL, split_tags

from ..connection import CONNECTION, cluster_of
from ..errors import BadOption
from ..option_values import boolean, canonical, columns, count, duration_s, json, listed, whole
from .offsets import EARLIEST, LATEST, ByQueue, from_json, parse_queue, queue_text

WHERE = ("topic", "subscribe", "subscribePattern", "assign")
STARTING = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
STREAM_ONLY = (
    "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "commitGroupOffsets",
)  # fmt: skip
BATCH_ONLY = ENDING
KNOWN = (
    *CONNECTION, *WHERE, *STARTING, "startingOffsetsByTimestampStrategy", *ENDING, *STREAM_ONLY,
    "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "tags", "sql92", "queues",
    "columns", "includeProperties", "consumerGroup", "dropDuplicates", "dropDuplicatesLookback",
    "localFiles",
)  # fmt: skip
LOOKBACK = 1_000_000
_QUEUE = re.compile(r"(?:[^:]+:)?\d+")


class Named(enum.Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"


@dataclasses.dataclass(frozen=True)
class Position:
    """Where to begin or end: a named place, offsets of queues, or a time for all or some."""

    named: Named | None = None
    offsets: ByQueue = dataclasses.field(default_factory=dict)
    timestamp_ms: int | None = None
    timestamps: ByQueue | None = None
    topic_timestamps: Mapping[str, int] = dataclasses.field(default_factory=dict)
    late: Named | None = None
    """Where a queue begins that has nothing since its time; None: that is an error."""
    option: str = ""
    """Who said so."""

    @property
    def is_by_time(self) -> bool:
        return self.timestamp_ms is not None or self.timestamps is not None

    def time_of(self, queue: MessageQueue) -> int | None:
        """The time for a queue, if there is one."""
        if self.timestamp_ms is not None:
            return self.timestamp_ms
        by_topic = self.topic_timestamps.get(queue.topic)
        return (self.timestamps or {}).get(queue, by_topic)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceOptions:
    cluster: Cluster
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[MessageQueue, ...] = ()
    starting: Position
    ending: Position
    max_offsets: int | None
    """Counted before filters at the broker, in proportion to what each queue has."""
    max_bytes: int | None
    """Of records as they are stored, about: estimated by the first messages of each queue."""
    min_offsets: int | None
    max_trigger_delay_s: float
    min_partitions: int
    max_records: int | None
    fail_on_data_loss: bool
    tags: str
    sql92: str
    queues: tuple[str, ...]
    """Numbers, which mean all brokers, or broker:number; none: all."""
    columns: tuple[str, ...]
    consumer_group: str
    """By whose name messages are pulled; none: that of RocketMQ's tools, which is always there."""
    commit_group_offsets: bool
    drop_duplicates: bool
    """Whether messages are left out that the sink had to send again."""
    lookback: int
    """How many messages before a range are searched for its duplicates, at most."""
    local_files: bool
    """Whether a task reads its broker's files where those are on its machine."""


def read_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """The options of a read, or BadOption with all that is wrong about the first wrong one."""
    options = canonical(given, KNOWN)
    _refuse_misplaced(options, streaming=streaming)
    topics, pattern, assigned = _where(options)
    _check_filters(options)
    starting = _position(options, STARTING, Named.LATEST if streaming else Named.EARLIEST)
    ending = _position(options, ENDING, Named.LATEST)
    if ending.named is Named.EARLIEST:
        raise BadOption("endingOffsets: earliest would read nothing; use latest or offsets")
    _refuse_backwards(starting, ending)
    if not streaming and (starting.named is Named.LATEST or LATEST in starting.offsets.values()):
        raise BadOption("startingOffsets: a batch that begins at the latest reads nothing")
    group = options.get("consumerGroup", "")
    if starting.named is Named.GROUP and not group:
        raise BadOption("startingOffsets=group needs consumerGroup, whose offsets are meant")
    if boolean(options, "commitGroupOffsets", False) and not group:
        raise BadOption("commitGroupOffsets=true needs consumerGroup")
    _check_pace(options)
    return SourceOptions(
        cluster=cluster_of(options),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=starting,
        ending=ending,
        max_offsets=count(options, "maxOffsetsPerTrigger"),
        max_bytes=count(options, "maxBytesPerTrigger"),
        min_offsets=count(options, "minOffsetsPerTrigger"),
        max_trigger_delay_s=duration_s(options, "maxTriggerDelay", 15 * 60.0),
        min_partitions=count(options, "minPartitions") or 1,
        max_records=count(options, "maxRecordsPerPartition"),
        fail_on_data_loss=boolean(options, "failOnDataLoss", True),
        tags=_tags(options),
        sql92=options.get("sql92", ""),
        queues=listed(options.get("queues", "")),
        columns=columns(options),
        consumer_group=group,
        commit_group_offsets=boolean(options, "commitGroupOffsets", False),
        drop_duplicates=_drops(options),
        lookback=count(options, "dropDuplicatesLookback") or LOOKBACK,
        local_files=boolean(options, "localFiles", False),
    )


# -- names ---------------------------------------------------------------------------------------


def _refuse_misplaced(options: Mapping[str, str], *, streaming: bool) -> None:
    wrong = [name for name in (BATCH_ONLY if streaming else STREAM_ONLY) if name in options]
    if wrong:
        kind = "batch" if streaming else "streaming"
        raise BadOption(f"{wrong[0]} is for {kind} queries only")


def _check_filters(options: Mapping[str, str]) -> None:
    if options.get("tags") and options.get("sql92"):
        raise BadOption("tags and sql92 are both set; a broker filters by one of them")
    if "queues" in options and "assign" in options:
        raise BadOption("queues and assign are both set; assign names its queues already")
    for text in listed(options.get("queues", "")):
        if not _QUEUE.fullmatch(text):
            raise BadOption(f"queues: {text!r} is neither a number nor broker:number")


def _tags(options: Mapping[str, str]) -> str:
    """For all tags what brokers take for all: they compare it as it is written."""
    given = options.get("tags", "")
    if given in ("", ALL):
        return given
    try:
        tags = split_tags(given)
    except ValueError as error:
        raise BadOption(f"tags: {error}") from None
    if ALL not in tags:
        return given
    if len(tags) > 1:
        raise BadOption(f"tags: {ALL!r} stands for all tags, but there are others beside it")
    return ALL


def _drops(options: Mapping[str, str]) -> bool:
    drops = boolean(options, "dropDuplicates", False)
    if "dropDuplicatesLookback" in options and not drops:
        raise BadOption("dropDuplicatesLookback is set, but dropDuplicates is not true")
    return drops


def _check_pace(options: Mapping[str, str]) -> None:
    if "maxTriggerDelay" in options and "minOffsetsPerTrigger" not in options:
        raise BadOption("maxTriggerDelay says how long to wait for minOffsetsPerTrigger; set both")
    least, most = count(options, "minOffsetsPerTrigger"), count(options, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise BadOption("minOffsetsPerTrigger is more than maxOffsetsPerTrigger")


def _where(options: Mapping[str, str]) -> tuple[tuple[str, ...], str, tuple[MessageQueue, ...]]:
    given = [name for name in WHERE if name in options]
    if len(given) != 1:
        said = " and ".join(given) or "none"
        raise BadOption(f"set one of {', '.join(WHERE)}; {said} given")
    name, value = given[0], options[given[0]]
    if not value.strip():
        raise BadOption(f"{name} is empty")
    if name == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            raise BadOption(f"subscribePattern: {error}") from None
        return (), value, ()
    if name == "assign":
        return (), "", _assigned(value)
    topics = listed(value)
    if not topics:
        raise BadOption(f"{name} is empty")
    return topics, "", ()


def _assigned(value: str) -> tuple[MessageQueue, ...]:
    told = json("assign", value, dict[str, list[str]])
    queues = [parse_queue(topic, text) for topic, texts in told.items() for text in texts]
    if not queues:
        raise BadOption('assign has no queue: {"orders": ["broker-a:0"]} has one')
    return tuple(queues)


# -- places --------------------------------------------------------------------------------------


def _position(options: Mapping[str, str], names: tuple[str, str, str], default: Named) -> Position:
    given = [name for name in names if name in options]
    if len(given) > 1:
        raise BadOption(f"{' and '.join(given)} are both set; one of them can hold")
    if (
        names is STARTING
        and "startingOffsetsByTimestampStrategy" in options
        and (not given or given[0] == "startingOffsets")
    ):
        raise BadOption("startingOffsetsByTimestampStrategy is for timestamps; none is set")
    if not given:
        return Position(default, option=names[0])
    name, value = given[0], options[given[0]]
    late = _late(options) if names is STARTING else Named.LATEST
    if name == names[0]:
        return _offsets_position(name, value)
    if name == names[1]:
        return Position(timestamp_ms=_moment(name, whole(name, value)), late=late, option=name)
    return _timestamps_position(name, value, late)


def _refuse_backwards(starting: Position, ending: Position) -> None:
    """A user who wants what lies between a place and an earlier one has mixed them up."""
    for queue, start in starting.offsets.items():
        end = ending.offsets.get(queue, LATEST)
        if start > end != LATEST:
            raise BadOption(
                f"startingOffsets: {start} is behind endingOffsets, {end}, in topic {queue.topic}, "
                f"queue {queue_text(queue)}"
            )
    topics = {*starting.topic_timestamps, *ending.topic_timestamps, ""}
    queues = {*(starting.timestamps or {}), *(ending.timestamps or {})}
    for queue in (*queues, *(MessageQueue(topic, "", -1) for topic in topics)):
        since, until = starting.time_of(queue), ending.time_of(queue)
        if since is not None and until is not None and since > until:
            raise BadOption(f"{starting.option}: {since} is later than {ending.option}, {until}")


def _timestamps_position(name: str, value: str, late: Named | None) -> Position:
    """Times by topic, or by topic and queue."""
    by_topic: dict[str, int] = {}
    by_queue: ByQueue = {}
    for topic, time in json(name, value, dict[str, int | dict[str, int]]).items():
        if isinstance(time, int):
            by_topic[topic] = _moment(name, time)
        else:
            by_queue |= {parse_queue(topic, text): _moment(name, at) for text, at in time.items()}
    return Position(timestamps=by_queue, topic_timestamps=by_topic, late=late, option=name)


def _moment(name: str, milliseconds: int) -> int:
    if milliseconds < 0:
        raise BadOption(f"{name}: {milliseconds} ms is no moment since 1970")
    return milliseconds


def _late(options: Mapping[str, str]) -> Named | None:
    strategy = options.get("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise BadOption("startingOffsetsByTimestampStrategy is error or latest")
    return Named.LATEST if strategy == "latest" else None


def _offsets_position(name: str, value: str) -> Position:
    text = value.strip()
    if text.lower() in {place.value for place in Named}:
        place = Named(text.lower())
        if place is Named.GROUP and name != "startingOffsets":
            raise BadOption(f"{name}: group tells where to begin, not where to end")
        return Position(place, option=name)
    if not text.startswith("{"):
        raise BadOption(f"{name}: {value!r} is no place; earliest, latest or JSON is expected")
    told = json(name, text, dict[str, dict[str, int]])
    offsets = from_json(told)
    if any(offset < EARLIEST for offset in offsets.values()):
        raise BadOption(f"{name}: offsets count from 0; {EARLIEST} is earliest, {LATEST} latest")
    if name == "endingOffsets" and EARLIEST in offsets.values():
        raise BadOption(f"{name}: {EARLIEST} (earliest) would read nothing")
    return Position(offsets=offsets, option=name)
