"""Header fields of the requests with which brokers are administered. See `headers`."""

from .headers import Fields
from .numbers import Int32, Int64

# -- topics and groups -------------------------------------------------------------------------


class CreateTopicFields(Fields, rename="camel"):
    topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: str = ""


class TopicPageFields(Fields, rename="camel"):
    """Old tools send none of these and want everything at once."""

    topic_seq: Int32 | None = None
    max_topic_num: Int32 | None = None
    data_version: str | None = None


class GroupPageFields(Fields, rename="camel"):
    group_seq: Int32 | None = None
    max_group_num: Int32 | None = None
    data_version: str | None = None


class DeleteGroupFields(Fields, rename="camel"):
    group_name: str
    clean_offset: bool = False


class GroupForbiddenFields(Fields, rename="camel"):
    group: str
    topic: str
    readable: bool | None = None


# -- progress ----------------------------------------------------------------------------------


class ConsumeStatsFields(Fields, rename="camel"):
    consumer_group: str
    topic: str = ""
    topic_list: str = ""
    """Several topics with `;` between them, whether the group subscribes to them or not."""


class BrokerConsumeStatsFields(Fields, rename="camel"):
    is_order: bool = False


class GroupTopicFields(Fields, rename="camel"):
    group: str
    topic: str


class QueueEntriesFields(Fields, rename="camel"):
    topic: str
    queue_id: Int32
    index: Int64 = 0
    count: Int32 = 10
    consumer_group: str = ""


# -- offsets -----------------------------------------------------------------------------------


class ResetOffsetFields(Fields, rename="camel"):
    group: str
    topic: str
    timestamp: Int64
    """Negative: the queue's end."""
    queue_id: Int32 = -1
    offset: Int64 = -1


class CloneOffsetFields(Fields, rename="camel"):
    src_group: str
    dest_group: str
    topic: str = ""
    offline: bool = False


class CorrectionOffsetFields(Fields, rename="camel"):
    compare_group: str
    topic: str
    filter_groups: str = ""


# -- clients -----------------------------------------------------------------------------------


class RelayFields(Fields, rename="camel"):
    """Of a request that one member of a group is to answer."""

    consumer_group: str
    client_id: str = ""


class ConsumeDirectlyFields(Fields, rename="camel"):
    consumer_group: str
    msg_id: str
    client_id: str = ""
    topic: str = ""


class ConsumerStatusFields(Fields, rename="camel"):
    group: str
    topic: str
    client_addr: str = ""
    """A client id, in spite of its name; without one all members are asked."""


# -- figures -----------------------------------------------------------------------------------


class StatsFields(Fields, rename="camel"):
    stats_name: str
    stats_key: str = ""
