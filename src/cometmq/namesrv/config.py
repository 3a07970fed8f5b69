"""Every setting of a NameServer, under RocketMQ's own key."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cometmq.observed import NAMESRV_METRICS_PORT, Observed
from cometmq.ports import NAMESRV_PORT
from cometmq.settings import BadSetting, build, declared, refuse_unknown, setting
from cometmq.transport.tls import TlsMode

_WITHOUT_EFFECT = """
channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads
clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
clientPooledByteBufAllocatorEnable clientRequestThreadPoolNums
clientRequestThreadPoolQueueCapacity clientSocketRcvBufSize clientSocketSndBufSize
clientWorkerThreads clusterTest configStorePath connectTimeoutMillis defaultThreadPoolNums
defaultThreadPoolQueueCapacity disableCallbackExecutor disableNettyWorkerGroup
enableControllerInNamesrv enableReconnectForGoAway enableShutdownGracefully
isScanAvailableNameSrv maxReconnectIntervalTimeSeconds notifyMinBrokerIdChanged productEnvName
scanAvailableNameSrv serverAsyncSemaphoreValue serverCallbackExecutorThreads
serverNettyWorkerGroupEnable serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable
serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize
serverWorkerThreads shutdownWaitTimeSeconds socksProxyConfig unRegisterBrokerQueueCapacity
useEpollNativeSelector useTLS writeBufferHighWaterMark writeBufferLowWaterMark
"""
ROCKETMQ_KEYS = frozenset(_WITHOUT_EFFECT.split())
"""Keys of RocketMQ 5.5's namesrv.conf that have no effect here."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamesrvConfig(Observed):
    bind_address: str = setting("bindAddress", "127.0.0.1", "address to listen at")
    port: int = setting("listenPort", NAMESRV_PORT, "port to listen at; 0 takes a free one")
    home: Path | None = setting("rocketmqHome", None, "directory for kvConfig.json")
    kv_config_path: Path | None = setting(
        "kvConfigPath", None, "file of the key-value configuration, if not in rocketmqHome"
    )
    scan_interval_ms: int = setting(
        "scanNotActiveBrokerInterval",
        10_000,
        "time between two looks for dead brokers",
        unit="ms",
        live=True,
    )
    order_message_enable: bool = setting(
        "orderMessageEnable", False, "tell clients the order configuration of a topic", live=True
    )
    return_order_topics: bool = setting(
        "returnOrderTopicConfigToBroker", True, "tell brokers the order configurations", live=True
    )
    drop_missing_topics: bool = setting(
        "deleteTopicWithBrokerRegistration",
        False,
        "forget a broker's topics that its registration does not have",
        live=True,
    )
    support_acting_master: bool = setting(
        "supportActingMaster", False, "tell clients the first slave as master if none is", live=True
    )
    all_topics_listed: bool = setting(
        "enableAllTopicList", True, "answer who asks for all topics", live=True
    )
    topics_listed: bool = setting(
        "enableTopicList", True, "answer who asks for topics of a cluster or kind", live=True
    )
    wait_for_service: bool = setting(
        "needWaitForService", False, "tell no routes until brokers had time to register", live=True
    )
    wait_for_service_s: int = setting(
        "waitSecondsForService", 45, "how long that is, in seconds", unit="s", live=True
    )
    config_black_list: str = setting(
        "configBlackList",
        "configBlackList;configStorePath;kvConfigPath",
        "settings that nobody may change over the wire, `;` between them",
    )
    idle_s: int = setting(
        "serverChannelMaxIdleTimeSeconds",
        120,
        "silence after which a connection is closed",
        unit="s",
    )
    tls_mode: TlsMode = setting("tls.server.mode", TlsMode.PERMISSIVE, "whether TLS is spoken")
    tls_certificate: Path | None = setting("tls.server.certPath", None, "certificate chain, PEM")
    tls_key: Path | None = setting("tls.server.keyPath", None, "its private key, PEM")
    tls_key_password: str | None = setting(
        "tls.server.keyPassword", None, "password of that key", secret=True
    )

    metrics_port: int = setting(
        "metricsPromExporterPort", NAMESRV_METRICS_PORT, "its port; 0 takes a free one"
    )

    def __post_init__(self) -> None:
        self.check_observed()
        if not 0 <= self.port <= 65535:
            raise BadSetting(f"listenPort={self.port}: 0 to 65535 is expected")
        if self.scan_interval_ms < 1 or self.idle_s < 1:
            raise BadSetting(
                "scanNotActiveBrokerInterval and serverChannelMaxIdleTimeSeconds: at least 1"
            )
        if self.tls_mode is TlsMode.ENFORCING and not (self.tls_certificate and self.tls_key):
            raise BadSetting("tls.server.mode=enforcing needs tls.server.certPath and .keyPath")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise BadSetting("tls.server.certPath and tls.server.keyPath belong together")

    @property
    def kv_config_file(self) -> Path | None:
        """Where the key-value configuration is kept; None: in memory only."""
        if self.kv_config_path is not None:
            return self.kv_config_path
        return self.home / "kvConfig.json" if self.home is not None else None

    def black_list(self) -> frozenset[str]:
        fixed = {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}
        return frozenset(fixed | {key.strip() for key in self.config_black_list.split(";")})


def load(values: Mapping[str, Any]) -> tuple[NamesrvConfig, list[str]]:
    """Settings of a NameServer out of keys, and the keys that have no effect here."""
    without_effect = refuse_unknown(values, declared(NamesrvConfig), ROCKETMQ_KEYS)
    if str(values.get("enableControllerInNamesrv", "false")).lower() == "true":
        raise BadSetting("enableControllerInNamesrv=true: this version has no controller")
    return build(NamesrvConfig, values), without_effect
