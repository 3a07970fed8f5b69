"""A message to be sent, and the properties by which brokers and consumers know it."""

import datetime as dt
from collections.abc import Mapping, Sequence

import msgspec

from cometmq.protocol import properties as props
from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.names import check_topic

from .errors import IllegalArgument

BODY_BYTES_MAX = 4 * 1024**2
DELAY_LEVELS = 18
WAIT = "WAIT"
DELAY = "DELAY"
DELIVER_MS = "TIMER_DELIVER_MS"
SHARDING_KEY = "__SHARDINGKEY"
RESERVED = frozenset({
    props.KEYS, props.TAGS, props.UNIQUE_KEY, props.RECORD_CRC, WAIT, DELAY, DELIVER_MS,
    SHARDING_KEY, "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET",
    "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG",
    "RECONSUME_TIME", "MSG_REGION", "TRACE_ON", "EXTEND_UNIQ_INFO", "MAX_RECONSUME_TIMES",
    "CONSUME_START_TIME", "TIMER_DELAY_SEC", "TIMER_DELAY_MS",
})  # fmt: skip
"""Names with a meaning of their own. Those that a sender may decide are fields of a message."""


class Message(msgspec.Struct):
    """What is sent, and where to. At most one of `delay_level`, `delay` and `deliver_at` is set.

    `keys` find the message again; `sharding_key` sends all messages with the same one to the same
    queue, in order. `delay_level` counts from 1 (1 s) to 18 (2 h).
    """

    topic: str
    body: bytes
    tags: str = ""
    keys: str | Sequence[str] = ()
    properties: Mapping[str, str] = {}
    sharding_key: str = ""
    delay_level: int = 0
    delay: dt.timedelta | None = None
    deliver_at: dt.datetime | None = None
    flag: int = 0
    wait_store: bool = True
    """False: a sync-flushing broker may answer before the message is on disk."""

    @property
    def is_delayed(self) -> bool:
        return bool(self.delay_level) or self.delay is not None or self.deliver_at is not None


def check_message(message: Message, body_bytes_max: int = BODY_BYTES_MAX) -> None:
    """IllegalArgument with the rule that a message breaks."""
    if not message.body:
        raise IllegalArgument(f"a message to {message.topic} without a body; RocketMQ takes none")
    if len(message.body) > body_bytes_max:
        raise IllegalArgument(
            f"a body of {len(message.body)} bytes; this producer sends up to {body_bytes_max}"
        )
    try:
        check_topic(message.topic)
    except IllegalMessage as error:
        raise IllegalArgument(str(error)) from None
    if message.is_delayed:
        _check_delay(message)


def encode_sent(message: Message, unique_id: str, now_ms: int, more: Mapping[str, str]) -> str:
    """The properties of a message as a send request carries them.

    `more` has those that the producer adds, such as the mark of a transaction.
    """
    fields = {props.UNIQUE_KEY: unique_id, WAIT: "true" if message.wait_store else "false"}
    if message.tags:
        fields[props.TAGS] = message.tags
    if message.keys:
        fields[props.KEYS] = _joined_keys(message.keys)
    if message.sharding_key:
        fields[SHARDING_KEY] = message.sharding_key
    if message.is_delayed:
        fields |= _delay_fields(message, now_ms)
    if message.properties:
        _refuse_reserved(message.properties)
        fields |= message.properties
    return encode_text({**fields, **more} if more else fields)


def encode_text(fields: Mapping[str, str]) -> str:
    """Properties as text; IllegalArgument when they cannot be said or are too long."""
    encoded = "".join([f"{name}\x01{value}\x02" for name, value in fields.items()])
    marks = len(fields)
    if encoded.count("\x01") != marks or encoded.count("\x02") != marks or "" in fields.values():
        _explain(fields)
    # A character takes up to four bytes: only long ones need an exact count.
    if len(encoded) * 4 > props.PROPERTIES_BYTES_MAX:
        size = len(encoded.encode())
        if size > props.PROPERTIES_BYTES_MAX:
            raise IllegalArgument(
                f"properties of {size} bytes; {props.PROPERTIES_BYTES_MAX} are possible"
            )
    return encoded


def _explain(fields: Mapping[str, str]) -> None:
    try:
        props.encode_properties(fields)
    except IllegalMessage as error:
        raise IllegalArgument(str(error)) from None


def _joined_keys(keys: str | Sequence[str]) -> str:
    return keys if isinstance(keys, str) else props.KEY_SEPARATOR.join(keys)


def _refuse_reserved(properties: Mapping[str, str]) -> None:
    if not RESERVED.isdisjoint(properties):
        names = ", ".join(sorted(RESERVED.intersection(properties)))
        raise IllegalArgument(f"RocketMQ uses {names} itself; set the message's own fields instead")


def _check_delay(message: Message) -> None:
    given = [bool(message.delay_level), message.delay is not None, message.deliver_at is not None]
    if sum(given) > 1:
        raise IllegalArgument("set one of delay_level, delay and deliver_at, not several")
    if not 0 <= message.delay_level <= DELAY_LEVELS:
        raise IllegalArgument(f"delay level {message.delay_level}; there are 1 to {DELAY_LEVELS}")
    if message.deliver_at is not None and message.deliver_at.tzinfo is None:
        raise IllegalArgument("deliver_at needs a time zone, as in datetime.now(UTC)")


def _delay_fields(message: Message, now_ms: int) -> dict[str, str]:
    if message.delay_level:
        return {DELAY: str(message.delay_level)}
    if message.deliver_at is not None:
        return {DELIVER_MS: str(round(message.deliver_at.timestamp() * 1000))}
    assert message.delay is not None
    return {DELIVER_MS: str(now_ms + round(message.delay.total_seconds() * 1000))}
