"""What a consumer wants: topics, filters, where a new group begins, how members share."""

import dataclasses
import datetime as dt
import enum
import time
from collections.abc import Iterable, Mapping

from cometmq.protocol import properties as props
from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.heartbeat import BROADCASTING, CLUSTERING
from cometmq.protocol.names import RETRY_PREFIX, check_topic
from cometmq.protocol.subscription import SQL92, SubscriptionData, tag_subscription

from ..errors import IllegalArgument
from ..received import ReceivedMessage

_TAGS = props.TAGS.encode()
GROUP_CHARS_MAX = 120


class Model(enum.Enum):
    """Whether the members of a group share its messages, or each gets all of them."""

    CLUSTERING = CLUSTERING
    BROADCASTING = BROADCASTING


@dataclasses.dataclass(frozen=True)
class Sql:
    """A filter over properties: `Sql("price > 10 AND region IN ('EU', 'US')")`."""

    expression: str


Filter = str | Sql
"""Tags as in `"A || B"`, `"*"` for all messages, or an expression over properties."""
Wanted = str | Iterable[str] | Mapping[str, Filter]
"""One topic, several, or topics with their filters."""


class ConsumeFrom(enum.Enum):
    """Where a group begins in a queue of which it has read nothing yet."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    """At the queue's end. As in RocketMQ, a queue that never lost a message to retention is read
    from its beginning: a group that is as young as its topic misses nothing."""
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    """At the oldest message that is still there."""
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclasses.dataclass(frozen=True)
class Beginning:
    where: ConsumeFrom
    timestamp_ms: int = 0


def beginning_of(given: ConsumeFrom | dt.datetime) -> Beginning:
    """A time stands for the first message that was stored at or after it."""
    if isinstance(given, dt.datetime):
        if given.tzinfo is None:
            raise IllegalArgument("consume_from needs a time with a zone, as in datetime.now(UTC)")
        return Beginning(ConsumeFrom.TIMESTAMP, round(given.timestamp() * 1000))
    if given is ConsumeFrom.TIMESTAMP:
        raise IllegalArgument("give the time itself: consume_from=datetime(…, tzinfo=UTC)")
    return Beginning(given)


def filters_of(wanted: Wanted) -> dict[str, Filter]:
    if isinstance(wanted, str):
        return {wanted: "*"}
    if isinstance(wanted, Mapping):
        return dict(wanted)
    return dict.fromkeys(wanted, "*")


def subscription_of(topic: str, wanted: Filter, *, newer_than: int = 0) -> SubscriptionData:
    """A subscription as brokers get it. A newer version replaces what they knew."""
    version = max(time.time_ns() // 1_000_000, newer_than + 1)
    try:
        check_topic(topic)
        if isinstance(wanted, Sql):
            return SubscriptionData(
                topic, wanted.expression, sub_version=version, expression_type=SQL92
            )
        return tag_subscription(topic, wanted, version)
    except (IllegalMessage, ValueError) as error:
        raise IllegalArgument(str(error)) from None


def check_group(group: str) -> str:
    try:
        check_topic(group)
    except IllegalMessage as error:
        raise IllegalArgument(str(error).replace("topic", "group", 1)) from None
    if len(group) > GROUP_CHARS_MAX:
        raise IllegalArgument(f"a group's name has up to {GROUP_CHARS_MAX} characters")
    return group


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def matching(
    messages: list[ReceivedMessage], subscription: SubscriptionData
) -> list[ReceivedMessage]:
    """Those whose tag is really among the wanted: the broker compares hashes alone."""
    if not subscription.tags_set or subscription.expression_type == SQL92:
        return messages
    wanted = {tag.encode() for tag in subscription.tags_set}
    return [
        message
        for message in messages
        if props.property_value(message.encoded_properties, _TAGS) in wanted
    ]
