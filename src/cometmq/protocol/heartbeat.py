"""What clients tell every broker about themselves, every 30 seconds."""

import msgspec

from .numbers import Int32
from .subscription import SubscriptionData

BROADCASTING = "BROADCASTING"
CLUSTERING = "CLUSTERING"


class ProducerData(msgspec.Struct, rename="camel"):
    group_name: str


class ConsumerData(msgspec.Struct, rename="camel"):
    group_name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = CLUSTERING
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class Heartbeat(msgspec.Struct, rename="camel"):
    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: Int32 = 0
    without_sub: bool = False
    """The subscriptions are those of the last heartbeat with this fingerprint."""
