"""Where topics and brokers are: what NameServers tell clients, brokers and tools.

Fields stand in the order in which RocketMQ writes them. Broker ids go as quoted keys, and bodies
are compact: some clients take the addresses apart as text.
"""

import msgspec
from msgspec import UNSET, UnsetType

MASTER_ID = 0


class BrokerData(msgspec.Struct, rename="camel"):
    """The brokers of one name: a master (id 0) and its slaves."""

    broker_addrs: dict[int, str]
    broker_name: str
    cluster: str
    enable_acting_master: bool = False
    zone_name: str | UnsetType | None = UNSET


class QueueData(msgspec.Struct, gc=False, rename="camel"):
    """The queues of one topic at the brokers of one name."""

    broker_name: str
    perm: int
    read_queue_nums: int
    topic_sys_flag: int = 0
    write_queue_nums: int = 0


class QueueMapping(msgspec.Struct, rename="camel"):
    """Which global queues of a static topic a broker holds, and under which of its own ids."""

    bname: str
    curr_id_map: dict[int, int] = {}
    dirty: bool = False
    epoch: int = 0
    scope: str | UnsetType | None = UNSET
    topic: str = ""
    total_queues: int = 0


class TopicRoute(msgspec.Struct, rename="camel"):
    """The answer to GET_ROUTEINFO_BY_TOPIC."""

    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | UnsetType | None = UNSET
    queue_datas: list[QueueData] = []
    topic_queue_mapping_by_broker: dict[str, QueueMapping] | UnsetType | None = UNSET


class ClusterInfo(msgspec.Struct, rename="camel"):
    """The answer to GET_BROKER_CLUSTER_INFO."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class MemberGroup(msgspec.Struct, rename="camel"):
    broker_addrs: dict[int, str]
    broker_name: str
    cluster: str


class MemberGroupAnswer(msgspec.Struct, rename="camel"):
    """The answer to GET_BROKER_MEMBER_GROUP."""

    broker_member_group: MemberGroup


class TopicList(msgspec.Struct, rename="camel"):
    broker_addr: str | UnsetType | None = UNSET
    topic_list: list[str] = []


class KvTable(msgspec.Struct):
    table: dict[str, str] = {}
