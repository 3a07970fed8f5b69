"""`cometmq group` and `cometmq offset` against a real broker and real members."""

import datetime as dt
import re

import pytest

from cometmq.client import Message, MessageQueue, blocking
from cometmq.testing import BlockingEmbeddedBroker

from .program import Program


@pytest.fixture(scope="module")
def orders(cluster: BlockingEmbeddedBroker, producer: blocking.Producer) -> list[MessageQueue]:
    """A topic with three messages in each of its two queues."""
    cluster.create_topic("g-orders", 2)
    queues = [MessageQueue("g-orders", "broker-a", number) for number in range(2)]
    for number in range(6):
        producer.send(Message("g-orders", b"order %d" % number), queue=queues[number % 2])
    return queues


@pytest.fixture(scope="module")
def billing(
    admin: blocking.Admin, orders: list[MessageQueue]
) -> tuple[str, dict[MessageQueue, int]]:
    """A group that has consumed four of the six."""
    offsets = {orders[0]: 3, orders[1]: 1}
    admin.groups.create("billing")
    admin.offsets.commit("billing", offsets)
    return "billing", offsets


def test_a_group_is_created_changed_and_deleted(cometmq: Program, admin: blocking.Admin) -> None:
    assert cometmq("group", "create", "short-lived", "--retry-max", 3).out == (
        "group short-lived: created\n"
    )
    assert admin.groups.config("short-lived")["broker-a"].retry_max_times == 3
    again = cometmq("group", "create", "short-lived", "-o", "json").value
    assert again == {"group": "short-lived", "result": "is there already"}
    cometmq("group", "create", "short-lived", "--set", "consume_enable=false")
    config = admin.groups.config("short-lived")["broker-a"]
    assert (config.retry_max_times, config.consume_enable) == (3, False)
    assert "Say so with --yes" in cometmq.fails("group", "delete", "short-lived", code=2)
    assert cometmq("group", "delete", "short-lived", "--yes").out == "group short-lived: deleted\n"
    assert "short-lived" not in admin.groups.names()


def test_groups_are_listed_with_their_lag(
    cometmq: Program, billing: tuple[str, dict[MessageQueue, int]]
) -> None:
    text, groups = cometmq.both("group", "list")
    row = next(group for group in groups if group["group"] == "billing")
    assert (row["members"], row["topics"], row["lag"]) == (0, ["g-orders"], 2)
    assert ["billing", "0", "-", "g-orders", "2", "0.0"] in text.rows


def test_a_group_is_shown_with_its_members(
    cometmq: Program, cluster: BlockingEmbeddedBroker, orders: list[MessageQueue]
) -> None:
    with blocking.PushConsumer(
        cluster.namesrv, group="online", topics={"g-orders": "A || B"}, handler=lambda _: None
    ) as member:
        text, shown = cometmq.both("group", "show", "online")
        assert [one["client_id"] for one in shown["members"]] == [member.client_id]
        assert {"topic": "g-orders", "kind": "TAG", "wanted": "A || B"} in shown["subscriptions"]
        assert shown["settings"][0]["retry_max"] == 16
        assert "members (clustering, consume_passively)" in text.out
        text, members = cometmq.both("group", "members", "online")
        assert members["members"][0]["language"] == "PYTHON"
        assert member.client_id in text.out
        text, doing = cometmq.both("group", "member", "online", member.client_id)
        assert {queue["topic"] for queue in doing["queues"]} >= {"g-orders"}
        assert "COMMIT OFFSET" in text.out
    assert "group online has no member" in cometmq.fails("group", "members", "online", code=3)
    assert "no member is online" in cometmq("group", "show", "online").out


def test_lag_is_told_by_queue(
    cometmq: Program, billing: tuple[str, dict[MessageQueue, int]]
) -> None:
    text, lag = cometmq.both("group", "lag", "billing")
    assert [(queue["committed"], queue["end"], queue["lag"]) for queue in lag["queues"]] == [
        (3, 3, 0),
        (1, 3, 2),
    ]
    assert lag["lag"] == 2
    assert ["g-orders", "broker-a", "1", "1", "3", "2"] in [row[:6] for row in text.rows]
    text, offsets = cometmq.both("offset", "show", "billing", "g-orders")
    assert [row["committed"] for row in offsets] == [3, 1]
    assert text.rows[0] == ["TOPIC", "BROKER", "QUEUE", "COMMITTED", "END", "LAG"]


def test_a_group_is_moved_by_name_number_and_time(
    cometmq: Program, admin: blocking.Admin, orders: list[MessageQueue]
) -> None:
    admin.groups.create("moved")
    admin.offsets.commit("moved", dict.fromkeys(orders, 2))

    def committed() -> list[int]:
        return [admin.offsets.committed("moved", "g-orders")[queue] for queue in orders]

    planned = cometmq("offset", "reset", "moved", "g-orders", "--to", "latest", "--dry-run")
    assert "would go on" in planned.out
    assert committed() == [2, 2]
    text = cometmq("offset", "reset", "moved", "g-orders", "--to", "latest")
    assert text.rows[2:] == [["broker-a", "0", "2", "3"], ["broker-a", "1", "2", "3"]]
    assert committed() == [3, 3]
    told = cometmq("group", "reset", "moved", "g-orders", "--to", "earliest", "-o", "json").value
    assert [queue["after"] for queue in told["queues"]] == [0, 0]
    assert committed() == [0, 0]
    cometmq("offset", "reset", "moved", "g-orders", "--offset", 2, "--queue", "broker-a:1")
    assert committed() == [0, 2]
    cometmq("offset", "reset", "moved", "g-orders", "--offset", 1)
    assert committed() == [1, 1]
    tomorrow = (dt.datetime.now(dt.UTC) + dt.timedelta(days=1)).isoformat()
    cometmq("offset", "reset", "moved", "g-orders", "--to", tomorrow)
    assert committed() == [3, 3]
    cometmq("offset", "reset", "moved", "g-orders", "--to", "7d")
    assert committed() == [0, 0]


def test_offsets_are_cloned(
    cometmq: Program, admin: blocking.Admin, billing: tuple[str, dict[MessageQueue, int]]
) -> None:
    text, cloned = cometmq.both("offset", "clone", "billing", "twin", "g-orders")
    assert [queue["after"] for queue in cloned["queues"]] == [3, 1]
    assert admin.offsets.committed("twin", "g-orders") == billing[1]
    assert "group twin goes on in g-orders at" in text.out


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("group", "show", "nobody"), 3, "no broker has group nobody.*`cometmq group list`"),
        (("group", "lag", "nobody"), 3, "no broker has group nobody"),
        (("group", "delete", "nobody", "--yes"), 3, "no broker has group nobody"),
        (("group", "create", "odd", "--set", "colour=red"), 2, "true, false or a whole number"),
        (("group", "create", "odd", "--set", "colour=1"), 2, "no setting of a group: colour"),
        (("offset", "show", "nobody"), 3, "no broker has group nobody"),
        (("offset", "clone", "nobody", "x", "g-orders"), 3, "group nobody has no offsets"),
        (
            ("offset", "reset", "moved", "g-orders", "--offset", "99", "--queue", "broker-a:1"),
            2,
            "offset 99 is not in 0 to 3 of queue 1 of g-orders at broker-a",
        ),
        (
            ("offset", "reset", "moved", "g-orders", "--offset", "1", "--queue", "broker-a:7"),
            3,
            "has no queue broker-a:7; see `cometmq topic stats g-orders`",
        ),
        (
            ("offset", "reset", "moved", "g-orders", "--to", "latest", "--queue", "broker-a:1"),
            2,
            "--queue goes with --offset",
        ),
    ],
)
def test_mistakes_are_told_with_what_to_do(
    cometmq: Program,
    orders: list[MessageQueue],
    arguments: tuple[str, ...],
    code: int,
    told: str,
) -> None:
    assert re.search(told, cometmq.fails(*arguments, code=code))
