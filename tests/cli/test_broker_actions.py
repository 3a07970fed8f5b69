"""`cometmq broker ACTION` against a real broker; running one is in test_servers."""

from pathlib import Path

from cometmq.client import blocking
from cometmq.testing import BlockingEmbeddedBroker

from .program import Program


def test_brokers_are_listed(cometmq: Program, cluster: BlockingEmbeddedBroker) -> None:
    text, (broker,) = cometmq.both("broker", "list")
    assert (broker["broker"], broker["id"], broker["address"], broker["state"]) == (
        "broker-a", 0, cluster.address, "master",
    )  # fmt: skip
    assert 0 < broker["disk_ratio"] <= 1
    assert text.rows[1][:5] == ["DefaultCluster", "broker-a", "0", cluster.address, "master"]


def test_a_broker_tells_of_itself(cometmq: Program, cluster: BlockingEmbeddedBroker) -> None:
    text, status = cometmq.both("broker", "status", "broker-a")
    assert status["runtime"]["brokerActive"] == "true"
    assert status["boot_at"] > 1_700_000_000_000
    assert ["brokerActive", "true"] in text.rows
    by_address = cometmq("broker", "status", cluster.address, "-o", "json").value
    assert by_address["boot_at"] == status["boot_at"]


def test_settings_are_shown_and_changed(cometmq: Program, admin: blocking.Admin) -> None:
    text, shown = cometmq.both("broker", "config", "get", "broker-a", "brokerName", "brokerId")
    assert shown == {"brokerName": "broker-a", "brokerId": "0"}
    assert text.rows == [["KEY", "VALUE"], ["brokerName", "broker-a"], ["brokerId", "0"]]
    assert len(cometmq("broker", "config", "get", "broker-a", "-o", "json").value) > 30
    before = admin.brokers.config()["broker-a"]["fileReservedTime"]
    changed = cometmq("broker", "config", "set", "fileReservedTime=71", "--broker", "broker-a")
    assert changed.out == "changed: fileReservedTime=71\n"
    assert admin.brokers.config()["broker-a"]["fileReservedTime"] == "71"
    how = ("broker", "config", "set", f"fileReservedTime={before}", "-o", "json")
    assert cometmq(*how).value == {"changed": {"fileReservedTime": before}}


def test_producers_are_sent_away_and_back(cometmq: Program, admin: blocking.Admin) -> None:
    admin.topics.create("b-drained", queues=1)

    def perm() -> int:
        return admin.topics.route("b-drained").queue_datas[0].perm

    text, (told,) = cometmq.both("broker", "writes", "broker-a", "forbid")
    assert told["topics"] > 0
    assert text.rows[0] == ["NAMESRV", "TOPICS"]
    assert perm() == 4
    cometmq("broker", "writes", "broker-a", "allow")
    assert perm() == 6


def test_mistakes_are_told_with_what_to_do(cometmq: Program, tmp_path: Path) -> None:
    told = cometmq.fails("broker", "status", "broker-z", code=2)
    assert told.startswith("no such broker: broker-z; there are: broker-a (")
    told = cometmq.fails("broker", "config", "get", "broker-a", "colour", code=3)
    assert told.endswith("see them all with `cometmq broker config get broker-a`")
    told = cometmq.fails("broker", "config", "set", "storePathRootDir=/elsewhere", code=1)
    assert "storePathRootDir" in told
    told = cometmq.fails("broker", "writes", "broker-z", "forbid", code=3)
    assert told == "there is no broker broker-z; there are: broker-a"
    told = cometmq.fails("broker", "-n", cometmq.namesrv, "list", code=2)
    assert told == "-n stands behind the action, as in `cometmq broker list -n HOST:PORT`"
