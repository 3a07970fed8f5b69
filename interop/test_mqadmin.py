"""mqadmin 5.5.0: every command of what CometMQ has shows the right content, the others are refused.

The commands look at a small shop: a topic with twelve messages, its producer, a group that is
online and has not finished the last two, a group that went offline before them. Tests that change
things do so to topics and groups of their own. It has a cluster to itself, since commands such as
`wipeWritePerm` change it for everybody, and since the real broker deletes no topic without timers.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from interop import mqadmin_table, systems
from interop.mqadmin import Message, MqAdmin, Place, Printed, eventually
from interop.systems import Cluster, System

proves = pytest.mark.mqadmin

CLUSTER = "interop"
BROKER = "broker-a"
TOPIC = "Shop"
PRODUCER = "shop_producer"
ONLINE = "shop_billing"
OFFLINE = "shop_archive"
ORDERS = [
    Message(i % 4, f"order-{i} äöü", f"order-{i} every", "Odd" if i % 2 else "Even")
    for i in range(10)
]
HELD = [Message(queue, f"held-{queue}", f"held-{queue} every", "Held") for queue in (0, 1)]
MESSAGES = [*ORDERS, *HELD]
# Of every queue: what is consumed, and where it ends with the messages that are held.
DONE = {0: 3, 1: 3, 2: 2, 3: 2}
ENDS = {0: 4, 1: 4, 2: 2, 3: 2}
LAG = "2"
MONITOR_LIMIT_S = 40.0


@dataclass(frozen=True)
class Shop:
    """What the commands look at, and mqadmin itself."""

    admin: MqAdmin
    broker: str
    sent: list[Place]
    client_id: str
    held_since_ms: int

    def topic(self, name: str) -> str:
        """A topic of a test's own, with four queues."""
        self.admin.show("updateTopic", "-c", CLUSTER, "-t", name, "-r", "4", "-w", "4")
        return name

    def group_like_the_archive(self, name: str) -> str:
        """A group of a test's own that has come as far as the one that is offline."""
        self.admin.show("updateSubGroup", "-b", self.broker, "-g", name)
        self.admin.show("cloneGroupOffset", "-s", OFFLINE, "-d", name, "-t", TOPIC, "-o", "true")
        return name

    def total_lag(self) -> int:
        return int(self.admin.show("brokerConsumeStats", "-b", self.broker).fields["Diff Total"])

    def offsets(self, group: str) -> dict[int, int]:
        """How far a group has come in the shop's topic; queues at their beginning are not shown."""
        stats = self.admin.show("brokerConsumeStats", "-b", self.broker)
        return {int(row[0]): int(row[2]) for row in stats.rows_of(TOPIC, group, BROKER)}

    def route(self, topic: str) -> list[str]:
        """Queues to read, queues to write and permission, as the NameServer has them."""
        row = self.admin.show("topicRoute", "-t", topic, "-l").rows_of(CLUSTER, BROKER)
        return row[0][1:]

    def ends(self, topic: str) -> dict[int, int]:
        status = self.admin.show("topicStatus", "-t", topic)
        return {int(row[0]): int(row[2]) for row in status.rows_of(BROKER)}

    def groups(self, tmp_path: Path) -> dict[str, Any]:
        """The settings of all groups of the broker."""
        self.admin.show("exportMetadata", "-b", self.broker, "-g", "-f", str(tmp_path))
        exported = json.loads((tmp_path / "subscriptionGroup.json").read_text())
        table: dict[str, Any] = exported["subscriptionGroupTable"]
        return table


@pytest.fixture(scope="module")
def admin(admin_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqAdmin]:
    home = tmp_path_factory.mktemp("mqadmin") / "home"
    with MqAdmin(admin_cluster.namesrv.address, home) as started:
        yield started


@pytest.fixture(scope="module")
def shop(admin_cluster: Cluster, admin: MqAdmin) -> Shop:
    admin.show("updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", "4", "-w", "4")
    sent = admin.produce(PRODUCER, TOPIC, ORDERS)
    admin.consume(OFFLINE, TOPIC, len(ORDERS))
    admin.leave(OFFLINE)
    admin.consume(ONLINE, TOPIC, len(ORDERS))
    held_since_ms = int(time.time() * 1000)
    sent += admin.produce(PRODUCER, TOPIC, HELD)
    client_id = admin.consume(ONLINE, TOPIC, len(MESSAGES))["clientId"]
    made = Shop(admin, admin_cluster.broker.address, sent, client_id, held_since_ms)
    # Asking a consumer again has it send its offsets again; they go one way, without an answer.
    eventually(
        lambda: admin.consume(ONLINE, TOPIC, len(MESSAGES)) and made.offsets(ONLINE) == DONE,
        lambda: f"{ONLINE} is at {made.offsets(ONLINE)}",
    )
    admin.show("startMonitoring")  # Its first round is after 20 s; the last test looks at it.
    return made


def test_every_command_is_in_the_table_and_proven_here(admin: MqAdmin) -> None:
    assert [command.name for command in mqadmin_table.COMMANDS] == admin.commands()
    marks = [mark for each in globals().values() for mark in getattr(each, "pytestmark", [])]
    proven = {name for mark in marks if mark.name == proves.name for name in mark.args}
    assert proven == {c.name for c in mqadmin_table.COMMANDS if not c.lacks}
    assert REFUSED.keys() == {c.name for c in mqadmin_table.COMMANDS if c.lacks}


# Topics


@proves("updateTopic")
def test_a_topic_is_made_and_changed(shop: Shop, tmp_path: Path) -> None:
    queues = ("-r", "3", "-w", "2", "-a", "+message.type=FIFO")
    made = shop.admin.show("updateTopic", "-c", CLUSTER, "-t", "Made", *queues)
    assert f"create topic to {shop.broker} success." in made.text
    assert "topicName=Made, readQueueNums=3, writeQueueNums=2, perm=RW-" in made.text
    assert shop.route("Made") == ["3", "2", "6"]

    shop.admin.show("updateTopic", "-b", shop.broker, "-t", "Made", "-r", "5", "-w", "6", "-p", "4")
    assert shop.route("Made") == ["5", "6", "4"]
    shop.admin.show("exportMetadata", "-b", shop.broker, "-t", "-f", str(tmp_path))
    exported = json.loads((tmp_path / "topic.json").read_text())["topicConfigTable"]["Made"]
    assert exported["attributes"] == {"message.type": "FIFO"}


@proves("updateTopic")
@pytest.mark.parametrize("name", ["TBW102", "with blank"])
def test_a_topic_of_a_name_that_cannot_be_is_refused(shop: Shop, name: str) -> None:
    refused = shop.admin.run("updateTopic", "-c", CLUSTER, "-t", name)
    assert "CODE: 29 " in refused.text


@proves("updateTopicList")
def test_topics_of_a_file_are_made(shop: Shop, tmp_path: Path) -> None:
    wanted = [
        {"topicName": "ListA", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6},
        {"topicName": "ListB", "readQueueNums": 1, "writeQueueNums": 1, "perm": 4},
    ]
    file = tmp_path / "topics.json"
    file.write_text(json.dumps(wanted))
    printed = shop.admin.show("updateTopicList", "-b", shop.broker, "-f", str(file))
    assert f"submit batch of topic config to {shop.broker} success" in printed.text
    assert [shop.route(name) for name in ("ListA", "ListB")] == [["3", "3", "6"], ["1", "1", "4"]]


@proves("deleteTopic")
def test_a_deleted_topic_is_gone_from_broker_and_name_server(shop: Shop) -> None:
    topic = shop.topic("Doomed")
    shop.admin.produce(PRODUCER, topic, ORDERS)
    printed = shop.admin.show("deleteTopic", "-c", CLUSTER, "-t", topic)
    assert f"delete topic [{topic}] from cluster [{CLUSTER}] success." in printed.text
    assert f"delete topic [{topic}] from NameServer success." in printed.text
    assert "CODE: 17 " in shop.admin.run("topicRoute", "-t", topic).text
    assert [topic] not in shop.admin.show("topicList").rows

    shop.topic(topic)
    assert shop.ends(topic) == dict.fromkeys(range(4), 0)


@proves("updateTopicPerm")
def test_the_permission_of_a_topic_is_changed(shop: Shop) -> None:
    topic = shop.topic("Permitted")
    for target in (("-b", shop.broker), ("-c", CLUSTER)):
        for old, new in ((6, 4), (4, 6)):
            printed = shop.admin.show("updateTopicPerm", "-t", topic, "-p", str(new), *target)
            assert f"update topic perm from {old} to {new} in {shop.broker} success" in printed.text
            assert shop.route(topic) == ["4", "4", str(new)]


@proves("topicRoute")
def test_a_route_has_brokers_queues_and_permission(shop: Shop) -> None:
    printed = shop.admin.show("topicRoute", "-t", TOPIC)
    # fastjson leaves keys that are numbers without quotes.
    route = json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', printed.text))
    broker = {"brokerName": BROKER, "cluster": CLUSTER, "brokerAddrs": {"0": shop.broker}}
    queues = {"brokerName": BROKER, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    assert [data | broker for data in route["brokerDatas"]] == route["brokerDatas"]
    assert [data | queues for data in route["queueDatas"]] == route["queueDatas"]
    listed = shop.admin.show("topicRoute", "-t", TOPIC, "-l")
    assert [CLUSTER, BROKER, f"{{0={shop.broker}}}", "4", "4", "6"] in listed.rows


@proves("topicStatus")
def test_a_topics_status_has_the_offsets_of_its_queues(shop: Shop) -> None:
    for options in ((), ("-c", CLUSTER)):
        rows = shop.admin.show("topicStatus", "-t", TOPIC, *options).rows_of(BROKER)
        offsets = {int(queue): (int(first), int(last)) for queue, first, last, *_ in rows}
        assert offsets == {queue: (0, end) for queue, end in ENDS.items()}
        assert all(row[3:] > ["2020-01-01"] for row in rows)


@proves("topicClusterList")
def test_a_topics_clusters_are_listed(shop: Shop) -> None:
    assert shop.admin.show("topicClusterList", "-t", TOPIC).rows == [[CLUSTER]]


@proves("topicList")
def test_topics_are_listed_with_clusters_and_groups(shop: Shop) -> None:
    names = {TOPIC, f"%RETRY%{ONLINE}", f"%RETRY%{OFFLINE}", "TBW102", CLUSTER, BROKER}
    listed = shop.admin.show("topicList").rows
    assert names <= {name for (name,) in listed}
    groups = shop.admin.show("topicList", "-c").rows_of(CLUSTER, TOPIC)
    assert sorted(groups) == [[OFFLINE], [ONLINE]]


@proves("allocateMQ")
def test_queues_are_shared_among_consumers_in_thought(shop: Shop) -> None:
    printed = shop.admin.show("allocateMQ", "-t", TOPIC, "-i", "10.0.0.1,10.0.0.2")
    shares: Mapping[str, list[dict[str, Any]]] = json.loads(printed.text)["result"]
    assert {ip: len(share) for ip, share in shares.items()} == {"10.0.0.1": 2, "10.0.0.2": 2}
    assert sorted(q["queueId"] for share in shares.values() for q in share) == [0, 1, 2, 3]


# Groups


@proves("updateSubGroup", "getConsumerConfig")
def test_a_group_is_made_and_changed(shop: Shop) -> None:
    shop.admin.show("updateSubGroup", "-c", CLUSTER, "-g", "made", "-r", "7", "-q", "2")
    config = shop.admin.show("getConsumerConfig", "-g", "made")
    assert f"{CLUSTER}:{BROKER}" in config.text
    wanted = {"groupName": "made", "retryMaxTimes": "7", "retryQueueNums": "2"}
    assert config.fields | wanted == config.fields
    shop.admin.show("updateSubGroup", "-b", shop.broker, "-g", "made", "-r", "5", "-s", "false")
    config = shop.admin.show("getConsumerConfig", "-g", "made")
    wanted = {"groupName": "made", "retryMaxTimes": "5", "consumeEnable": "false"}
    assert config.fields | wanted == config.fields


@proves("updateSubGroupList")
def test_groups_of_a_file_are_made(shop: Shop, tmp_path: Path) -> None:
    wanted = [
        {"groupName": "list_a", "retryMaxTimes": 3},
        {"groupName": "list_b", "consumeEnable": False},
    ]
    file = tmp_path / "groups.json"
    file.write_text(json.dumps(wanted))
    printed = shop.admin.show("updateSubGroupList", "-b", shop.broker, "-f", str(file))
    assert f"submit batch of group config to {shop.broker} success" in printed.text
    groups = shop.groups(tmp_path)
    assert groups["list_a"]["retryMaxTimes"] == 3
    assert groups["list_b"]["consumeEnable"] is False


@proves("deleteSubGroup")
def test_a_deleted_group_loses_its_settings_and_if_asked_its_offsets(
    shop: Shop, tmp_path: Path
) -> None:
    for group, target in (("gone_a", ("-b", shop.broker)), ("gone_b", ("-c", CLUSTER))):
        shop.group_like_the_archive(group)
        shop.admin.show("updateSubGroup", "-b", shop.broker, "-g", group, "-r", "3")
        removed = shop.admin.show("deleteSubGroup", *target, "-g", group, "-r", "true")
        assert f"delete subscription group [{group}] from broker [{shop.broker}]" in removed.text
        # The real broker makes the group anew at once, with defaults, while it deletes it.
        assert shop.groups(tmp_path).get(group, {"retryMaxTimes": 16})["retryMaxTimes"] == 16
        assert shop.offsets(group) == {}


# Messages


def assert_describes(printed: Printed, number: int, shop: Shop) -> None:
    """All that is known of a message of the shop, its body included."""
    message, place, fields = MESSAGES[number], shop.sent[number], printed.fields
    wanted = {
        "Topic": TOPIC,
        "Tags": f"[{message.tags}]",
        "Keys": f"[{message.keys}]",
        "Queue ID": str(place.queue_id),
        "Queue Offset": str(place.queue_offset),
        "CommitLog Offset": str(place.log_offset),
        "Reconsume Times": "0",
        "Store Host": shop.broker,
    }
    assert fields | wanted == fields
    assert f"UNIQ_KEY={place.msg_id}," in fields["Properties"]
    body = Path(fields["Message Body Path"])  # A directory that all users of mqadmin share.
    assert body.read_text() == message.body
    body.unlink()
    consumed = "NOT_CONSUME_YET" if message in HELD else "CONSUMED"
    assert f"[consumerGroup={ONLINE}, trackType={consumed}," in printed.text
    assert f"[consumerGroup={OFFLINE}, trackType=NOT_ONLINE," in printed.text


@proves("queryMsgById")
@pytest.mark.parametrize("number", [3, 11])
def test_a_message_is_found_by_its_place(shop: Shop, number: int) -> None:
    place = shop.sent[number]
    printed = shop.admin.show("queryMsgById", "-t", TOPIC, "-i", place.offset_msg_id)
    assert printed.fields["OffsetID"] == place.offset_msg_id
    assert_describes(printed, number, shop)


@proves("queryMsgById")
def test_a_message_is_handed_to_one_consumer(shop: Shop) -> None:
    to_consumer = ("-g", ONLINE, "-d", shop.client_id)
    place = shop.sent[3].offset_msg_id
    printed = shop.admin.show("queryMsgById", "-t", TOPIC, "-i", place, *to_consumer)
    assert "consumeResult=CR_SUCCESS" in printed.text
    bodies = shop.admin.consume(ONLINE, TOPIC, len(MESSAGES) + 1)["bodies"]
    assert bodies[-1] == MESSAGES[3].body


@proves("queryMsgById")
def test_a_message_is_sent_again(shop: Shop) -> None:
    topic = shop.topic("Again")
    (place,) = shop.admin.produce(PRODUCER, topic, ORDERS[:1])
    again = ("-i", place.offset_msg_id, "-s", "true")
    printed = shop.admin.show("queryMsgById", "-t", topic, *again)
    assert f"sendStatus=SEND_OK, msgId={place.msg_id}" in printed.text
    assert sum(shop.ends(topic).values()) == 2


@proves("queryMsgByKey")
@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (("-k", "every"), range(12)),
        (("-k", "order-3", "-c", CLUSTER), [3]),
        (("-k", "every", "-m", "4"), None),
        (("-k", "Held", "-p", "T"), [10, 11]),
    ],
    ids=["key", "key-in-cluster", "four-at-most", "tag"],
)
def test_messages_are_found_by_key_or_tag(
    shop: Shop, options: tuple[str, ...], numbers: list[int] | None
) -> None:
    found = shop.admin.show("queryMsgByKey", "-t", TOPIC, *options).rows[1:]
    places = {(row[0], int(row[1]), int(row[2])) for row in found}
    known = [(sent.msg_id, sent.queue_id, sent.queue_offset) for sent in shop.sent]
    if numbers is None:
        assert len(found) == 4
        assert places < set(known)
    else:
        assert places == {known[number] for number in numbers}


@proves("queryMsgByKey")
def test_a_key_that_nothing_has_is_said_so(shop: Shop) -> None:
    printed = shop.admin.run("queryMsgByKey", "-t", TOPIC, "-k", "no-such-key")
    assert "CODE: 208 " in printed.text


@proves("queryMsgByUniqueKey")
def test_a_message_is_found_by_its_clients_id(shop: Shop) -> None:
    ids = ("-i", shop.sent[10].msg_id)
    assert_describes(shop.admin.show("queryMsgByUniqueKey", "-t", TOPIC, *ids), 10, shop)
    assert_describes(shop.admin.show("queryMsgByUniqueKey", "-t", TOPIC, *ids, "-a"), 10, shop)
    to_consumer = ("-i", shop.sent[4].msg_id, "-g", ONLINE, "-d", shop.client_id)
    handed = shop.admin.show("queryMsgByUniqueKey", "-t", TOPIC, *to_consumer)
    assert "consumeResult=CR_SUCCESS" in handed.text


@proves("queryMsgByOffset")
def test_a_message_is_found_by_queue_and_offset(shop: Shop) -> None:
    place = shop.sent[5]
    at = ("-b", BROKER, "-i", str(place.queue_id), "-o", str(place.queue_offset))
    assert_describes(shop.admin.show("queryMsgByOffset", "-t", TOPIC, *at), 5, shop)


@proves("queryMsgTraceById")
def test_what_a_producer_reported_is_found(shop: Shop) -> None:
    topic, trace_topic = shop.topic("Traced"), shop.topic("Traces")
    (place,) = shop.admin.produce("traced_producer", topic, ORDERS[:1], trace_topic)
    printed = shop.admin.show_when(
        lambda printed: printed.rows_of("Pub"),
        *("queryMsgTraceById", "-i", place.msg_id, "-t", trace_topic),
    )
    ((group, _client, _day, _time, _cost, outcome),) = printed.rows_of("Pub")
    assert (group, outcome) == ("traced_producer", "success")


def printed_bodies(printed: Printed) -> list[tuple[int, int, str]]:
    """Queue, offset and body of every message printed in full."""
    pattern = r"^MSGID: \S+ .*?queueId=(\d+),.*?queueOffset=(\d+),.* BODY: (.*)$"
    found = re.findall(pattern, printed.text, re.MULTILINE)
    return [(int(queue), int(offset), body) for queue, offset, body in found]


def stored_bodies(shop: Shop, tags: str = "Even Odd Held") -> list[tuple[int, int, str]]:
    both = zip(MESSAGES, shop.sent, strict=True)
    return sorted((p.queue_id, p.queue_offset, m.body) for m, p in both if m.tags in tags)


@proves("printMsg")
def test_the_messages_of_a_topic_are_printed(shop: Shop) -> None:
    printed = shop.admin.show("printMsg", "-t", TOPIC, "-d", "true")
    assert sorted(printed_bodies(printed)) == stored_bodies(shop)
    printed = shop.admin.show("printMsg", "-t", TOPIC, "-d", "true", "-s", "Odd || Held")
    assert sorted(printed_bodies(printed)) == stored_bodies(shop, "Odd Held")


@proves("printMsgByQueue")
def test_the_messages_of_a_queue_are_printed_and_counted(shop: Shop) -> None:
    options = ("-p", "true", "-d", "true", "-f", "true")
    printed = shop.admin.show("printMsgByQueue", "-t", TOPIC, "-a", BROKER, "-i", "1", *options)
    assert printed_bodies(printed) == [each for each in stored_bodies(shop) if each[0] == 1]
    counts = {row[1]: row[3] for row in printed.rows if row[0] == "Tag:"}
    assert counts == {"Odd": "3", "Held": "1"}


@proves("consumeMessage")
def test_messages_are_read_from_an_offset_on(shop: Shop) -> None:
    at = ("-b", BROKER, "-i", "1", "-o", "1", "-c", "2")
    printed = shop.admin.show("consumeMessage", "-t", TOPIC, *at)
    assert printed_bodies(printed) == [(1, 1, ORDERS[5].body), (1, 2, ORDERS[9].body)]


@proves("sendMessage")
def test_a_message_is_sent(shop: Shop) -> None:
    topic = shop.topic("Sent")
    options = ("-p", "from mqadmin", "-k", "sent-key", "-c", "Sent", "-b", BROKER, "-i", "2")
    ((queue, status, msg_id),) = shop.admin.show("sendMessage", "-t", topic, *options).rows_of(
        BROKER
    )
    assert (queue, status) == ("2", "SEND_OK")
    printed = shop.admin.show("printMsg", "-t", topic, "-d", "true")
    assert printed_bodies(printed) == [(2, 0, "from mqadmin")]
    found = shop.admin.show("queryMsgByKey", "-t", topic, "-k", "sent-key")
    assert [row[:3] for row in found.rows[1:]] == [[msg_id, "2", "0"]]


@proves("queryCq")
def test_the_entries_of_a_queue_are_shown(shop: Shop) -> None:
    where = ("-t", TOPIC, "-q", "1", "-i", "1", "-c", "2")
    printed = shop.admin.show("queryCq", *where, "-b", shop.broker, "-g", ONLINE)
    assert "max: 4, min: 0" in printed.text
    assert '"subString":"*"' in printed.text
    entries = re.findall(r"physicOffset=(\d+), physicSize=\d+, tagsCode=(\d+),", printed.text)
    # Java's hash of "Odd".
    assert entries == [(str(shop.sent[number].log_offset), "79119") for number in (5, 9)]
    assert shop.admin.show("queryCq", *where).text.count("physicOffset=") == 2


@proves("sendMsgStatus")
def test_sends_to_a_broker_are_reported(shop: Shop) -> None:
    printed = shop.admin.show("sendMsgStatus", "-b", BROKER, "-c", "3")
    sent = re.findall(
        rf"sendStatus=SEND_OK, .*?topic={BROKER}, .*?queueId=0\], queueOffset=(\d+)", printed.text
    )
    first = int(sent[0])
    assert [int(offset) for offset in sent] == [first, first + 1, first + 2]


@proves("checkMsgSendRT")
def test_the_time_of_sends_to_a_topic_is_shown(shop: Shop) -> None:
    topic = shop.topic("Timed")
    printed = shop.admin.show("checkMsgSendRT", "-t", topic, "-a", "3", "-s", "16")
    assert [row[1] for row in printed.rows_of(BROKER)] == ["true"] * 3
    assert float(printed.fields["Avg RT"]) >= 0
    assert sum(shop.ends(topic).values()) == 3


@proves("clusterRT")
def test_the_time_of_sends_to_every_broker_is_shown(shop: Shop) -> None:
    options = ("-a", "3", "-s", "16", "-c", CLUSTER, "-i", "1")
    printed = shop.admin.show("clusterRT", *options, until=rf"{CLUSTER} +{BROKER}.*\n")
    ((_time, sent, failed),) = printed.rows_of(CLUSTER, BROKER)
    assert (sent, failed) == ("3", "0")


# Clients and their progress


@proves("producerConnection")
def test_the_producers_of_a_group_are_shown(shop: Shop) -> None:
    printed = shop.admin.show("producerConnection", "-g", PRODUCER, "-t", TOPIC)
    ((client, address, language, version),) = printed.rows_of("0001")
    assert client.endswith(f"@{PRODUCER}")
    assert address.startswith("127.0.0.1:")
    assert (language, version) == ("JAVA", "V5_5_0")


@proves("producer")
def test_all_producers_of_a_broker_are_shown(shop: Shop) -> None:
    printed = shop.admin.show("producer", "-b", shop.broker)
    pattern = rf"producer group \({PRODUCER}\) instance : clientId=\S+@{PRODUCER},remoteIP="
    assert len(re.findall(pattern, printed.text)) == 1


@proves("consumerConnection")
def test_the_consumers_of_a_group_are_shown(shop: Shop) -> None:
    for options in ((), ("-b", shop.broker)):
        printed = shop.admin.show("consumerConnection", "-g", ONLINE, *options)
        ((address, language, version),) = printed.rows_of(shop.client_id)
        assert address.startswith("127.0.0.1:")
        assert (language, version) == ("JAVA", "V5_5_0")
        assert printed.rows_of(TOPIC) == printed.rows_of(f"%RETRY%{ONLINE}") == [["*"]]
        wanted = {
            "ConsumeType": "CONSUME_PASSIVELY",
            "MessageModel": "CLUSTERING",
            "ConsumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        }
        assert printed.fields | wanted == printed.fields


@proves("consumerConnection")
def test_a_group_without_consumers_is_said_so(shop: Shop) -> None:
    assert "CODE: 206 " in shop.admin.run("consumerConnection", "-g", OFFLINE).text


@proves("consumerProgress")
def test_the_progress_of_all_groups_is_shown(shop: Shop) -> None:
    printed = shop.admin.show("consumerProgress")
    ((*online, _tps, online_lag),) = printed.rows_of(ONLINE)
    ((*offline, _tps, offline_lag),) = printed.rows_of(OFFLINE)
    assert (online, online_lag) == (["1", "V5_5_0", "PUSH", "CLUSTERING"], LAG)
    assert (offline, offline_lag) == (["0", "OFFLINE"], LAG)


@proves("consumerProgress")
@pytest.mark.parametrize("group", [ONLINE, OFFLINE])
def test_the_progress_of_a_group_is_shown_by_queue(shop: Shop, group: str) -> None:
    # What is pulled and not yet consumed is in flight.
    in_flight = LAG if group == ONLINE else "0"
    printed = shop.admin.show_when(
        lambda printed: printed.fields["Consume Inflight Total"] == in_flight,
        *("consumerProgress", "-g", group),
    )
    rows = {int(row[0]): [int(cell) for cell in row[1:4]] for row in printed.rows_of(TOPIC, BROKER)}
    assert rows == {queue: [end, DONE[queue], end - DONE[queue]] for queue, end in ENDS.items()}
    assert printed.fields["Consume Diff Total"] == LAG


@proves("consumerProgress")
def test_the_progress_of_a_group_names_the_consumer_of_every_queue(shop: Shop) -> None:
    options = ("-g", ONLINE, "-t", TOPIC, "-s", "true")
    rows = shop.admin.show("consumerProgress", *options).rows_of(TOPIC, BROKER)
    ip = shop.client_id.split("@")[0]
    assert [row[3] for row in rows] == [ip] * 4


@proves("consumerStatus")
def test_what_a_groups_consumers_are_doing_is_shown(shop: Shop) -> None:
    for options in ((), ("-b", shop.broker)):
        printed = shop.admin.show("consumerStatus", "-g", ONLINE, *options)
        ((client, version, file),) = printed.rows_of("1")
        assert (client, version) == (shop.client_id, "V5_5_0")
        assert "Same subscription in the same group of consumer" in printed.text
        assert "Rebalance OK" in printed.text
        queues = Printed((shop.admin.home / file).read_text(), None).rows_of(TOPIC, BROKER)
        cached = {row[0]: re.findall(r"cachedMsgCount=(\d+)", " ".join(row)) for row in queues}
        wanted = {str(queue): [str(ENDS[queue] - DONE[queue])] for queue in ENDS}
        assert {queue: count for queue, count in cached.items() if count} == wanted


@proves("consumerStatus")
def test_the_threads_of_a_consumer_are_shown(shop: Shop) -> None:
    options = ("-g", ONLINE, "-i", shop.client_id, "-s")
    printed = shop.admin.show("consumerStatus", *options)
    assert f"ConsumeMessageThread_{ONLINE}_" in printed.text
    assert printed.fields["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"


@proves("brokerConsumeStats")
def test_the_progress_of_all_groups_of_a_broker_is_shown(shop: Shop) -> None:
    printed = shop.admin.show("brokerConsumeStats", "-b", shop.broker)
    for group in (ONLINE, OFFLINE):
        rows = {
            int(row[0]): [int(c) for c in row[1:4]] for row in printed.rows_of(TOPIC, group, BROKER)
        }
        assert rows == {queue: [end, DONE[queue], end - DONE[queue]] for queue, end in ENDS.items()}
    lags = [int(row[6]) for row in printed.rows if len(row) > 6 and row[2] == BROKER]
    assert printed.fields["Diff Total"] == str(sum(lags))
    lagging = shop.admin.show("brokerConsumeStats", "-b", shop.broker, "-l", "1")
    assert [row[0] for row in lagging.rows_of(TOPIC, OFFLINE, BROKER)] == ["0", "1"]


@proves("cloneGroupOffset")
def test_a_group_gets_the_offsets_of_another(shop: Shop) -> None:
    assert shop.offsets(shop.group_like_the_archive("clone")) == DONE


def printed_offsets(printed: Printed) -> dict[int, int]:
    return {int(queue): int(offset) for queue, offset in printed.rows_of(BROKER)}


@proves("resetOffsetByTime")
@pytest.mark.parametrize("when", ["0", "held", "now", "-1"])
def test_a_group_goes_on_at_a_time(shop: Shop, when: str) -> None:
    group = shop.group_like_the_archive(f"reset_{when.replace('-', 'minus_')}")
    lag = shop.total_lag()
    time_ms = str(shop.held_since_ms) if when == "held" else when
    printed = shop.admin.show("resetOffsetByTime", "-g", group, "-t", TOPIC, "-s", time_ms)
    wanted = {"0": dict.fromkeys(ENDS, 0), "held": DONE}.get(when, ENDS)
    assert printed_offsets(printed) == wanted
    assert shop.offsets(group) == {queue: offset for queue, offset in wanted.items() if offset}
    assert shop.total_lag() - lag == sum(DONE.values()) - sum(wanted.values())


@proves("resetOffsetByTime")
def test_a_group_goes_on_at_an_offset_of_one_queue(shop: Shop) -> None:
    group = shop.group_like_the_archive("reset_queue")
    queue = ("-b", shop.broker, "-q", "1", "-o", "1", "-s", "-1")
    printed = shop.admin.show("resetOffsetByTime", "-g", group, "-t", TOPIC, *queue)
    assert "reset consumer offset to 1" in printed.text
    assert shop.offsets(group) == {**DONE, 1: 1}


@proves("resetOffsetByTime")
def test_an_online_group_consumes_again_what_it_is_set_back_to(shop: Shop) -> None:
    topic, group = shop.topic("Repeated"), "repeated"
    bodies = [message.body for message in ORDERS]
    shop.admin.produce(PRODUCER, topic, ORDERS)
    shop.admin.consume(group, topic, len(ORDERS))
    shop.admin.show("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
    # A consumer that waits for messages hears of it with the next.
    shop.admin.produce(PRODUCER, topic, ORDERS[:4])
    consumed = shop.admin.consume(group, topic, 2 * len(ORDERS) + 4)["bodies"]
    assert sorted(consumed) == sorted(bodies * 2 + bodies[:4])


@proves("skipAccumulatedMessage")
def test_a_group_goes_on_behind_everything(shop: Shop) -> None:
    group = shop.group_like_the_archive("skip")
    printed = shop.admin.show("skipAccumulatedMessage", "-g", group, "-t", TOPIC)
    assert printed_offsets(printed) == ENDS
    assert shop.offsets(group) == ENDS


@proves("statsAll")
def test_messages_in_out_and_waiting_are_counted(shop: Shop) -> None:
    printed = shop.admin.show_when(
        lambda printed: {row[3] for row in printed.rows_of(TOPIC, ONLINE)} == {"12"},
        *("statsAll", "-t", TOPIC),
    )
    for group, pulled in ((ONLINE, "12"), (OFFLINE, "10")):
        ((lag, in_rate, out_rate, messages_in, messages_out),) = printed.rows_of(TOPIC, group)
        assert (lag, messages_in, messages_out) == (LAG, "12", pulled)
        assert float(in_rate) > 0
        assert float(out_rate) > 0
    active = shop.admin.show("statsAll", "-a")
    assert active.rows_of(TOPIC, OFFLINE)
    assert not [row for row in active.rows if row[0] == "TBW102"]


# Brokers and the cluster


@proves("clusterList")
def test_the_brokers_of_a_cluster_are_listed(shop: Shop) -> None:
    for options in ((), ("-c", CLUSTER)):
        (row,) = shop.admin.show("clusterList", *options).rows_of(CLUSTER, BROKER, "0", shop.broker)
        assert row[0].startswith("V5_")
        assert row[-1] == "true"
    ((*_yesterday, came, went),) = shop.admin.show("clusterList", "-m").rows_of(CLUSTER, BROKER)
    assert int(came) >= len(MESSAGES)
    assert int(went) >= len(MESSAGES) + len(ORDERS)


STATUS = """
    EndTransactionQueueSize bootTimestamp brokerActive brokerVersionDesc commitLogDirCapacity
    commitLogDiskRatio commitLogMaxOffset commitLogMinOffset consumeQueueDiskRatio
    dispatchBehindBytes dispatchMaxBuffer earliestMessageTimeStamp getFoundTps
    getMessageEntireTimeMax getMissTps getTotalTps getTransferredTps msgGetTotalTodayMorning
    msgGetTotalTodayNow msgGetTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow
    msgPutTotalYesterdayMorning pageCacheLockTimeMills pullThreadPoolQueueCapacity
    pullThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize putMessageAverageSize
    putMessageDistributeTime putMessageEntireTimeMax putMessageFailedTimes putMessageSizeTotal
    putMessageTimesTotal putTps queryThreadPoolQueueSize remainHowManyDataToFlush runtime
    sendThreadPoolQueueCapacity sendThreadPoolQueueHeadWaitTimeMills sendThreadPoolQueueSize
    startAcceptSendRequestTimeStamp timerDequeueTps timerEnqueueTps timerReadBehind
"""


@proves("brokerStatus")
def test_the_counters_of_a_broker_are_shown(shop: Shop) -> None:
    fields = shop.admin.show("brokerStatus", "-b", shop.broker).fields
    assert not set(STATUS.split()) - fields.keys()
    assert fields["brokerActive"] == "true"
    assert fields["commitLogMinOffset"] == fields["putMessageFailedTimes"] == "0"
    assert int(fields["commitLogMaxOffset"]) > shop.sent[-1].log_offset
    assert int(fields["putMessageTimesTotal"]) >= len(MESSAGES)
    assert int(fields["msgPutTotalTodayNow"]) >= len(MESSAGES)
    assert int(fields["msgGetTotalTodayNow"]) >= len(MESSAGES) + len(ORDERS)
    in_cluster = shop.admin.show("brokerStatus", "-c", CLUSTER)
    assert {row[1].rstrip(":") for row in in_cluster.rows if row[0] == shop.broker} >= set(
        STATUS.split()
    )


@proves("haStatus")
def test_a_master_without_slaves_says_so(shop: Shop) -> None:
    """With slaves: interop/test_replication.py."""
    printed = shop.admin.show("haStatus", "-b", shop.broker).text
    assert re.search(r"#MasterAddr\s+" + re.escape(shop.broker), printed)
    assert re.search(r"#SlaveNum\s+0\b", printed)


@proves("getBrokerConfig", "updateBrokerConfig")
def test_a_setting_of_a_running_broker_is_changed(shop: Shop) -> None:
    ways = [("-b", shop.broker), ("-c", CLUSTER), ("-c", CLUSTER, "-a", "true")]
    for hours, way in enumerate(ways, start=50):
        setting = ("-k", "fileReservedTime", "-v", str(hours))
        printed = shop.admin.show("updateBrokerConfig", *way, *setting)
        assert f"update broker config success, {shop.broker}" in printed.text
        config = shop.admin.show("getBrokerConfig", *way[:2]).fields
        wanted = {
            "fileReservedTime": str(hours),
            "brokerName": BROKER,
            "brokerClusterName": CLUSTER,
            "brokerId": "0",
            "listenPort": shop.broker.split(":")[1],
            "messageDelayLevel": systems.SHORT_DELAYS,
            "mappedFileSizeCommitLog": str(systems.CLUSTER_CONFIG["mappedFileSizeCommitLog"]),
        }
        assert config | wanted == config


@proves("wipeWritePerm", "addWritePerm")
def test_writes_to_a_broker_are_stopped_and_allowed_again(shop: Shop) -> None:
    count = len(shop.admin.show("topicList").rows)
    wiped = shop.admin.show("wipeWritePerm", "-b", BROKER)
    assert f"wipe write perm of broker[{BROKER}] in name server" in wiped.text
    assert wiped.text.rstrip().endswith(f"OK, {count}")
    assert shop.route(TOPIC) == ["4", "4", "4"]
    added = shop.admin.show("addWritePerm", "-b", BROKER)
    assert f"add write perm of broker[{BROKER}] in name server" in added.text
    assert added.text.rstrip().endswith(f"OK, {count}")
    assert shop.route(TOPIC) == ["4", "4", "6"]


@proves("cleanExpiredCQ", "deleteExpiredCommitLog", "cleanUnusedTopic")
@pytest.mark.parametrize(
    "command", ["cleanExpiredCQ", "deleteExpiredCommitLog", "cleanUnusedTopic"]
)
def test_a_clean_up_leaves_what_is_in_use(shop: Shop, command: str) -> None:
    for target in (("-b", shop.broker), ("-c", CLUSTER), ()):
        assert shop.admin.show(command, *target).text.startswith("success")
    printed = shop.admin.show("printMsg", "-t", TOPIC, "-d", "true")
    assert sorted(printed_bodies(printed)) == stored_bodies(shop)


@proves("exportMetadata")
def test_topics_and_groups_are_exported(shop: Shop, tmp_path: Path) -> None:
    shop.admin.show("exportMetadata", "-c", CLUSTER, "-f", str(tmp_path))
    exported = json.loads((tmp_path / "metadata.json").read_text())
    topic = exported["topicConfigTable"][TOPIC]
    assert (topic["readQueueNums"], topic["writeQueueNums"], topic["perm"]) == (4, 4, 6)
    assert {ONLINE, OFFLINE} <= exported["subscriptionGroupTable"].keys()
    # What belongs to the system is left out.
    assert not {"TBW102", f"%RETRY%{ONLINE}"} & exported["topicConfigTable"].keys()
    assert "TOOLS_CONSUMER" not in exported["subscriptionGroupTable"]


@proves("exportConfigs")
def test_settings_of_a_cluster_are_exported(shop: Shop, tmp_path: Path) -> None:
    shop.admin.show("exportConfigs", "-c", CLUSTER, "-f", str(tmp_path))
    exported = json.loads((tmp_path / "configs.json").read_text())
    scale = {"namesrvSize": 1, "masterBrokerSize": 1, "slaveBrokerSize": 0}
    assert exported["clusterScale"] == scale
    broker = exported["brokerConfigs"][BROKER]
    wanted = {
        "brokerName": BROKER,
        "brokerRole": "ASYNC_MASTER",
        "flushDiskType": "ASYNC_FLUSH",
        "messageDelayLevel": systems.SHORT_DELAYS,
    }
    assert broker | wanted == broker


@proves("exportMetrics")
def test_sizes_of_a_cluster_are_exported(shop: Shop, tmp_path: Path) -> None:
    shop.admin.show("exportMetadata", "-c", CLUSTER, "-f", str(tmp_path))
    metadata = json.loads((tmp_path / "metadata.json").read_text())
    shop.admin.show("exportMetrics", "-c", CLUSTER, "-f", str(tmp_path))
    report = json.loads((tmp_path / "metrics.json").read_text())["evaluateReport"][BROKER]
    assert report["runtimeVersion"]["clientInfo"] == ["JAVA%V5_5_0"]
    assert report["runtimeQuota"]["topicSize"] == len(metadata["topicConfigTable"])
    assert float(report["runtimeQuota"]["messageAverageSize"]) > 0
    assert int(report["runtimeEnv"]["cpuNum"]) > 0


# NameServers


@proves("updateOrderConf", "updateKvConfig", "deleteKvConfig")
def test_values_in_the_name_server_are_set_shown_and_removed(shop: Shop) -> None:
    def shown() -> str:
        return shop.admin.run("updateOrderConf", "-m", "get", "-t", "Ordered").text

    put = shop.admin.show("updateOrderConf", "-m", "put", "-t", "Ordered", "-v", f"{BROKER}:4")
    assert f"update orderConf success. topic=[Ordered], orderConf=[{BROKER}:4]" in put.text
    assert f"topic=[Ordered], orderConf=[{BROKER}:4]" in shown()
    removed = shop.admin.show("updateOrderConf", "-m", "delete", "-t", "Ordered")
    assert "delete orderConf success. topic=[Ordered]" in removed.text
    assert "CODE: 22 " in shown()
    # The same values, under the name by which any value is set.
    key = ("-s", "ORDER_TOPIC_CONFIG", "-k", "Ordered")
    value = shop.admin.show("updateKvConfig", *key, "-v", f"{BROKER}:8")
    assert "create or update kv config to namespace success." in value.text
    assert f"topic=[Ordered], orderConf=[{BROKER}:8]" in shown()
    removed = shop.admin.show("deleteKvConfig", *key)
    assert "delete kv config from namespace success." in removed.text
    assert "CODE: 22 " in shown()


@proves("updateTopic")
def test_an_ordered_topic_has_its_queues_in_the_name_server(shop: Shop) -> None:
    shop.admin.show("updateOrderConf", "-m", "put", "-t", "InOrder", "-v", "elsewhere:1")
    queues = ("-r", "3", "-w", "3", "-o", "true")
    printed = shop.admin.show("updateTopic", "-b", shop.broker, "-t", "InOrder", *queues)
    assert "set broker orderConf. isOrder=true" in printed.text
    shown = shop.admin.show("updateOrderConf", "-m", "get", "-t", "InOrder").text
    (value,) = re.findall(r"orderConf=\[(.*)\]", shown)
    assert set(value.split(";")) == {"elsewhere:1", f"{BROKER}:3"}


@proves("getNamesrvConfig", "updateNamesrvConfig")
def test_a_setting_of_a_running_name_server_is_changed(shop: Shop) -> None:
    namesrv = shop.admin.namesrv
    shop.admin.show("updateOrderConf", "-m", "put", "-t", TOPIC, "-v", f"{BROKER}:4")
    for value in ("true", "false"):
        setting = ("-k", "orderMessageEnable", "-v", value)
        printed = shop.admin.show("updateNamesrvConfig", *setting)
        assert f"update name server config success![{namesrv}]" in printed.text
        config = shop.admin.show("getNamesrvConfig")
        assert f"============{namesrv}============" in config.text
        wanted = {"orderMessageEnable": value, "listenPort": namesrv.split(":")[1]}
        assert config.fields | wanted == config.fields
        route = shop.admin.show("topicRoute", "-t", TOPIC).text
        assert (f'"orderTopicConf":"{BROKER}:4"' in route) is (value == "true")


# What CometMQ has not

USER = ("-b", "BROKER", "-u", "somebody")
RULE = ("-b", "BROKER", "-s", "User:somebody", "-r", "Topic:*", "-a", "Pub", "-d", "Allow")
REPLICAS = ("-a", "NAMESRV", "-bn", BROKER, "-c", CLUSTER)
IN_LITE = ("-p", TOPIC)
BOTH = ("-f", "BROKER", "-t", "BROKER")
REFUSED: Mapping[str, tuple[str, ...]] = {
    "setConsumeMode": ("-b", "BROKER", "-t", TOPIC, "-g", "mode", "-m", "PULL"),
    "addBroker": ("-c", "BROKER", "-b", "no-such-file"),
    "removeBroker": ("-c", "BROKER", "-b", f"{CLUSTER}:elsewhere:1"),
    "resetMasterFlushOffset": ("-b", "BROKER", "-o", "0"),
    "updateStaticTopic": ("-t", "Static", "-qn", "2", "-c", CLUSTER),
    "remappingStaticTopic": ("-t", "Static", "-c", CLUSTER),
    "exportMetadataInRocksDB": ("-p", "no-such-directory", "-t", "topics", "-j", "true"),
    "exportPopRecord": ("-b", "BROKER", "-d", "true"),
    "getSyncStateSet": ("-a", "NAMESRV", "-b", BROKER),
    "getBrokerEpoch": ("-b", BROKER),
    "getControllerMetaData": ("-a", "NAMESRV"),
    "getControllerConfig": ("-a", "NAMESRV"),
    "updateControllerConfig": ("-a", "NAMESRV", "-k", "key", "-v", "value"),
    "electMaster": (*REPLICAS, "-b", "0"),
    "cleanBrokerMetadata": (*REPLICAS, "-b", "1"),
    "dumpCompactionLog": ("-f", "no-such-file"),
    "getColdDataFlowCtrInfo": ("-b", "BROKER"),
    "updateColdDataFlowCtrGroupConfig": ("-b", "BROKER", "-g", "cold", "-v", "1000"),
    "removeColdDataFlowCtrGroupConfig": ("-b", "BROKER", "-g", "cold"),
    "setCommitLogReadAheadMode": ("-b", "BROKER", "-m", "0"),
    "createUser": (*USER, "-p", "secret", "-t", "Normal"),
    "updateUser": (*USER, "-p", "secret"),
    "deleteUser": USER,
    "getUser": USER,
    "listUser": ("-b", "BROKER"),
    "copyUser": BOTH,
    "createAcl": RULE,
    "updateAcl": RULE,
    "deleteAcl": ("-b", "BROKER", "-s", "User:somebody"),
    "getAcl": ("-b", "BROKER", "-s", "User:somebody"),
    "listAcl": ("-b", "BROKER"),
    "copyAcl": BOTH,
    "rocksDBConfigToJson": ("-c", CLUSTER, "-t", "topics"),
    "checkRocksdbCqWriteProgress": ("-c", CLUSTER, "-t", TOPIC),
    "switchTimerEngine": ("-b", "BROKER", "-e", "F"),
    "getBrokerLiteInfo": ("-b", "BROKER"),
    "getParentTopicInfo": IN_LITE,
    "getLiteTopicInfo": (*IN_LITE, "-l", "lite"),
    "getLiteClientInfo": (*IN_LITE, "-g", ONLINE, "-c", "client"),
    "getLiteGroupInfo": (*IN_LITE, "-g", ONLINE),
    "triggerLiteDispatch": (*IN_LITE, "-g", ONLINE),
}
# Most commands print what the server answered; these say it in words of their own.
OWN_WORDS = {
    "exportMetadataInRocksDB": "RocksDB path is invalid",
    "dumpCompactionLog": "not exist",
    "remappingStaticTopic": "No topic route to do the remapping",
    **dict.fromkeys(
        (
            "getParentTopicInfo",
            "getLiteTopicInfo",
            "getLiteClientInfo",
            "getLiteGroupInfo",
            "triggerLiteDispatch",
        ),
        rf"{BROKER}\]? +error",
    ),
}
ANSWERS = {
    "cometmq": r"CODE: 3 .*request type \d+ not supported",
    # A server that is there and not configured for it answers with some other error.
    "rocketmq": r"CODE: [13] ",
}


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, id=command.name, marks=proves(command.name))
        for command in mqadmin_table.COMMANDS
        if command.lacks
    ],
)
def test_a_command_of_what_is_not_there_is_refused_at_once(
    shop: Shop, system: System, command: mqadmin_table.Command
) -> None:
    addresses = {"BROKER": shop.broker, "NAMESRV": shop.admin.namesrv}
    args = [addresses.get(arg, arg) for arg in REFUSED[command.name]]
    if system.name == "rocketmq" and not command.needs:
        shop.admin.show(command.name, *args)
    else:
        printed = shop.admin.run(command.name, *args)
        assert not printed.hung
        assert re.search(OWN_WORDS.get(command.name, ANSWERS[system.name]), printed.text)


@proves("startMonitoring")
def test_monitoring_logs_the_lag_of_a_group(shop: Shop) -> None:
    wanted = f"consumerGroup={ONLINE}, topic={TOPIC}, undoneMsgsTotal={LAG}, undoneMsgsSingleMQ=1,"

    def reports() -> list[str]:
        log = shop.admin.log.read_text(errors="replace")
        return [line for line in log.splitlines() if "reportUndoneMsgs" in line]

    eventually(
        lambda: any(wanted in line for line in reports()),
        lambda: f"only {reports()}",
        MONITOR_LIMIT_S,
    )
