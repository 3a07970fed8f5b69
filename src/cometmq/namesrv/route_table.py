"""Who is there and has which topics. No I/O, no clock: the time is an argument.

RocketMQ's tables: topics → queues by broker name, broker names → addresses by id, clusters →
broker names, live brokers and filter servers by cluster and address; and, for static topics, queue
mappings. Invariant: every broker name has at least one address and stands in one cluster; every
address is alive, and stands under one id of a name; no topic is without queues.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from cometmq.protocol.data_version import DataVersion
from cometmq.protocol.registration import BrokerFields, MasterFields, RegisterFields, Registration
from cometmq.protocol.routes import (
    MASTER_ID,
    BrokerData,
    ClusterInfo,
    MemberGroup,
    QueueData,
    QueueMapping,
    TopicList,
    TopicRoute,
)
from cometmq.protocol.topic_config import PERM_READ, PERM_WRITE, TopicConfig

BROKER_TIMEOUT_MS: Final = 120_000
"""Silence after which a broker that named no time of its own is taken for dead."""
SYNC_MEMBER_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Topics by which brokers of one name find each other: their routes show ids as they are."""
UNIT_FLAG, UNIT_SUBSCRIPTION_FLAG = 1, 2


class NotRegisteredYet(ValueError):
    """A single topic of a broker that has not told of itself before."""


class Endpoint(NamedTuple):
    cluster: str
    address: str


class LiveBroker(msgspec.Struct):
    updated_ms: int
    timeout_ms: int
    data_version: DataVersion
    ha_address: str
    connection: Any
    """What the registration came over; only compared, never used."""


class RouteTable:
    def __init__(self) -> None:
        self.topic_queue_table: dict[str, dict[str, QueueData]] = {}
        self.broker_addr_table: dict[str, BrokerData] = {}
        self.cluster_addr_table: dict[str, list[str]] = {}
        self.broker_live_table: dict[Endpoint, LiveBroker] = {}
        self.filter_server_table: dict[Endpoint, list[str]] = {}
        self.queue_mapping_table: dict[str, dict[str, QueueMapping]] = {}

    # -- brokers that come -----------------------------------------------------------------------

    def register(
        self,
        broker: RegisterFields,
        content: Registration,
        now_ms: int,
        *,
        connection: Any = None,
        drop_missing_topics: bool = False,
    ) -> MasterFields:
        """Take a broker with all its topics, or one topic of a known one; where its master is."""
        endpoint = Endpoint(broker.cluster_name, broker.broker_addr)
        known = self.broker_addr_table.get(broker.broker_name)
        holder = known.broker_addrs.get(broker.broker_id) if known is not None else None
        if holder is None and len(content.topics.topic_config_table) == 1:
            raise NotRegisteredYet(f"{broker.broker_name} has not registered yet")
        data = self._place(broker, known)
        if holder not in (None, broker.broker_addr) and self._is_newer(broker, holder, content):
            self._remove(endpoint, self._names_at(endpoint))
            return MasterFields()
        data.broker_addrs[broker.broker_id] = broker.broker_addr
        if _tells_topics(broker, data):
            if drop_missing_topics and not content.topics.queue_mappings:
                self._drop_missing(broker.broker_name, content.topics.topic_config_table)
            is_new = holder is None or self._is_changed(endpoint, content)
            self._take_topics(data, content, broker.broker_id, is_new)
        self._mark_live(endpoint, broker, content, connection, now_ms)
        return self._master_of(broker, data)

    def heartbeat(self, cluster: str, address: str, now_ms: int) -> None:
        live = self.broker_live_table.get(Endpoint(cluster, address))
        if live is not None:
            live.updated_ms = now_ms

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        live = self.broker_live_table.get(Endpoint(cluster, address))
        return live.data_version if live is not None else None

    def _place(self, broker: RegisterFields, known: BrokerData | None) -> BrokerData:
        """The entry of a broker's name, without its address under another id."""
        data = known or BrokerData({}, broker.broker_name, broker.cluster_name)
        if data.cluster != broker.cluster_name:
            self._leave_clusters(broker.broker_name)
            data.cluster = broker.cluster_name
        self.broker_addr_table[broker.broker_name] = data
        names = self.cluster_addr_table.setdefault(broker.cluster_name, [])
        if broker.broker_name not in names:
            names.append(broker.broker_name)
        data.enable_acting_master = broker.enable_acting_master or False
        data.zone_name = msgspec.UNSET if broker.zone_name is None else broker.zone_name
        for broker_id, address in list(data.broker_addrs.items()):
            if address == broker.broker_addr and broker_id != broker.broker_id:
                del data.broker_addrs[broker_id]  # A slave that became master, or the other way.
        return data

    def _is_newer(self, broker: RegisterFields, holder: str | None, content: Registration) -> bool:
        """Whether who holds this id knows of a later election than who asks for it."""
        live = self.broker_live_table.get(Endpoint(broker.cluster_name, holder or ""))
        asking = content.topics.data_version.state_version
        return live is not None and live.data_version.state_version > asking

    def _is_changed(self, endpoint: Endpoint, content: Registration) -> bool:
        before = self.broker_live_table.get(endpoint)
        return before is None or before.data_version != content.topics.data_version

    def _drop_missing(self, name: str, topics: dict[str, TopicConfig]) -> None:
        self._forget_topics(name, [topic for topic in self.topics_of(name) if topic not in topics])

    def _take_topics(
        self, data: BrokerData, content: Registration, broker_id: int, is_new: bool
    ) -> None:
        """Take all topics of a new version; of a known one those that are missing."""
        name = data.broker_name
        acts_as_master = broker_id != MASTER_ID and data.enable_acting_master
        mask = ~PERM_WRITE if acts_as_master else ~0
        for config in content.topics.topic_config_table.values():
            queues = self.topic_queue_table.setdefault(config.topic_name, {})
            if is_new or name not in queues:
                queues[name] = _queue_data(name, config, mask)
        if is_new:
            for topic, mapping in content.topics.queue_mappings.items():
                self.queue_mapping_table.setdefault(topic, {})[mapping.bname] = mapping

    def _mark_live(
        self,
        endpoint: Endpoint,
        broker: RegisterFields,
        content: Registration,
        connection: Any,
        now_ms: int,
    ) -> None:
        self.broker_live_table[endpoint] = LiveBroker(
            updated_ms=now_ms,
            timeout_ms=broker.heartbeat_timeout_millis or BROKER_TIMEOUT_MS,
            data_version=content.topics.data_version,
            ha_address=broker.ha_server_addr,
            connection=connection,
        )
        if content.filter_server_list:
            self.filter_server_table[endpoint] = content.filter_server_list
        elif content.filter_server_list is not None:
            self.filter_server_table.pop(endpoint, None)

    def _master_of(self, broker: RegisterFields, data: BrokerData) -> MasterFields:
        master = data.broker_addrs.get(MASTER_ID)
        if broker.broker_id == MASTER_ID or master is None:
            return MasterFields()
        live = self.broker_live_table.get(Endpoint(broker.cluster_name, master))
        return MasterFields(live.ha_address, master) if live is not None else MasterFields()

    # -- brokers that go -------------------------------------------------------------------------

    def unregister(self, broker: BrokerFields) -> None:
        endpoint = Endpoint(broker.cluster_name, broker.broker_addr)
        self._remove(endpoint, {broker.broker_name, *self._names_at(endpoint)})

    def disconnect(self, connection: Any) -> list[Endpoint]:
        """A connection is gone, and with it who registered over it last."""
        gone = [e for e, live in self.broker_live_table.items() if live.connection is connection]
        for endpoint in gone:
            self._remove(endpoint, self._names_at(endpoint))
        return gone

    def expire(self, now_ms: int) -> list[tuple[Endpoint, Any]]:
        """Remove who has been silent for too long. With each its connection, or None when
        somebody who lives uses it, too."""
        dead = [
            (endpoint, live.connection)
            for endpoint, live in self.broker_live_table.items()
            if live.updated_ms + live.timeout_ms < now_ms
        ]
        for endpoint, _ in dead:
            self._remove(endpoint, self._names_at(endpoint))
        used = {id(live.connection) for live in self.broker_live_table.values()}
        return [(e, None if id(connection) in used else connection) for e, connection in dead]

    def _names_at(self, endpoint: Endpoint) -> list[str]:
        """Names that go with an endpoint: none while its address lives on in another cluster."""
        if any(e.address == endpoint.address and e != endpoint for e in self.broker_live_table):
            return []
        return [
            name
            for name, data in self.broker_addr_table.items()
            if endpoint.address in data.broker_addrs.values()
        ]

    def _remove(self, endpoint: Endpoint, names: Iterable[str]) -> None:
        self.broker_live_table.pop(endpoint, None)
        self.filter_server_table.pop(endpoint, None)
        for name in names:
            data = self.broker_addr_table.get(name)
            if data is None:
                continue
            for broker_id, address in list(data.broker_addrs.items()):
                if address == endpoint.address:
                    del data.broker_addrs[broker_id]
            if not data.broker_addrs:
                self._forget_name(name)
            elif data.enable_acting_master and MASTER_ID not in data.broker_addrs:
                self._change_permission(name, lambda perm: perm & ~PERM_WRITE)

    def _forget_name(self, name: str) -> None:
        del self.broker_addr_table[name]
        self._leave_clusters(name)
        self._forget_topics(name, self.topics_of(name))

    def _leave_clusters(self, name: str) -> None:
        for cluster, names in list(self.cluster_addr_table.items()):
            if name in names:
                names.remove(name)
            if not names:
                del self.cluster_addr_table[cluster]

    def _forget_topics(self, name: str, topics: Iterable[str]) -> None:
        for topic in topics:
            queues = self.topic_queue_table[topic]
            del queues[name]
            if not queues:
                del self.topic_queue_table[topic]

    # -- what operators change -------------------------------------------------------------------

    def wipe_write_permission(self, name: str) -> int:
        """Take the permission to write from a broker's topics; of how many."""
        return self._change_permission(name, lambda perm: perm & ~PERM_WRITE)

    def add_write_permission(self, name: str) -> int:
        return self._change_permission(name, lambda _: PERM_READ | PERM_WRITE)

    def _change_permission(self, name: str, change: Callable[[int], int]) -> int:
        topics = self.topics_of(name)
        for topic in topics:
            queues = self.topic_queue_table[topic][name]
            queues.perm = change(queues.perm)
        return len(topics)

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> bool:
        """Take one topic of known brokers; False, and nothing taken, if one is unknown."""
        found = {each.broker_name: each for each in queues}
        if not found or not found.keys() <= self.broker_addr_table.keys():
            return False
        self.topic_queue_table.setdefault(topic, {}).update(found)
        return True

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, at the brokers of one cluster or everywhere."""
        if not cluster:
            self.topic_queue_table.pop(topic, None)
            return
        queues = self.topic_queue_table.get(topic, {})
        for name in self.cluster_addr_table.get(cluster, ()):
            if name in queues:
                self._forget_topics(name, [topic])

    # -- what is asked ---------------------------------------------------------------------------

    def route(self, topic: str, *, acting_master: bool = False) -> TopicRoute | None:
        """Where a topic is; None if nobody has it."""
        queues = self.topic_queue_table.get(topic, {})
        found = [self.broker_addr_table[name] for name in queues if name in self.broker_addr_table]
        if not found:
            return None
        show_acting = acting_master and not topic.startswith(SYNC_MEMBER_PREFIX)
        brokers = [_shown(data, queues[data.broker_name], show_acting) for data in found]
        return TopicRoute(
            broker_datas=brokers,
            filter_server_table=self._filter_servers(found),
            queue_datas=list(queues.values()),
            topic_queue_mapping_by_broker=self.queue_mapping_table.get(topic, msgspec.UNSET),
        )

    def _filter_servers(self, brokers: Iterable[BrokerData]) -> dict[str, list[str]]:
        if not self.filter_server_table:
            return {}
        endpoints = [Endpoint(b.cluster, a) for b in brokers for a in b.broker_addrs.values()]
        table = self.filter_server_table
        return {e.address: table[e] for e in endpoints if e in table}

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(self.broker_addr_table, self.cluster_addr_table)

    def member_group(self, cluster: str, name: str) -> MemberGroup:
        data = self.broker_addr_table.get(name)
        return MemberGroup(data.broker_addrs if data is not None else {}, name, cluster)

    def topics_of(self, name: str) -> list[str]:
        return [topic for topic, queues in self.topic_queue_table.items() if name in queues]

    def topics_of_cluster(self, cluster: str) -> TopicList:
        names = set(self.cluster_addr_table.get(cluster, ()))
        table = self.topic_queue_table
        return TopicList(topic_list=[t for t, queues in table.items() if names & queues.keys()])

    def all_topics(self) -> TopicList:
        return TopicList(topic_list=list(self.topic_queue_table))

    def system_topics(self) -> TopicList:
        """The topics named like clusters and brokers, and some broker that knows the others."""
        topics: dict[str, None] = {}
        for cluster, names in self.cluster_addr_table.items():
            topics |= dict.fromkeys((cluster, *names))
        first = next(iter(self.broker_addr_table.values()), None)
        address = min(first.broker_addrs.items())[1] if first is not None else msgspec.UNSET
        return TopicList(address, list(topics))

    def topics_flagged(self, flags: int, *, without: int = 0) -> TopicList:
        """Topics whose system flags have these and not those."""
        return TopicList(
            topic_list=[
                topic
                for topic, queues in self.topic_queue_table.items()
                if _first_flags(queues) & (flags | without) == flags
            ]
        )


def _tells_topics(broker: RegisterFields, data: BrokerData) -> bool:
    """A master does, and, since 5.0, the first slave while there is no master."""
    if broker.broker_id == MASTER_ID:
        return True
    return broker.enable_acting_master is not None and broker.broker_id == min(data.broker_addrs)


def _queue_data(name: str, config: TopicConfig, mask: int) -> QueueData:
    return QueueData(
        broker_name=name,
        perm=config.perm & mask,
        read_queue_nums=config.read_queue_nums,
        topic_sys_flag=config.topic_sys_flag,
        write_queue_nums=config.write_queue_nums,
    )


def _shown(data: BrokerData, queues: QueueData, acting_master: bool) -> BrokerData:
    """The brokers of a name as clients see them: a first slave may stand in for the master."""
    addresses = dict(sorted(data.broker_addrs.items()))
    stands_in = acting_master and data.enable_acting_master and MASTER_ID not in addresses
    if stands_in and addresses and not queues.perm & PERM_WRITE:
        acting = addresses.pop(min(addresses))
        addresses = {MASTER_ID: acting, **addresses}
    return msgspec.structs.replace(data, broker_addrs=addresses)


def _first_flags(queues: dict[str, QueueData]) -> int:
    return next(iter(queues.values())).topic_sys_flag
