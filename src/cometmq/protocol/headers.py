"""Header fields of requests, one structure a request, under the protocol's own names.

A field with a default may be absent. Numbers and booleans travel as text; `Command.fields` reads
them. What no handler looks at is not declared.
"""

import msgspec

from .numbers import Int32, Int64


class Fields(msgspec.Struct, gc=False, rename="camel"):
    pass


# -- sending -------------------------------------------------------------------------------------


class SendFieldsLong(Fields, rename="camel"):
    """SEND_MESSAGE: the old form, with names in full."""

    producer_group: str
    topic: str
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    default_topic: str = ""
    default_topic_queue_nums: Int32 = 4
    properties: str = ""
    reconsume_times: Int32 = 0
    max_reconsume_times: Int32 = -1
    batch: bool = False


class SendFields(msgspec.Struct, gc=False):
    """SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE: one letter a field."""

    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    queue_id: Int32 = msgspec.field(name="e")
    sys_flag: Int32 = msgspec.field(name="f")
    born_timestamp: Int64 = msgspec.field(name="g")
    flag: Int32 = msgspec.field(name="h")
    default_topic: str = msgspec.field(name="c", default="")
    default_topic_queue_nums: Int32 = msgspec.field(name="d", default=4)
    properties: str = msgspec.field(name="i", default="")
    reconsume_times: Int32 = msgspec.field(name="j", default=0)
    max_reconsume_times: Int32 = msgspec.field(name="l", default=-1)
    batch: bool = msgspec.field(name="m", default=False)


class SendBackFields(Fields, rename="camel"):
    offset: Int64
    group: str
    delay_level: Int32 = 0
    origin_msg_id: str = ""
    origin_topic: str = ""
    max_reconsume_times: Int32 | None = None


class RecallFields(Fields, rename="camel"):
    topic: str
    recall_handle: str
    producer_group: str = ""


class EndTransactionFields(Fields, rename="camel"):
    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False


# -- pulling -------------------------------------------------------------------------------------


class PullFields(Fields, rename="camel"):
    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64 = 0
    suspend_timeout_millis: Int64 = 0
    subscription: str = ""
    sub_version: Int64 = 0
    expression_type: str = "TAG"
    max_msg_bytes: Int32 = 0


class QueueFields(Fields, rename="camel"):
    topic: str
    queue_id: Int32


class SearchOffsetFields(Fields, rename="camel"):
    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str = "lower"


class QueryConsumerOffsetFields(Fields, rename="camel"):
    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool = True


class UpdateConsumerOffsetFields(Fields, rename="camel"):
    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class QueryMessageFields(msgspec.Struct, gc=False, rename="camel"):
    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    by_unique_key: bool = msgspec.field(name="_UNIQUE_KEY_QUERY", default=False)
    index_type: str = ""
    """Since RocketMQ 5.5: `T` asks for a tag."""


class ViewMessageFields(Fields, rename="camel"):
    offset: Int64


# -- clients -------------------------------------------------------------------------------------


class UnregisterClientFields(msgspec.Struct, gc=False, rename="camel"):
    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class ConsumerGroupFields(Fields, rename="camel"):
    consumer_group: str


class ProducerGroupFields(Fields, rename="camel"):
    producer_group: str


class GroupFields(Fields, rename="camel"):
    group: str


class TopicFields(Fields, rename="camel"):
    topic: str
