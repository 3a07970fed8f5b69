"""The command line: every command does and shows the same at CometMQ and at the real RocketMQ.

What there is to see is made by the commands themselves: a topic with six messages in two queues, a
group that has read all of them, and one that a Python consumer keeps online. The cluster is the
command's own, since it changes what others would see.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.program import WAIT_S, Program, next_line, running

from cometmq.client import blocking
from interop.mqadmin import eventually
from interop.systems import Cluster

TOPIC = "cli-orders"
GROUP = "cli-billing"
ONLINE = "cli-online"
ORDERS = [f"order {number} äöü" for number in range(6)]
READS: list[tuple[str, ...]] = [
    ("topic", "list"),
    ("topic", "list", "--all", "--long"),
    ("topic", "show", TOPIC),
    ("topic", "stats", TOPIC),
    ("group", "list"),
    ("group", "show", GROUP),
    ("group", "lag", GROUP),
    ("group", "members", ONLINE),
    ("offset", "show", GROUP),
    ("message", "key", TOPIC, "every"),
    ("message", "at", TOPIC, "0", "0"),
    ("message", "range", TOPIC, "--since", "1h"),
    ("broker", "list"),
    ("broker", "status", "broker-a"),
    ("broker", "config", "get", "broker-a", "brokerName"),
    ("cluster", "list"),
    ("dlq", "list"),
]


@pytest.fixture(scope="module")
def cometmq(admin_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    program = Program(tmp_path_factory.mktemp("cli-home"), admin_cluster.namesrv.address)
    program("topic", "create", TOPIC, "--queues", 2)
    lines = "".join(f"{order}\n" for order in ORDERS)
    program("send", TOPIC, "-", "-k", "every", "-t", "T", stdin=lines)
    how = ("--from", "first", "--max", len(ORDERS), "-o", "json")
    read = program("consume", TOPIC, "-g", GROUP, *how).values
    assert sorted(message["body"] for message in read) == ORDERS
    with blocking.PushConsumer(program.namesrv, group=ONLINE, topics=TOPIC, handler=lambda _: None):
        eventually(
            lambda: program("group", "lag", GROUP, "-o", "json").value["lag"] == 0,
            lambda: f"{GROUP} has not committed what it has read",
        )
        yield program


def shown(program: Program, *command: str) -> Any:
    """What programs see; people see no less."""
    text, value = program.both(*command)
    assert text.err == ""
    assert text.out.strip()
    return value


@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_every_read_shows_something(cometmq: Program, command: tuple[str, ...]) -> None:
    assert shown(cometmq, *command) is not None


def test_a_topic_is_told_alike(cometmq: Program) -> None:
    assert {"topic": TOPIC} in shown(cometmq, "topic", "list")
    (broker,) = shown(cometmq, "topic", "show", TOPIC)["brokers"]
    assert (broker["broker"], broker["read_queues"], broker["perm"]) == ("broker-a", 2, "rw")
    stats = shown(cometmq, "topic", "stats", TOPIC)
    assert (stats["messages"], len(stats["queues"])) == (6, 2)


def test_a_group_is_told_alike(cometmq: Program) -> None:
    row = next(row for row in shown(cometmq, "group", "list") if row["group"] == GROUP)
    assert (row["members"], row["lag"]) == (0, 0)
    assert TOPIC in row["topics"]
    members = shown(cometmq, "group", "members", ONLINE)
    assert len(members["members"]) == 1
    assert TOPIC in [one["topic"] for one in members["subscriptions"]]
    client_id = members["members"][0]["client_id"]
    doing = shown(cometmq, "group", "member", ONLINE, client_id)
    assert TOPIC in [queue["topic"] for queue in doing["queues"]]
    lag = shown(cometmq, "group", "lag", GROUP, "--topic", TOPIC)
    assert sum(queue["committed"] for queue in lag["queues"]) == 6


def test_messages_are_found_alike(cometmq: Program) -> None:
    found = shown(cometmq, "message", "key", TOPIC, "every")
    assert sorted(message["body"] for message in found) == ORDERS
    one = found[0]
    (by_id,) = shown(cometmq, "message", "show", one["message_id"], "--topic", TOPIC)
    (by_place,) = shown(cometmq, "message", "show", one["offset_id"])
    assert by_id["body"] == by_place["body"] == one["body"]
    at = shown(cometmq, "message", "at", TOPIC, str(one["queue"]), str(one["offset"]))
    assert at["message_id"] == one["message_id"]
    between = shown(cometmq, "message", "range", TOPIC, "--since", "1h")
    assert sorted(message["body"] for message in between) == ORDERS


def test_tail_follows_alike(cometmq: Program) -> None:
    cometmq("topic", "create", "cli-river", "--queues", 2)
    cometmq("send", "cli-river", "before")
    with running(cometmq.start("tail", "cli-river", "-f", "--last", 1, "--raw")) as following:
        assert next_line(following) == "before\n"
        for word in ("one", "two"):
            cometmq("send", "cli-river", word)
            assert next_line(following) == f"{word}\n"
        following.send_signal(signal.SIGINT)
        assert following.wait(WAIT_S) == 0
    assert [line.strip() for line in cometmq("tail", "cli-river", "--raw").out.splitlines()] == [
        "before", "one", "two",
    ]  # fmt: skip


def test_groups_are_moved_alike(cometmq: Program) -> None:
    cometmq("offset", "clone", GROUP, "cli-twin", TOPIC)
    offsets = shown(cometmq, "offset", "show", "cli-twin", TOPIC)
    assert sum(queue["committed"] for queue in offsets) == 6
    how = ("offset", "reset", "cli-twin", TOPIC)
    moved = cometmq(*how, "--to", "earliest", "-o", "json").value
    assert [queue["after"] for queue in moved["queues"]] == [0, 0]
    cometmq(*how, "--offset", 1, "--queue", "broker-a:1")
    cometmq(*how, "--to", "latest", "--dry-run")
    again = cometmq("consume", TOPIC, "-g", "cli-twin", "--max", 5, "-o", "json").values
    assert len(again) == 5


def test_topics_and_groups_are_changed_alike(cometmq: Program) -> None:
    cometmq("topic", "create", "cli-brief", "--queues", 3)
    cometmq("topic", "update", "cli-brief", "--write-queues", 1)
    cometmq("topic", "perm", "cli-brief", "r")

    def broker() -> Any:
        return cometmq("topic", "show", "cli-brief", "-o", "json").value["brokers"][0]

    eventually(lambda: broker()["perm"] == "r", lambda: str(broker()))
    assert (broker()["read_queues"], broker()["write_queues"]) == (3, 1)
    cometmq("topic", "delete", "cli-brief", "--yes")
    assert {"topic": "cli-brief"} not in shown(cometmq, "topic", "list")
    cometmq("group", "create", "cli-short", "--retry-max", 2)
    shown_group = shown(cometmq, "group", "show", "cli-short")
    assert shown_group["settings"][0]["retry_max"] == 2
    cometmq("group", "delete", "cli-short", "--yes")
    assert "cli-short" not in [row["group"] for row in shown(cometmq, "group", "list")]


def test_bench_measures_alike(cometmq: Program) -> None:
    told = cometmq("bench", "--messages", 200, "--queues", 2, "-o", "json").value
    assert told["send"]["messages"] == told["consume"]["messages"] == 200
    assert not [row for row in shown(cometmq, "topic", "list") if "BENCH" in row["topic"]]


def test_doctor_finds_the_cluster_well(cometmq: Program) -> None:
    asked = ("--topic", TOPIC, "--group", ONLINE, "--disk-percent", "100")
    findings = {one["what"]: one for one in shown(cometmq, "doctor", *asked)}
    assert findings["broker broker-a"]["level"] == "ok"
    assert findings["clock of broker-a"]["found"] == "agrees with the one here"
    assert findings[f"group {ONLINE}"]["found"].startswith("1 members online")
    assert re.match("V5_", findings["versions"]["found"])


def test_mistakes_are_told_alike(cometmq: Program) -> None:
    assert "`cometmq topic list`" in cometmq.fails("topic", "show", "cli-none", code=3)
    assert "`cometmq group list`" in cometmq.fails("group", "show", "cli-none", code=3)
    assert "no member" in cometmq.fails("group", "members", GROUP, code=3)
    assert "no message" in cometmq.fails("message", "show", "0" * 32, "--topic", TOPIC, code=3)
    told = cometmq.fails("topic", "create", TOPIC, "--queues", 9, code=2)
    assert told.endswith("`cometmq topic update` changes it")
