"""Options of the source, read and checked. Names follow Spark's Kafka source where it has the same.

Pure. What is unknown, contradictory or unreadable is refused by its name, before anything is read.
Secrets never show in a text that is made of options.
"""

import dataclasses
import difflib
import enum
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from cometmq.client import Cluster, Credentials
from cometmq.protocol.message_queue import MessageQueue
from cometmq.transport.tls import client_context

from .errors import BadOption
from .offsets import EARLIEST, LATEST, ByQueue, parse_queue
from .schema import COLUMNS, ON_REQUEST

CONNECTION = ("namesrvAddr", "accessKey", "secretKey", "securityToken", "tls", "tlsCaFile")
WHERE = ("topic", "subscribe", "subscribePattern", "assign")
STARTING = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
STREAM_ONLY = (
    "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "commitGroupOffsets", "initialOffsetsDir",
)  # fmt: skip
BATCH_ONLY = ENDING
KNOWN = (
    *CONNECTION, *WHERE, *STARTING, "startingOffsetsByTimestampStrategy", *ENDING, *STREAM_ONLY,
    "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "tags", "sql92", "queues",
    "columns", "includeProperties", "consumerGroup",
)  # fmt: skip
SECRET = ("accessKey", "secretKey", "securityToken")
_REDACTED = "*********(redacted)"


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
    timestamps: Mapping[str, int | Mapping[str, int]] = dataclasses.field(default_factory=dict)
    """By topic, or by topic and queue."""
    late: Named | None = None
    """Where a queue begins that has nothing since its time; None: that is an error."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceOptions:
    cluster: Cluster
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[MessageQueue, ...] = ()
    starting: Position
    ending: Position
    max_offsets: int | None
    max_bytes: int | None
    min_offsets: int | None
    max_trigger_delay_s: float
    min_partitions: int
    max_records: int | None
    fail_on_data_loss: bool
    tags: str
    sql92: str
    queues: tuple[str, ...]
    columns: tuple[str, ...]
    consumer_group: str
    commit_group_offsets: bool
    initial_offsets_dir: str


def read_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """The options of a read, or BadOption with all that is wrong about the first wrong one."""
    options = _canonical(given)
    _refuse_misplaced(options, streaming=streaming)
    topics, pattern, assigned = _where(options)
    if options.get("tags") and options.get("sql92"):
        raise BadOption("tags and sql92 are both set; a broker filters by one of them")
    starting = _position(options, STARTING, Named.LATEST if streaming else Named.EARLIEST)
    ending = _position(options, ENDING, Named.LATEST)
    if ending.named is Named.EARLIEST:
        raise BadOption("endingOffsets: earliest would read nothing; use latest or offsets")
    group = options.get("consumerGroup", "")
    if starting.named is Named.GROUP and not group:
        raise BadOption("startingOffsets=group needs consumerGroup, whose offsets are meant")
    if _boolean(options, "commitGroupOffsets", False) and not group:
        raise BadOption("commitGroupOffsets=true needs consumerGroup")
    return SourceOptions(
        cluster=_cluster(options),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=starting,
        ending=ending,
        max_offsets=_count(options, "maxOffsetsPerTrigger"),
        max_bytes=_count(options, "maxBytesPerTrigger"),
        min_offsets=_count(options, "minOffsetsPerTrigger"),
        max_trigger_delay_s=_duration_s(options, "maxTriggerDelay", 15 * 60.0),
        min_partitions=_count(options, "minPartitions") or 1,
        max_records=_count(options, "maxRecordsPerPartition"),
        fail_on_data_loss=_boolean(options, "failOnDataLoss", True),
        tags=options.get("tags", ""),
        sql92=options.get("sql92", ""),
        queues=_listed(options.get("queues", "")),
        columns=_columns(options),
        consumer_group=group,
        commit_group_offsets=_boolean(options, "commitGroupOffsets", False),
        initial_offsets_dir=options.get("initialOffsetsDir", ""),
    )


def redacted(given: Mapping[str, str]) -> dict[str, str]:
    """Options as they may be shown."""
    secret = {name.lower() for name in SECRET}
    return {name: _REDACTED if name.lower() in secret else value for name, value in given.items()}


# -- names ---------------------------------------------------------------------------------------


def _canonical(given: Mapping[str, str]) -> dict[str, str]:
    """Spark does not mind upper and lower case in names."""
    names = {name.lower(): name for name in KNOWN}
    options = {}
    for name, value in given.items():
        known = names.get(name.lower())
        if known is None:
            near = difflib.get_close_matches(name.lower(), names, 1)
            hint = f"; did you mean {names[near[0]]}?" if near else ""
            raise BadOption(f"unknown option {name}{hint}")
        options[known] = value
    return options


def _refuse_misplaced(options: Mapping[str, str], *, streaming: bool) -> None:
    wrong = [name for name in (BATCH_ONLY if streaming else STREAM_ONLY) if name in options]
    if wrong:
        kind = "batch" if streaming else "streaming"
        raise BadOption(f"{wrong[0]} is for {kind} queries only")


def _where(options: Mapping[str, str]) -> tuple[tuple[str, ...], str, tuple[MessageQueue, ...]]:
    given = [name for name in WHERE if name in options]
    if len(given) != 1:
        said = " and ".join(given) or "none"
        raise BadOption(f"set one of {', '.join(WHERE)}; {said} given")
    name, value = given[0], options[given[0]]
    if name == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            raise BadOption(f"subscribePattern: {error}") from None
        return (), value, ()
    if name == "assign":
        return (), "", _assigned(value)
    topics = _listed(value)
    if not topics:
        raise BadOption(f"{name} is empty")
    return topics, "", ()


def _assigned(value: str) -> tuple[MessageQueue, ...]:
    told = _json("assign", value, dict[str, list[str]])
    queues = [parse_queue(topic, text) for topic, texts in told.items() for text in texts]
    if not queues:
        raise BadOption('assign has no queue: {"orders": ["broker-a:0"]} has one')
    return tuple(queues)


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    more = ("properties",) if _boolean(options, "includeProperties", False) else ()
    chosen = _listed(options.get("columns", ""))
    by_name = {name.lower(): name for name in (*COLUMNS, *ON_REQUEST)}
    unknown = [name for name in chosen if name.lower() not in by_name]
    if unknown:
        raise BadOption(f"columns: no column {unknown[0]}; there are {', '.join(by_name.values())}")
    names = tuple(by_name[name.lower()] for name in chosen) or COLUMNS
    return (*names, *(name for name in more if name not in names))


# -- places --------------------------------------------------------------------------------------


def _position(options: Mapping[str, str], names: tuple[str, str, str], default: Named) -> Position:
    given = [name for name in names if name in options]
    if len(given) > 1:
        raise BadOption(f"{' and '.join(given)} are both set; one of them can hold")
    if not given:
        return Position(default)
    by_offsets, by_time, _ = names
    name, value = given[0], options[given[0]]
    late = _late(options) if names is STARTING else Named.LATEST
    if name == by_offsets:
        return _offsets_position(name, value)
    if name == by_time:
        return Position(timestamp_ms=_whole(name, value), late=late)
    told = _json(name, value, dict[str, int | dict[str, int]])
    return Position(timestamps=told, late=late)


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
        return Position(place)
    told = _json(name, text, dict[str, dict[str, int]])
    offsets = {
        parse_queue(topic, queue): offset
        for topic, queues in told.items()
        for queue, offset in queues.items()
    }
    if any(offset < EARLIEST for offset in offsets.values()):
        raise BadOption(f"{name}: offsets count from 0; {EARLIEST} is earliest, {LATEST} latest")
    if name == "endingOffsets" and EARLIEST in offsets.values():
        raise BadOption(f"{name}: {EARLIEST} (earliest) would read nothing")
    return Position(offsets=offsets)


# -- values --------------------------------------------------------------------------------------


def _cluster(options: Mapping[str, str]) -> Cluster:
    addresses = options.get("namesrvAddr", "")
    if not addresses.strip():
        raise BadOption("namesrvAddr is missing: the NameServer's address, as in 127.0.0.1:9876")
    keys = [options.get(name, "") for name in SECRET]
    credentials = None
    if any(keys):
        if not (keys[0] and keys[1]):
            raise BadOption("accessKey and secretKey are set together")
        credentials = Credentials(*keys)
    try:
        return Cluster(addresses, tls=_tls(options), credentials=credentials)
    except ValueError as error:
        raise BadOption(f"namesrvAddr: {error}") from None


def _tls(options: Mapping[str, str]) -> ssl.SSLContext | None:
    if not _boolean(options, "tls", False):
        if "tlsCaFile" in options:
            raise BadOption("tlsCaFile is set, but tls is not true")
        return None
    authority = options.get("tlsCaFile")
    return client_context(Path(authority) if authority else None)


def _json(name: str, value: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(value, type=kind)
    except msgspec.MsgspecError as error:
        raise BadOption(f"{name} is not the JSON that it should be: {error}") from None


def _listed(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    value = options.get(name)
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise BadOption(f"{name} is true or false, not {value!r}")
    return value.lower() == "true"


def _count(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    count = _whole(name, options[name])
    if count < 1:
        raise BadOption(f"{name}: 1 or more is possible")
    return count


def _whole(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise BadOption(f"{name} is a whole number, not {value!r}") from None


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def _duration_s(options: Mapping[str, str], name: str, default: float) -> float:
    match = re.fullmatch(r"(\d+)\s*([a-z]+)", options.get(name, "").strip().lower())
    if name not in options:
        return default
    if match is None or match[2] not in _UNITS:
        raise BadOption(f"{name} is a time with its unit, as in 30s, 15m or 1h")
    return int(match[1]) * _UNITS[match[2]]
