"""Every setting of a broker, under RocketMQ's own key. The store's are in `store.config`."""

import dataclasses
import enum
import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cometmq.observed import Observed
from cometmq.ports import BROKER_PORT
from cometmq.protocol.names import RETRY_PREFIX, check_topic
from cometmq.protocol.topic_config import QUEUES_MAX
from cometmq.replication.acks import AckPolicy
from cometmq.replication.pace import Pace
from cometmq.replication.quorum.peers import Peers
from cometmq.replication.quorum.quorum import QuorumSettings
from cometmq.replication.slaves import SLAVES_MAX
from cometmq.replication.stream import FRAME_BYTES_MAX
from cometmq.settings import BadSetting, build, declared, refuse_unknown, setting
from cometmq.store.config import StoreConfig
from cometmq.transport.dial import split_address
from cometmq.transport.tls import MutualTls, TlsMode, mutual_tls

from .rocketmq_keys import ROCKETMQ_KEYS

KIB = 1024
FAST_PORT_DISTANCE = 2
"""RocketMQ's clients may use a second port (`vipChannelEnabled`), so far below the first."""


INT_MAX = 2**31 - 1
REPLICAS_MAX = SLAVES_MAX + 1
RAFT_MESSAGE_BYTES_MAX = 32 * KIB**2
"""A record goes to other members in one frame."""
TIMER_ROLL_S_MAX = 7 * 86_400 - 60
"""RocketMQ's wheel has slots for seven days ahead; a minute of them stays free."""
_PORTS, _COUNTS = (0, 65535), (1, INT_MAX)
_RANGES = {
    "port": _PORTS,
    "ha_port": _PORTS,
    "ha_heartbeat_ms": _COUNTS,
    "ha_silence_ms": _COUNTS,
    "ha_batch_bytes": (KIB, FRAME_BYTES_MAX),
    "slave_timeout_ms": _COUNTS,
    "total_replicas": (1, REPLICAS_MAX),
    "in_sync_replicas": (1, REPLICAS_MAX),
    "min_in_sync_replicas": (1, REPLICAS_MAX),
    "permission": (0, 7),
    "default_topic_queues": (1, QUEUES_MAX),
    "memory_percent": (0, 100),
    # An interval of nothing would leave no time for anything else.
    "register_interval_ms": _COUNTS,
    "register_timeout_ms": _COUNTS,
    "offset_save_interval_ms": _COUNTS,
    "delay_save_interval_ms": _COUNTS,
    "timer_save_interval_ms": _COUNTS,
    "timer_roll_s": (2, TIMER_ROLL_S_MAX),
    "timer_log_file_bytes": (KIB, INT_MAX),
    "idle_s": _COUNTS,
    "client_expiry_ms": _COUNTS,
}
"""What numbers may be, by the field's name; where nothing is said, not negative."""


class BrokerRole(enum.Enum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BrokerConfig(Observed):
    cluster: str = setting("brokerClusterName", "DefaultCluster", "name of the cluster")
    name: str = setting("brokerName", "broker-a", "name of this broker in its cluster")
    broker_id: int = setting("brokerId", 0, "0 is the master of its name")
    role: BrokerRole = setting("brokerRole", BrokerRole.ASYNC_MASTER, "whom it waits for")
    bind_address: str = setting("bindAddress", "127.0.0.1", "address to listen at")
    port: int = setting("listenPort", BROKER_PORT, "port to listen at")
    ha_port: int = setting("haListenPort", 0, "port where slaves connect; 0: listenPort + 1")
    advertised_ip: str = setting("brokerIP1", "", "address told to clients, if not bindAddress")
    ha_ip: str = setting("brokerIP2", "", "address told to slaves, if not that")
    name_servers: str = setting("namesrvAddr", "", "NameServers: host:port, `;` between them")
    register_interval_ms: int = setting(
        "registerNameServerPeriod", 30_000, "time between two registrations", unit="ms", live=True
    )
    register_timeout_ms: int = setting(
        "registerBrokerTimeoutMills",
        24_000,
        "how long a registration may take",
        unit="ms",
        live=True,
    )

    ha_master: str = setting(
        "haMasterAddress", "", "a slave's master, host:port of its stream; else NameServers tell"
    )
    ha_heartbeat_ms: int = setting(
        "haSendHeartbeatInterval",
        5000,
        "silence after which master and slave give a sign of life",
        unit="ms",
    )
    ha_silence_ms: int = setting(
        "haHousekeepingInterval",
        20_000,
        "silence after which each takes the other for dead",
        unit="ms",
    )
    ha_batch_bytes: int = setting(
        "haTransferBatchSize", 32 * KIB, "log bytes in a frame", unit="bytes"
    )
    ha_gap_bytes: int = setting(
        "haMaxGapNotInSync",
        256 * KIB**2,
        "a slave that is so far behind is not in sync",
        unit="bytes",
        live=True,
    )
    slave_timeout_ms: int = setting(
        "slaveTimeout", 3000, "how long a send waits for slaves", unit="ms", live=True
    )
    total_replicas: int = setting(
        "totalReplicas", 1, "brokers of this name, the master counted", unit="brokers"
    )
    in_sync_replicas: int = setting(
        "inSyncReplicas",
        1,
        "brokers that must have a message, the master counted",
        unit="brokers",
        live=True,
    )
    min_in_sync_replicas: int = setting(
        "minInSyncReplicas",
        1,
        "how far enableAutoInSyncReplicas may go down",
        unit="brokers",
        live=True,
    )
    auto_in_sync_replicas: bool = setting(
        "enableAutoInSyncReplicas", False, "do with fewer than inSyncReplicas if need be", live=True
    )
    acting_master: bool = setting(
        "enableSlaveActingMaster", False, "a slave stands in for a lost master, for reads"
    )
    offset_check_in_slave: bool = setting(
        "offsetCheckInSlave", False, "a slave, too, sends readers to offsets that it has", live=True
    )

    raft: bool = setting(
        "enableDLegerCommitLog", False, "be a member of a Raft group, which elects its master"
    )
    raft_group: str = setting("dLegerGroup", "", "name of that group; else brokerName")
    raft_peers: str = setting(
        "dLegerPeers", "", "its members: n0-host:port, `;` between them, the same everywhere"
    )
    raft_self: str = setting("dLegerSelfId", "", "which of them this broker is: n0")
    raft_joins: bool = setting(
        "raft.join", False, "the group exists already and is told of this member by an operator"
    )
    raft_authority: Path | None = setting(
        "raft.tls.trustCertPath",
        None,
        "members speak TLS to one another with tls.server.certPath and .keyPath, and believe only "
        "certificates of this authority, PEM",
    )

    permission: int = setting("brokerPermission", 6, "4 lets read, 2 lets write", live=True)
    auto_create_topics: bool = setting(
        "autoCreateTopicEnable", True, "create a topic at the first message for it", live=True
    )
    default_topic_queues: int = setting(
        "defaultTopicQueueNums",
        8,
        "queues at most of a topic that is created so",
        unit="queues",
        live=True,
    )
    auto_create_groups: bool = setting(
        "autoCreateSubscriptionGroup", True, "create a consumer group when it shows up", live=True
    )
    cluster_topic: bool = setting("clusterTopicEnable", True, "messages to the cluster's own topic")
    broker_topic: bool = setting("brokerTopicEnable", True, "messages to the broker's own topic")
    trace_topic: bool = setting("traceTopicEnable", False, "have a topic for message traces")
    trace_topic_name: str = setting("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", "its name")
    trace_on: bool = setting("traceOn", True, "let clients trace", live=True)
    region: str = setting("regionId", "DefaultRegion", "region told to clients")
    topics_max: int = setting(
        "maxTopicNum", 100_000, "topics this broker keeps", unit="topics", live=True
    )

    sends_waiting_max: int = setting(
        "sendThreadPoolQueueCapacity",
        10_000,
        "sends that may wait for the disk",
        unit="sends",
        live=True,
    )
    long_polling: bool = setting(
        "longPollingEnable", True, "hold pulls that find nothing", live=True
    )
    short_polling_ms: int = setting(
        "shortPollingTimeMills",
        1000,
        "how long a pull is held without long polling",
        unit="ms",
        live=True,
    )
    pulls_held_max: int = setting(
        "pullThreadPoolQueueCapacity", 100_000, "pulls held at a time", unit="pulls", live=True
    )
    # RocketMQ gives 32 messages and 256 KiB, of old ones 8 and 64 KiB. Its clients ask for 32;
    # who asks for more reads in bulk, and pays for every answer.
    pull_bytes: int = setting(
        "maxTransferBytesOnMessageInMemory", KIB**2, "bytes a pull may get", unit="bytes", live=True
    )
    pull_count: int = setting(
        "maxTransferCountOnMessageInMemory",
        1024,
        "messages a pull may get",
        unit="messages",
        live=True,
    )
    pull_bytes_old: int = setting(
        "maxTransferBytesOnMessageInDisk",
        KIB**2,
        "the same for old messages",
        unit="bytes",
        live=True,
    )
    pull_count_old: int = setting(
        "maxTransferCountOnMessageInDisk",
        1024,
        "the same for old messages",
        unit="messages",
        live=True,
    )
    memory_percent: int = setting(
        "accessMessageInMemoryMaxRatio", 40, "share of memory within which a message is not old",
        unit="%", live=True,
    )  # fmt: skip
    slave_reads: bool = setting(
        "slaveReadEnable", False, "send readers of old messages to a slave", live=True
    )
    offset_save_interval_ms: int = setting(
        "flushConsumerOffsetInterval", 5000, "time between two saves of consumer offsets", unit="ms"
    )
    delay_save_interval_ms: int = setting(
        "flushDelayOffsetInterval",
        10_000,
        "time between two saves of the delays' progress",
        unit="ms",
    )
    timers: bool = setting("timerWheelEnable", True, "take messages with a time of their own")
    timer_delay_max_s: int = setting(
        "timerMaxDelaySec", 3 * 86_400, "how far ahead that time may be", unit="s", live=True
    )
    timer_roll_s: int = setting(
        "timerRollWindowSlot",
        2 * 86_400,
        "after so long a waiting message is written anew",
        unit="s",
    )
    timer_save_interval_ms: int = setting(
        "timerFlushIntervalMs", 1000, "time between two saves of the wheel", unit="ms"
    )
    timer_log_file_bytes: int = setting(
        "mappedFileSizeTimerLog", 100 * KIB**2, "size of a file of the wheel's log", unit="bytes"
    )
    recalls: bool = setting(
        "recallMessageEnable", False, "let producers take back what waits for its time", live=True
    )
    reject_transactions: bool = setting(
        "rejectTransactionMessage", False, "take no transactional messages", live=True
    )
    transaction_timeout_ms: int = setting(
        "transactionTimeOut", 6000, "when a silent producer is asked first", unit="ms", live=True
    )
    transaction_check_interval_ms: int = setting(
        "transactionCheckInterval", 30_000, "time between two questions", unit="ms", live=True
    )
    transaction_checks_max: int = setting(
        "transactionCheckMax",
        15,
        "questions after which a message is put aside",
        unit="questions",
        live=True,
    )
    property_filter: bool = setting("enablePropertyFilter", False, "allow SQL92 filters")

    archive_required: bool = setting(
        "archive.requiredBeforeDelete",
        False,
        "keep messages, however old, until they are archived; a full disk comes first",
        live=True,
    )
    archive_group: str = setting(
        "archive.group", "cometmq-archive", "group whose offsets say what is archived", live=True
    )
    archive_topics: str = setting(
        "archive.topics",
        ".*",
        "topics that are archived, a pattern; one with `%` also means retries and dead letters",
        live=True,
    )

    store_replies: bool = setting(
        "storeReplyMessageEnable", True, "keep the answers of request–reply, too", live=True
    )

    idle_s: int = setting(
        "serverChannelMaxIdleTimeSeconds",
        120,
        "silence after which a connection is closed",
        unit="s",
    )
    client_expiry_ms: int = setting(
        "channelExpiredTimeout",
        120_000,
        "silence after which a client is forgotten",
        unit="ms",
        live=True,
    )
    tls_to_name_servers: bool = setting("useTLS", False, "speak TLS to NameServers")
    tls_mode: TlsMode = setting("tls.server.mode", TlsMode.PERMISSIVE, "whether TLS is spoken")
    tls_certificate: Path | None = setting("tls.server.certPath", None, "certificate chain, PEM")
    tls_key: Path | None = setting("tls.server.keyPath", None, "its private key, PEM")
    tls_key_password: str | None = setting(
        "tls.server.keyPassword", None, "password of that key", secret=True
    )

    def __post_init__(self) -> None:
        for key, name in (("brokerName", self.name), ("brokerClusterName", self.cluster)):
            try:
                check_topic(name)  # Both are topics, too.
            except ValueError as error:
                raise BadSetting(f"{key}: {error}") from None
        self._check_numbers()
        self._check_addresses()
        self._check_archive()
        self._check_replication()
        self.check_observed()
        if self.tls_mode is TlsMode.ENFORCING and not (self.tls_certificate and self.tls_key):
            raise BadSetting("tls.server.mode=enforcing needs tls.server.certPath and .keyPath")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise BadSetting("tls.server.certPath and tls.server.keyPath belong together")

    def _check_numbers(self) -> None:
        for key, (name, _) in declared(BrokerConfig).items():
            value = getattr(self, name)
            low, high = _RANGES.get(name, (0, INT_MAX))
            if type(value) is int and not low <= value <= high:
                raise BadSetting(f"{key}={value}: {low} to {high} is expected")

    def _check_raft(self) -> None:
        if self.role is not BrokerRole.ASYNC_MASTER:
            raise BadSetting(
                f"brokerRole={self.role.value}: the roles of a Raft group come by election; leave "
                "it out with enableDLegerCommitLog=true"
            )
        try:
            peers = Peers.parse(self.raft_peers)
        except ValueError as error:
            raise BadSetting(f"dLegerPeers: {error}") from None
        if self.raft_self not in peers.addresses:
            raise BadSetting(
                f"dLegerSelfId={self.raft_self}: it is not among dLegerPeers, which has "
                f"{', '.join(peers.addresses)}"
            )
        try:
            check_topic(self.raft_group or self.name)
        except ValueError as error:
            raise BadSetting(f"dLegerGroup: {error}") from None
        self._check_raft_tls()

    def _check_raft_tls(self) -> None:
        if self.raft_authority is None and self.tls_mode is TlsMode.ENFORCING:
            raise BadSetting(
                "tls.server.mode=enforcing: members of a Raft group would speak to one another in "
                "plain text; set raft.tls.trustCertPath, or tls.server.mode=permissive"
            )
        if self.raft_authority is not None and not (self.tls_certificate and self.tls_key):
            raise BadSetting("raft.tls.trustCertPath needs tls.server.certPath and .keyPath")

    def raft_tls(self) -> MutualTls | None:
        """What members speak to one another with; None for plain text."""
        if self.raft_authority is None or self.tls_certificate is None or self.tls_key is None:
            return None
        try:
            return mutual_tls(
                self.tls_certificate, self.tls_key, self.tls_key_password, self.raft_authority
            )
        except OSError as error:
            raise BadSetting(
                f"raft.tls.trustCertPath, tls.server.certPath, tls.server.keyPath: cannot use "
                f"{self.raft_authority}, {self.tls_certificate}, {self.tls_key}: {error}"
            ) from None

    def quorum(self) -> QuorumSettings:
        return QuorumSettings(
            group=self.raft_group or self.name,
            member=self.raft_self,
            peers=Peers.parse(self.raft_peers),
            joins=self.raft_joins,
            confirm_timeout_ms=self.slave_timeout_ms,
        )

    def _check_replication(self) -> None:
        if self.raft:
            self._check_raft()
            return
        if self.is_slave != (self.broker_id > 0):
            raise BadSetting(
                f"brokerRole={self.role.value}, brokerId={self.broker_id}: a master has the id 0, "
                "a slave one of its own from 1 on"
            )
        if 1 < self.total_replicas < self.in_sync_replicas:
            raise BadSetting(
                f"inSyncReplicas={self.in_sync_replicas}: there are only "
                f"totalReplicas={self.total_replicas}"
            )
        if self.is_slave and not self.ha_master and not self.name_servers:
            raise BadSetting(
                "brokerRole=SLAVE needs namesrvAddr, or haMasterAddress, to find its master"
            )

    def _check_addresses(self) -> None:
        try:
            for address in self.name_server_addresses():
                split_address(address)
        except ValueError as error:
            raise BadSetting(f"namesrvAddr: {error}") from None
        try:
            if self.ha_master:
                split_address(self.ha_master)
        except ValueError as error:
            raise BadSetting(f"haMasterAddress: {error}") from None
        for key, ip in (("brokerIP1", self.advertised_ip), ("brokerIP2", self.ha_ip)):
            try:
                ipaddress.ip_address(ip or "127.0.0.1")
            except ValueError as error:
                raise BadSetting(f"{key}: {error}") from None

    @property
    def is_slave(self) -> bool:
        return self.role is BrokerRole.SLAVE

    def pace(self) -> Pace:
        return Pace(
            heartbeat_ms=self.ha_heartbeat_ms,
            silence_ms=self.ha_silence_ms,
            batch_bytes=self.ha_batch_bytes,
        )

    def ack_policy(self) -> AckPolicy:
        return AckPolicy(
            waits=self.role is BrokerRole.SYNC_MASTER,
            in_sync_replicas=self.in_sync_replicas,
            min_in_sync_replicas=self.min_in_sync_replicas,
            adapts=self.auto_in_sync_replicas,
            refuses=self.acting_master,
            timeout_ms=self.slave_timeout_ms,
        )

    def _check_archive(self) -> None:
        try:
            re.compile(self.archive_topics)
        except re.error as error:
            raise BadSetting(f"archive.topics={self.archive_topics}: {error}") from None
        try:
            check_topic(RETRY_PREFIX + self.archive_group)  # As of every group.
        except ValueError as error:
            raise BadSetting(f"archive.group: {error}") from None
        if not self.archive_group:
            raise BadSetting("archive.group is empty: the group that the archive commits by")

    def name_server_addresses(self) -> list[str]:
        return [address.strip() for address in self.name_servers.split(";") if address.strip()]


def load(values: Mapping[str, Any]) -> tuple[BrokerConfig, StoreConfig, list[str]]:
    """Settings of a broker and its store out of keys, and the keys that have no effect here."""
    known = {**declared(BrokerConfig), **declared(StoreConfig)}
    without_effect = refuse_unknown(values, known, ROCKETMQ_KEYS)
    if "storePathRootDir" not in values:
        raise BadSetting("storePathRootDir is missing: the directory where messages are kept")
    config, store_config = build(BrokerConfig, values), build(StoreConfig, values)
    if config.raft and store_config.message_bytes_max > RAFT_MESSAGE_BYTES_MAX:
        raise BadSetting(
            f"maxMessageSize={store_config.message_bytes_max}: members of a Raft group take "
            f"{RAFT_MESSAGE_BYTES_MAX} at most"
        )
    return config, store_config, without_effect
