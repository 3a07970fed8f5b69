"""A consumer group as brokers keep it."""

from typing import Any

import msgspec

from .data_version import DataVersion
from .numbers import Int32, Int64
from .subscription import SubscriptionData


class GroupConfig(msgspec.Struct, rename="camel"):
    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    group_retry_policy: dict[str, Any] = msgspec.field(
        default_factory=lambda: {"type": "CUSTOMIZED"}
    )
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int32 = 0
    consume_timeout_minute: Int32 = 15
    subscription_data_set: list[SubscriptionData] | None = None
    attributes: dict[str, str] = {}


class GroupConfigs(msgspec.Struct, rename="camel"):
    """A table of groups with its version: `subscriptionGroup.json`."""

    subscription_group_table: dict[str, GroupConfig] = {}
    forbidden_table: dict[str, dict[str, Int32]] = {}
    data_version: DataVersion = DataVersion()
