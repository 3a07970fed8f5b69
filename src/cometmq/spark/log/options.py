"""Options of `format("rocketmq-log")`, read and checked. Pure."""

import dataclasses
from collections.abc import Mapping
from typing import Final

from cometmq.protocol.columns import Choice
from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.names import HALF_DONE_TOPIC, HALF_TOPIC, check_topic

from ..errors import BadOption
from ..option_values import boolean, canonical, columns, count, listed, whole

KNOWN: Final = (
    "path", "topic", "topics", "queues", "startingTimestamp", "endingTimestamp", "startingOffset",
    "endingOffset", "columns", "includeProperties", "brokerName", "includeUncommitted",
    "tolerateDamage", "failOnDataLoss", "maxBytesPerPartition",
)  # fmt: skip
PARTITION_BYTES: Final = 128 << 20
_NOT_COMMITTED: Final = frozenset((HALF_TOPIC.encode(), HALF_DONE_TOPIC.encode()))
_ALWAYS: Final = Choice()


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogOptions:
    path: str
    choice: Choice
    starting_offset: int | None
    ending_offset: int | None
    """Physical ones: of the records that begin between them."""
    columns: tuple[str, ...]
    broker_name: str | None
    tolerate_damage: bool
    fail_on_data_loss: bool
    partition_bytes: int


def read_log_options(given: Mapping[str, str]) -> LogOptions:
    options = canonical(given, KNOWN)
    if not options.get("path"):
        raise BadOption("path is missing: a broker's store directory, which has `commitlog` in it")
    return LogOptions(
        path=options["path"],
        choice=_choice(options),
        starting_offset=_offset(options, "startingOffset"),
        ending_offset=_offset(options, "endingOffset"),
        columns=columns(options),
        broker_name=options.get("brokerName"),
        tolerate_damage=boolean(options, "tolerateDamage", False),
        fail_on_data_loss=boolean(options, "failOnDataLoss", True),
        partition_bytes=count(options, "maxBytesPerPartition") or PARTITION_BYTES,
    )


def _choice(options: Mapping[str, str]) -> Choice:
    uncommitted = boolean(options, "includeUncommitted", False)
    topics = _topics(options)
    return Choice(
        topics=topics,
        # Who asks for one of these topics by its name means it.
        without_topics=frozenset() if uncommitted or topics is not None else _NOT_COMMITTED,
        queue_ids=_queue_ids(options),
        stored_from=_time(options, "startingTimestamp", _ALWAYS.stored_from),
        stored_before=_time(options, "endingTimestamp", _ALWAYS.stored_before),
        uncommitted=uncommitted,
    )


def _topics(options: Mapping[str, str]) -> frozenset[bytes] | None:
    given = [name for name in ("topic", "topics") if name in options]
    if len(given) > 1:
        raise BadOption("topic and topics are both set; one of them can hold")
    if not given:
        return None
    names = listed(options[given[0]])
    if not names:
        raise BadOption(f"{given[0]} is empty")
    try:
        return frozenset(check_topic(name).encode() for name in names)
    except IllegalMessage as error:
        raise BadOption(f"{given[0]}: {error}") from None


def _queue_ids(options: Mapping[str, str]) -> frozenset[int] | None:
    if "queues" not in options:
        return None
    numbers = frozenset(whole("queues", number) for number in listed(options["queues"]))
    if not numbers:
        raise BadOption("queues is empty: numbers are meant, as in 0,1")
    return numbers


def _time(options: Mapping[str, str], name: str, default: int) -> int:
    return whole(name, options[name]) if name in options else default


def _offset(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    offset = whole(name, options[name])
    if offset < 0:
        raise BadOption(f"{name}: physical offsets count from 0")
    return offset
