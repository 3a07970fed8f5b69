"""What clients tell every broker about themselves, every 30 seconds."""

import msgspec

from .command import MalformedFields
from .numbers import Int32
from .subscription import SubscriptionData

BROADCASTING = "BROADCASTING"
CLUSTERING = "CLUSTERING"


class ProducerData(msgspec.Struct, rename="camel"):
    group_name: str


_CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
_MESSAGE_MODELS = (BROADCASTING, CLUSTERING)
_CONSUME_FROM = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


class ConsumerData(msgspec.Struct, rename="camel"):
    """Clients on RocketMQ's C++ library tell the places of the three names instead of them."""

    group_name: str
    type_told: str | Int32 = msgspec.field(name="consumeType", default="CONSUME_PASSIVELY")
    model_told: str | Int32 = msgspec.field(name="messageModel", default=CLUSTERING)
    from_told: str | Int32 = msgspec.field(
        name="consumeFromWhere", default="CONSUME_FROM_LAST_OFFSET"
    )
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False

    @property
    def consume_type(self) -> str:
        return _name(self.type_told, _CONSUME_TYPES)

    @property
    def message_model(self) -> str:
        return _name(self.model_told, _MESSAGE_MODELS)

    @property
    def consume_from_where(self) -> str:
        return _name(self.from_told, _CONSUME_FROM)


class Heartbeat(msgspec.Struct, rename="camel"):
    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: Int32 = 0
    without_sub: bool = False
    """The subscriptions are those of the last heartbeat with this fingerprint."""


def _name(told: str | int, names: tuple[str, ...]) -> str:
    if isinstance(told, str):
        return told
    if 0 <= told < len(names):
        return names[told]
    raise MalformedFields(f"a heartbeat tells {told} where 0 to {len(names) - 1} have a name")
