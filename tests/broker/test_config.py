"""Settings of a broker, under RocketMQ's keys."""

from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.config import BrokerConfig, load
from cometmq.settings import BadSetting, as_text, declared, read_file
from cometmq.store.config import FlushMode, StoreConfig
from cometmq.transport.tls import TlsMode

ROCKETMQS_OWN = """
# as in the distribution's conf/broker.conf
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
"""


def loaded(**values: Any) -> tuple[BrokerConfig, StoreConfig]:
    config, store_config, _ = load({"storePathRootDir": "store", **values})
    return config, store_config


def test_a_file_of_rocketmqs_is_understood(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        ROCKETMQS_OWN + "storePathRootDir=/data\nsendMessageThreadPoolNums=64\nlistenPort=20911\n"
        "flushDiskType=SYNC_FLUSH\nautoCreateTopicEnable=false\ntls.server.mode=disabled\n"
    )
    config, store_config, without_effect = load(read_file(file))
    assert (config.name, config.port, config.auto_create_topics) == ("broker-a", 20911, False)
    assert config.tls_mode is TlsMode.DISABLED
    assert (store_config.root, store_config.reserved_hours) == (Path("/data"), 48)
    assert store_config.flush is FlushMode.SYNC
    assert without_effect == ["sendMessageThreadPoolNums"]


def test_a_file_in_toml_says_the_same(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(
        'brokerName = "b-1"\nlistenPort = 20911\nstorePathRootDir = "/data"\n'
        'tls.server.mode = "disabled"\n[archive]\nrequiredBeforeDelete = true\n'
    )
    config, store_config, _ = load(read_file(file))
    assert (config.tls_mode, config.archive_required) == (TlsMode.DISABLED, True)
    assert (config.name, config.port, store_config.root) == ("b-1", 20911, Path("/data"))


RAFT = {"enableDLegerCommitLog": "true"}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"brokerNam": "x"}, "unknown setting 'brokerNam'; did you mean brokerName?"),
        ({"flushDiskTyp": "x"}, "unknown setting 'flushDiskTyp'; did you mean flushDiskType?"),
        ({"entirelyMadeUp1": "x"}, "unknown setting 'entirelyMadeUp1'$"),
        ({"brokerRole": "SYNC_MASTER", "brokerId": "2"}, "brokerId=2: a master has the id 0"),
        ({"brokerRole": "SLAVE"}, "brokerRole=SLAVE, brokerId=0: a master has the id 0"),
        ({"brokerRole": "SLAVE", "brokerId": "1"}, "brokerRole=SLAVE needs namesrvAddr, or haMas"),
        ({"brokerId": "1"}, "brokerRole=ASYNC_MASTER, brokerId=1: a master has the id 0"),
        ({"haMasterAddress": "here"}, "haMasterAddress: 'here' is not an address"),
        ({"brokerIP2": "here"}, "brokerIP2: 'here' does not appear to be"),
        ({"inSyncReplicas": "0"}, "inSyncReplicas=0: 1 to 65 is expected"),
        ({"inSyncReplicas": "3", "totalReplicas": "2"}, "there are only totalReplicas=2"),
        ({"haTransferBatchSize": str(1 << 23)}, "haTransferBatchSize=8388608: 1024 to 4194292"),
        (RAFT, "dLegerPeers: it is empty; n0-host:port"),
        ({**RAFT, "dLegerPeers": "n0"}, "'n0' is not a member: n0-host:port is"),
        ({**RAFT, "dLegerPeers": "x-h:1"}, "'x' is not an id: a letter with a number"),
        ({**RAFT, "dLegerPeers": "n0-h:x"}, "dLegerPeers: 'h:x' is not an address"),
        ({**RAFT, "dLegerPeers": "n0-h:1;n0-h:2"}, "n0 stands there twice"),
        ({**RAFT, "dLegerPeers": "n0-h:1;n1-h:1"}, "two members have the address h:1"),
        (
            {**RAFT, "dLegerPeers": "n0-h:1", "dLegerSelfId": "n7"},
            "dLegerSelfId=n7: it is not among dLegerPeers, which has n0",
        ),
        ({**RAFT, "brokerRole": "SLAVE"}, "the roles of a Raft group come by"),
        ({"brokerName": "a b"}, "brokerName: topic 'a b'"),
        ({"brokerClusterName": ""}, "brokerClusterName: "),
        ({"listenPort": "65536"}, "listenPort=65536: 0 to 65535 is expected"),
        ({"listenPort": "-1"}, "listenPort=-1: 0 to 65535 is expected"),
        ({"brokerPermission": "8"}, "brokerPermission=8: 0 to 7 is expected"),
        ({"defaultTopicQueueNums": "0"}, "defaultTopicQueueNums=0: 1 to 65536 is expected"),
        ({"registerNameServerPeriod": "0"}, "registerNameServerPeriod=0: 1 to"),
        ({"flushConsumerOffsetInterval": "0"}, "flushConsumerOffsetInterval=0: 1 to"),
        ({"flushDelayOffsetInterval": "-5"}, "flushDelayOffsetInterval=-5: 1 to"),
        ({"pullThreadPoolQueueCapacity": "-1"}, "pullThreadPoolQueueCapacity=-1: 0 to"),
        ({"namesrvAddr": "127.0.0.1"}, "namesrvAddr: '127.0.0.1' is not an address"),
        ({"namesrvAddr": "127.0.0.1:9876;x:y"}, "namesrvAddr: 'x:y' is not an address"),
        ({"brokerIP1": "my-host"}, "brokerIP1: 'my-host' does not appear to be an IPv4"),
        ({"tls.server.mode": "enforcing"}, "tls.server.mode=enforcing needs"),
        ({"tls.server.certPath": "x.pem"}, "certPath and tls.server.keyPath belong together"),
        ({"flushDiskType": "SOMETIMES"}, "flushDiskType=SOMETIMES: one of ASYNC_FLUSH, SYNC_FLUSH"),
        ({"archive.group": ""}, "archive.group is empty"),
        ({"archive.group": "a b"}, "archive.group: topic"),
        ({"archive.topics": "("}, "archive.topics=\\(: "),
        ({"archive.requiredBeforeDelet": "true"}, "did you mean archive.requiredBeforeDelete"),
        ({"deleteWhen": "25"}, "deleteWhen=25: hours from 00 to 23"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_is_named(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSetting, match=reason):
        loaded(**values)


def test_the_directory_must_be_said() -> None:
    with pytest.raises(BadSetting, match="storePathRootDir is missing"):
        load({})


def test_name_servers_are_separated_by_semicolons() -> None:
    config, _ = loaded(namesrvAddr=" 127.0.0.1:9876 ; [::1]:9877;;")
    assert config.name_server_addresses() == ["127.0.0.1:9876", "[::1]:9877"]
    assert loaded()[0].name_server_addresses() == []


def test_every_default_can_be_written_down_and_read_again() -> None:
    config, store_config = loaded()
    again = load({**as_text(store_config), **as_text(config)})
    assert (again[0], again[1]) == (config, store_config)


def test_no_key_stands_for_two_settings() -> None:
    assert not declared(BrokerConfig).keys() & declared(StoreConfig).keys()
