"""A message to be sent, and the properties by which brokers and consumers know it."""

import datetime as dt
import functools
from collections.abc import Mapping, Sequence

import msgspec

from cometmq.clock import Clock
from cometmq.protocol import properties as props
from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.names import check_topic

from .errors import IllegalArgument

BODY_BYTES_MAX = 4 * 1024**2
DELAY_LEVELS = 18
_INT_MAX = 2**31 - 1
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


_PLAIN = f"{WAIT}\x01true\x02"
_ID_BEGIN = f"{props.UNIQUE_KEY}\x01"
UNIQUE_ID_BYTES_MAX = len(_ID_BEGIN) + 56 + 1
"""What a unique id takes of the properties: that of an IPv6 host has 56 digits."""
PROPERTIES_BYTES_MAX = props.PROPERTIES_BYTES_MAX - UNIQUE_ID_BYTES_MAX


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

    @property
    def is_plain(self) -> bool:
        """Whether it has a topic and a body and nothing else."""
        return not (
            self.tags or self.keys or self.properties or self.sharding_key or self.delay_level
            or self.delay is not None or self.deliver_at is not None or not self.wait_store
        )  # fmt: skip


def check_message(message: Message, body_bytes_max: int = BODY_BYTES_MAX) -> None:
    """IllegalArgument with the rule that a message breaks."""
    body = message.body
    if not isinstance(body, bytes):
        raise IllegalArgument(f"a body is bytes, not {type(body).__name__}: encode it")
    if not body:
        raise IllegalArgument(f"a message to {message.topic} without a body; RocketMQ takes none")
    if len(body) > body_bytes_max:
        raise IllegalArgument(
            f"a body of {len(body)} bytes; this producer sends up to {body_bytes_max}"
        )
    _checked_topic(message.topic)
    if not -_INT_MAX - 1 <= message.flag <= _INT_MAX:
        raise IllegalArgument(f"flag {message.flag}: a number of 32 bits is possible")
    if message.is_delayed:
        _check_delay(message)


@functools.lru_cache(maxsize=1024)
def _checked_topic(topic: str) -> str:
    try:
        return check_topic(topic)
    except IllegalMessage as error:
        raise IllegalArgument(str(error)) from None


def encode_sent(message: Message, clock: Clock, more: Mapping[str, str]) -> str:
    """The properties of a message as a send request carries them, but for its unique id.

    `more` has those that the producer adds, such as the mark of a transaction.
    """
    if message.is_plain and not more:
        return _PLAIN
    fields = {WAIT: "true" if message.wait_store else "false"}
    if message.tags:
        fields[props.TAGS] = message.tags
    if message.keys:
        fields[props.KEYS] = _joined_keys(message.keys)
    if message.sharding_key:
        fields[SHARDING_KEY] = message.sharding_key
    if message.is_delayed:
        fields |= _delay_fields(message, clock.now_ms())
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
    size = len(encoded) if encoded.isascii() else _utf8_size(encoded)
    if size > PROPERTIES_BYTES_MAX:
        raise IllegalArgument(f"properties of {size} bytes; {PROPERTIES_BYTES_MAX} are possible")
    return encoded


def with_unique_id(unique_id: str, encoded: str) -> str:
    """The properties in full: those that `encode_sent` gave, and the unique id."""
    return f"{_ID_BEGIN}{unique_id}\x02{encoded}"


def _utf8_size(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise IllegalArgument(f"properties that UTF-8 cannot say: {error}") from None


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
