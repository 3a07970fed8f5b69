"""Brokers that tests let register."""

from collections.abc import Sequence

from cometmq.protocol.data_version import DataVersion
from cometmq.protocol.registration import RegisteredTopics, RegisterFields, Registration
from cometmq.protocol.topic_config import TopicConfig

CLUSTER = "c1"


def broker(
    name: str = "a",
    address: str = "10.0.0.1:10911",
    broker_id: int = 0,
    *,
    cluster: str = CLUSTER,
    acting_master: bool | None = False,
    timeout_ms: int | None = None,
    ha: str = "10.0.0.1:10912",
) -> RegisterFields:
    return RegisterFields(
        broker_name=name,
        broker_addr=address,
        cluster_name=cluster,
        broker_id=broker_id,
        ha_server_addr=ha,
        enable_acting_master=acting_master,
        heartbeat_timeout_millis=timeout_ms,
    )


def topics(
    *names: str, version: int = 1, state: int = 0, filters: Sequence[str] | None = (), perm: int = 6
) -> Registration:
    table = {name: TopicConfig(name, 4, 4, perm) for name in names}
    return Registration(
        None if filters is None else list(filters),
        RegisteredTopics(table, DataVersion(state, 0, version)),
    )
