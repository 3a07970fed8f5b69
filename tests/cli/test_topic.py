"""`cometmq topic` and `cometmq cluster` against a real broker."""

from cometmq.client import Message, blocking
from cometmq.testing import BlockingEmbeddedBroker

from .program import Program


def test_a_topic_is_created_listed_shown_changed_and_deleted(
    cometmq: Program, admin: blocking.Admin
) -> None:
    assert cometmq("topic", "create", "life", "--queues", 3).out == "topic life: created\n"
    text, names = cometmq.both("topic", "list")
    assert ["life"] in text.rows
    assert text.rows[0] == ["TOPIC"]
    assert {"topic": "life"} in names
    text, shown = cometmq.both("topic", "show", "life")
    assert shown["brokers"][0]["read_queues"] == shown["brokers"][0]["write_queues"] == 3
    assert shown["brokers"][0]["perm"] == "rw"
    assert "DefaultCluster" in text.out

    changed = cometmq("topic", "update", "life", "--write-queues", 2, "-o", "json").value
    assert changed == {"topic": "life", "result": "changed"}
    config = admin.topics.config("life")["broker-a"]
    assert (config.read_queue_nums, config.write_queue_nums) == (3, 2)

    assert cometmq("topic", "perm", "life", "r").out == "topic life: permission r\n"
    assert admin.topics.config("life")["broker-a"].perm == 4

    text = cometmq("topic", "delete", "life", "--yes")
    assert text.out == "topic life: deleted\n"
    assert "life" not in admin.topics.names()


def test_what_is_there_is_left_as_it_is(cometmq: Program) -> None:
    cometmq("topic", "create", "again", "--queues", 2, "--perm", "rw")
    again = cometmq("topic", "create", "again", "--queues", 2, "-o", "json")
    assert again.value == {"topic": "again", "result": "is there already"}
    told = cometmq.fails("topic", "create", "again", "--queues", 5, code=2)
    assert told == (
        "topic again is there already, with 2 queues to read, 2 to write and permission rw at "
        "broker-a; `cometmq topic update` changes it"
    )


def test_a_topic_has_types_and_attributes(cometmq: Program, admin: blocking.Admin) -> None:
    cometmq("topic", "create", "in-order", "--queues", 1, "--ordered", "--type", "FIFO")
    assert admin.topics.config("in-order")["broker-a"].attributes == {"message.type": "FIFO"}
    assert admin.topics.order("in-order") == {"broker-a": 1}
    text, shown = cometmq.both("topic", "route", "in-order")
    assert shown["brokers"][0]["ordered"]
    assert "message.type=FIFO" in text.out


def test_stats_tell_what_every_queue_holds(
    cometmq: Program, cluster: BlockingEmbeddedBroker, producer: blocking.Producer
) -> None:
    cluster.create_topic("counted", 2)
    for number in range(5):
        producer.send(Message("counted", b"%d" % number))
    text, stats = cometmq.both("topic", "stats", "counted")
    assert sorted(queue["messages"] for queue in stats["queues"]) == [2, 3]
    assert stats["messages"] == 5
    assert text.rows[0] == [
        "BROKER", "QUEUE", "MIN OFFSET", "MAX OFFSET", "MESSAGES", "LAST MESSAGE",
    ]  # fmt: skip
    assert ["messages", "5"] in text.rows
    text, listed = cometmq.both("topic", "list", "--long")
    row = next(row for row in listed if row["topic"] == "counted")
    assert (row["messages"], row["read_queues"], row["perm"]) == (5, 2, "rw")
    assert ["counted", "broker-a", "2", "2", "rw", "5"] in [line[:6] for line in text.rows]


def test_the_systems_own_topics_are_shown_when_asked_for(cometmq: Program) -> None:
    few = cometmq("topic", "list", "-o", "json").value
    everything = cometmq("topic", "list", "--all", "-o", "json").value
    assert {"topic": "TBW102"} in everything
    assert {"topic": "TBW102"} not in few


def test_mistakes_are_told_with_what_to_do(cometmq: Program, admin: blocking.Admin) -> None:
    told = cometmq.fails("topic", "show", "nowhere", code=3)
    assert "nowhere" in told
    assert told.endswith("`cometmq topic list` shows those that are there")
    assert "nowhere" in cometmq.fails("topic", "stats", "nowhere", code=3)
    assert "nowhere" in cometmq.fails("topic", "delete", "nowhere", "--yes", code=3)
    assert "1 to 65536" in cometmq.fails("topic", "create", "many", "--queues", 70000, code=2)
    assert "topic" in cometmq.fails("topic", "create", "no/name", code=2)
    assert "nothing to change" in cometmq.fails("topic", "update", "any", code=2)
    told = cometmq.fails("topic", "create", "elsewhere", "--broker", "broker-z", code=2)
    assert told.startswith("no such broker: broker-z; there are: broker-a (")
    admin.topics.create("precious")
    told = cometmq.fails("topic", "delete", "precious", code=2)
    assert told == "This deletes topic precious with 0 messages. Say so with --yes"
    assert "precious" in admin.topics.names()


def test_clusters_are_listed(cometmq: Program) -> None:
    text, clusters = cometmq.both("cluster", "list")
    assert [(one["cluster"], one["brokers"], one["masters"]) for one in clusters] == [
        ("DefaultCluster", ["broker-a"], 1)
    ]
    assert text.rows[1][:5] == ["DefaultCluster", "broker-a", "1", "0", "0"]
