"""`cometmq doctor`: a cluster that is well, and what goes wrong with others."""

from pathlib import Path
from typing import Any

import pytest

from cometmq.cli import judgement
from cometmq.cli.judgement import OK, PROBLEM, WARNING
from cometmq.client import Message, blocking
from cometmq.protocol.routes import BrokerData, QueueData, TopicRoute
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .program import Program


def found(findings: list[dict[str, Any]], what: str) -> dict[str, Any]:
    (finding,) = [one for one in findings if one["what"] == what]
    return finding


def test_a_cluster_that_is_well(cometmq: Program, admin: blocking.Admin) -> None:
    admin.topics.create("d-well", queues=1)
    text, findings = cometmq.both("doctor", "--topic", "d-well", "--disk-percent", 100)
    assert {finding["level"] for finding in findings} <= {OK, WARNING}
    assert found(findings, "broker broker-a")["level"] == OK
    assert found(findings, "clock of broker-a")["found"] == "agrees with the one here"
    assert found(findings, "versions")["found"] == "V5_5_0"
    assert found(findings, "topics")["found"] == "1 of 1 can be read and written everywhere"
    assert "ok       broker broker-a: answers at 127.0.0.1:" in text.out
    assert text.out.splitlines()[-1].startswith("0 problems, ")


def test_topics_and_groups_are_looked_at(
    cometmq: Program,
    cluster: BlockingEmbeddedBroker,
    admin: blocking.Admin,
    producer: blocking.Producer,
) -> None:
    admin.topics.create("d-closed", queues=1)
    producer.send(Message("d-closed", b"waits"))
    admin.topics.update("d-closed", permission=4)
    admin.groups.create("d-idle")
    queues = admin.offsets.search_topic("d-closed", "latest")
    admin.offsets.commit("d-idle", dict.fromkeys(queues, 0))
    asked = ("--topic", "d-closed", "--topic", "d-none", "--group", "d-idle", "--group", "d-gone")
    text, findings = cometmq.both("doctor", *asked, "--disk-percent", 100, code=1)
    closed = found(findings, "topic d-closed")
    assert (closed["level"], closed["found"]) == (PROBLEM, "cannot be written at broker-a")
    assert closed["advice"].startswith("`cometmq topic perm d-closed rw` allows both")
    assert found(findings, "topic d-none")["found"] == "no NameServer knows it"
    assert "topics" not in {finding["what"] for finding in findings}, "none of them is well"
    idle = found(findings, "group d-idle")
    assert (idle["level"], idle["found"]) == (WARNING, "0 members online, 1 messages behind")
    assert found(findings, "group d-gone")["level"] == PROBLEM
    assert "PROBLEM  topic d-closed: cannot be written at broker-a\n         → " in text.out


def test_an_address_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    with EmbeddedBroker(settings={"brokerIP1": "127.0.0.2"}) as broker:
        findings = Program(tmp_path, broker.namesrv)("doctor", "-o", "json", code=1).value
    away = found(findings, "broker broker-a")
    assert away["level"] == PROBLEM
    assert "does not answer at 127.0.0.2:" in away["found"]
    assert "set brokerIP1" in away["advice"]


def test_a_clock_that_is_wrong_is_found(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        broker.clock.advance(3_600_000)
        findings = Program(tmp_path, broker.namesrv)("doctor", "-o", "json", code=1).value
    clock = found(findings, "clock of broker-a")
    assert clock["level"] == PROBLEM
    assert clock["found"] in {f"{3600 + s} s ahead of the one here" for s in (-1, 0, 1)}
    assert "NTP" in clock["advice"]


def test_disks_that_fill_up_are_found(cometmq: Program, admin: blocking.Admin) -> None:
    (cometmq.home / "data").mkdir()
    admin.topics.create("d-any", queues=1)
    how = ("--data-dir", "data", "--disk-percent", 0.001, "--topic", "d-any")
    findings = cometmq("doctor", *how, "-o", "json").value
    for what in ("disk of data", "disk of broker-a"):
        assert found(findings, what)["level"] == WARNING
        assert "fileReservedTime" in found(findings, what)["advice"]


def test_name_servers_that_are_away_or_alone_are_found(lonely: Program) -> None:
    findings = lonely("doctor", "-n", "127.0.0.1:1", "-o", "json", code=1).value
    assert findings[-1]["what"] == "NameServer 127.0.0.1:1"
    assert "`cometmq standalone`" in findings[-1]["advice"]


# -- judgement -----------------------------------------------------------------------------------


def test_an_address_of_this_machine_alone_is_a_problem_for_others() -> None:
    assert judgement.advertised("a", "127.0.0.1:10911", "127.0.0.1:9876") is None
    assert judgement.advertised("a", "10.0.0.7:10911", "10.0.0.1:9876") is None
    finding = judgement.advertised("a", "127.0.0.1:10911", "10.0.0.1:9876")
    assert finding is not None
    assert finding.level == PROBLEM
    assert "brokerIP1" in finding.advice
    assert judgement.advertised("a", "localhost:1", "mq.example:9876") is not None
    assert judgement.advertised("a", "[::1]:1", "mq.example:9876") is not None


def test_name_servers_should_know_the_same_brokers() -> None:
    assert judgement.same_brokers({"n1": {"a"}}) is None
    finding = judgement.same_brokers({"n1": {"a", "b"}, "n2": {"a"}})
    assert finding is not None
    assert (finding.level, finding.found) == (PROBLEM, "n2 lacks b")
    finding = judgement.same_brokers({"n1": {"a"}, "n2": {"a"}})
    assert finding is not None
    assert finding.level == OK


def test_a_broker_needs_a_master() -> None:
    assert judgement.master_of("a", {0, 1}) is None
    finding = judgement.master_of("a", {1})
    assert finding is not None
    assert finding.level == PROBLEM
    route = TopicRoute(
        broker_datas=[BrokerData({1: "h:1"}, "a", "c")], queue_datas=[QueueData("a", 6, 4, 0, 4)]
    )
    assert [one.found for one in judgement.topic_route("t", route)] == ["no master has it"]


@pytest.mark.parametrize(
    ("skew_s", "level"), [(0, OK), (4, OK), (-6, WARNING), (30, WARNING), (-61, PROBLEM)]
)
def test_clocks_may_differ_a_little(skew_s: float, level: str) -> None:
    assert judgement.clock("a", 1000.0 + skew_s, 1000.0).level == level


def test_a_brokers_clock_is_told_by_its_uptime() -> None:
    runtime = {"bootTimestamp": "1000000", "runtime": "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"}
    assert judgement.broker_clock_s(runtime) == 1000 + 86400 + 7200 + 180 + 4 + 0.5
    assert judgement.broker_clock_s({"bootTimestamp": "1000000"}) is None


def test_versions_disks_files_and_groups_are_judged() -> None:
    assert judgement.versions({"a": "V5", "b": "V5"}).level == OK
    assert judgement.versions({"a": "V5", "b": "V4"}).found == "a: V5, b: V4"
    assert judgement.disk("d", 0.5, 0.75).level == OK
    assert judgement.disk("d", 0.8, 0.75).level == WARNING
    assert judgement.disk("d", 0.95, 0.75).level == PROBLEM
    assert judgement.file_limit(1024, 524288).level == OK
    assert "LimitNOFILE" in judgement.file_limit(1024, 1024).advice
    assert judgement.group_members("g", 2, 9, []).level == OK
    assert judgement.group_members("g", 2, 9, ["T"]).level == PROBLEM
