"""What the Go and the Node.js client have in common, each by itself and one with the other."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from interop.go_client import GoClient, make_group
from interop.line_client import QUEUES, LineClient, Outgoing, PushConsumer, Received, Sent
from interop.node_client import NodeClient
from interop.systems import Cluster

COMPRESSED = 1
"""The bit of a message's flags that says so; both clients compress bodies of 4 KiB and more."""

SHARE_TIMEOUT_S = 60.0
ROUNDS_ALIKE = 5
Owners = dict[int, set[int]]
"""Which consumers got the message of each queue; two while a queue changes hands."""

UNIQUE_KEY = re.compile("[0-9A-F]{32}|[0-9A-F]{56}")
BODIES = {
    "text": "héllo, 世界 😀".encode(),
    "binary": bytes(range(256)),
    "compressed": ("压缩 compressible " * 5000).encode(),
}


@pytest.fixture(params=["go", "node"])
def client(request: pytest.FixtureRequest, cluster: Cluster) -> LineClient:
    """One client after the other; pytest has to see that they need a cluster."""
    assert cluster.broker.pid
    chosen: LineClient = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture(params=["go_to_node", "node_to_go"])
def pair(
    request: pytest.FixtureRequest, go: GoClient, node: NodeClient
) -> tuple[LineClient, LineClient]:
    """A producing and a consuming client of different languages."""
    return (go, node) if request.param == "go_to_node" else (node, go)


def rich_messages(topic: str) -> list[Outgoing]:
    """Messages with all that a message can have, one of them for every kind of body."""
    return [
        Outgoing(
            topic,
            body,
            tag=f"标签-{kind}",
            keys=[f"订单-{kind}", f"key-{kind}"],
            properties={"größe": "mittel", "城市": "北京 😀", "kind": kind, "number": "42"},
        )
        for kind, body in BODIES.items()
    ]


def plain_messages(topic: str, *names: object, tag: str = "plain") -> list[Outgoing]:
    return [Outgoing(topic, f"{name}".encode(), tag=tag) for name in names]


def assert_arrived(messages: list[Outgoing], sent: list[Sent], received: list[Received]) -> None:
    """Everything arrived once, where the broker said it stored it, with nothing lost."""
    assert all(answer.ok for answer in sent)
    by_place = {message.place: message for message in received}
    assert len(by_place) == len(received) == len(messages)
    for message, answer in zip(messages, sent, strict=True):
        arrived = by_place[answer.queue_id, answer.queue_offset]
        assert arrived.topic == message.topic
        assert arrived.body == message.body
        assert arrived.tag == message.tag
        assert arrived.keys == message.keys
        assert message.properties.items() <= arrived.properties.items()
        assert arrived.offset_msg_id == answer.offset_msg_id
        assert arrived.sys_flag & COMPRESSED == (len(message.body) >= 4096)
        assert arrived.reconsume_times == 0


def assert_marked_by_the_broker(cluster: Cluster, received: list[Received]) -> None:
    """A broker adds properties of its own to every single message, and a key where none is."""
    for message in received:
        assert message.store_host == cluster.broker.address
        assert message.properties["CLUSTER"] == "interop"
        assert message.properties["MSG_REGION"] == "DefaultRegion"
        assert message.properties["TRACE_ON"] == "true"
        assert UNIQUE_KEY.fullmatch(message.properties["UNIQ_KEY"].upper())


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_what_was_sent_arrives_whole(
    client: LineClient, cluster: Cluster, topic: str, mode: str
) -> None:
    messages = rich_messages(topic) * QUEUES
    sent = client.send(*messages, mode=mode)
    with client.push_consumer(topic, topic) as consumer:
        received = consumer.take(len(messages))
    assert_arrived(messages, sent, received)
    assert_marked_by_the_broker(cluster, received)
    assert {answer.queue_id for answer in sent} == set(range(QUEUES))


def test_one_client_reads_what_another_wrote(
    pair: tuple[LineClient, LineClient], cluster: Cluster, topic: str
) -> None:
    producer, reader = pair
    messages = rich_messages(topic) * QUEUES
    sent = producer.send(*messages)
    with reader.push_consumer(topic, topic) as consumer:
        received = consumer.take(len(messages))
    assert_arrived(messages, sent, received)
    assert_marked_by_the_broker(cluster, received)


def test_messages_that_come_while_a_consumer_waits_are_pushed_at_once(
    client: LineClient, topic: str
) -> None:
    client.send(*plain_messages(topic, "first"))
    with client.push_consumer(topic, topic) as consumer:
        consumer.take(1)
        # By now the other queues' pulls are held by the broker, which would let them go only
        # after 15 s if the messages themselves did not.
        client.send(*plain_messages(topic, *range(3 * QUEUES)))
        received = consumer.take(1 + 3 * QUEUES, timeout_s=10)
    assert Counter(message.body for message in received) == Counter(
        [b"first", *(f"{number}".encode() for number in range(3 * QUEUES))]
    )


def test_a_tag_filter_lets_only_its_tags_through(client: LineClient, topic: str) -> None:
    for number in range(8):
        for tag in ("red", "green", "blue"):
            client.send(*plain_messages(topic, f"{tag} {number}", tag=tag))
    with client.push_consumer(topic, topic, expression="red || blue") as consumer:
        received = consumer.take(16)
    wanted = [f"{tag} {number}" for tag in ("red", "blue") for number in range(8)]
    assert Counter(message.body.decode() for message in received) == Counter(wanted)
    assert all(message.body.decode().split()[0] == message.tag for message in received)


def test_an_sql_filter_looks_at_properties(client: LineClient, topic: str) -> None:
    messages = [
        Outgoing(topic, f"{n}".encode(), properties={"size": f"{n}", "city": city})
        for n in range(10)
        for city in ("北京", "Köln")
    ]
    client.send(*messages)
    expression = "size BETWEEN 3 AND 5 AND city = '北京'"
    with client.push_consumer(topic, topic, expression=expression, sql=True) as found:
        received = found.take(3)
    assert sorted(message.body for message in received) == [b"3", b"4", b"5"]
    assert {message.properties["city"] for message in received} == {"北京"}


@pytest.mark.parametrize("from_last", [False, True], ids=["from_first", "from_last"])
def test_a_new_group_gets_all_of_a_young_topic(
    client: LineClient, topic: str, *, from_last: bool
) -> None:
    # A broker that still has a topic's first message starts every new group there, whatever
    # the group asked for.
    client.send(*plain_messages(topic, *range(2 * QUEUES)))
    with client.push_consumer(topic, topic, from_last=from_last) as consumer:
        received = consumer.take(2 * QUEUES)
    assert sorted(message.body for message in received) == [b"%d" % n for n in range(2 * QUEUES)]


def test_a_group_goes_on_where_it_stopped(client: LineClient, topic: str) -> None:
    # One queue has messages, the others have none: of those the clients commit -1.
    with client.push_consumer(topic, topic) as consumer:
        for number in (1, 2):
            client.send(Outgoing(topic, b"before", sharding_key="some key"))
            # The second pull commits the first message, so that the commits of all queues at the
            # end are not a group's first ones: of those, when they come together, the real broker
            # may lose some.
            consumer.take(number)
        consumer.until_committed()
    later = plain_messages(topic, *range(QUEUES))
    client.send(*later)
    with client.push_consumer(topic, topic) as consumer:
        received = consumer.take(len(later))
    assert sorted(message.body for message in received) == [message.body for message in later]


def test_a_delayed_message_waits_for_its_level(client: LineClient, topic: str) -> None:
    with client.push_consumer(topic, topic) as consumer:
        begin = time.monotonic()
        sent = client.send(Outgoing(topic, b"late", keys=["k"], delay_level=1))
        (delayed,) = consumer.take(1)
        elapsed_s = time.monotonic() - begin
    assert sent[0].ok
    assert delayed.body == b"late"
    assert delayed.topic == topic
    assert delayed.keys == ["k"]
    assert delayed.properties["DELAY"] == "1"
    assert delayed.properties["REAL_TOPIC"] == topic
    assert 0.9 < elapsed_s < 10


def test_a_refused_message_comes_again_until_it_is_taken(
    client: LineClient, go: GoClient, topic: str
) -> None:
    make_group(client, go, topic, topic)
    client.send(*plain_messages(topic, "good", "bad"))
    with client.push_consumer(topic, f"{topic}-other") as unconcerned, \
            client.push_consumer(topic, topic, failures=2) as consumer:  # fmt: skip
        received = consumer.take(6)
        assert len(unconcerned.take(2)) == 2
    for body in (b"good", b"bad"):
        rounds = [message for message in received if message.body == body]
        assert [message.reconsume_times for message in rounds] == [0, 1, 2]
        for message in rounds[1:]:
            assert_retried(message, rounds[0])


def assert_retried(message: Received, first: Received) -> None:
    """The broker's copy of a refused message has passed through a delay level and says so."""
    group = first.topic
    assert message.topic == first.topic
    assert message.offset_msg_id != first.offset_msg_id
    assert message.properties["UNIQ_KEY"] == first.properties["UNIQ_KEY"]
    assert message.properties["RETRY_TOPIC"] == first.topic
    assert message.properties["ORIGIN_MESSAGE_ID"] == first.offset_msg_id
    assert message.properties["REAL_TOPIC"] == f"%RETRY%{group}"
    assert message.properties["DELAY"] == f"{message.reconsume_times + 2}"


@pytest.mark.full
def test_every_broadcast_consumer_gets_everything(client: LineClient, topic: str) -> None:
    client.send(*plain_messages(topic, *range(QUEUES)))
    with client.push_consumer(topic, topic, broadcast=True) as one, \
            client.push_consumer(topic, topic, broadcast=True) as other:  # fmt: skip
        client.send(*plain_messages(topic, *range(QUEUES, 2 * QUEUES)))
        for consumer in (one, other):
            received = consumer.take(2 * QUEUES)
            assert sorted(message.body for message in received) == [
                b"%d" % number for number in range(2 * QUEUES)
            ]


def test_consumers_of_a_group_share_the_queues(client: LineClient, topic: str) -> None:
    check_sharing(client, [client, client], topic)


@pytest.mark.full
def test_a_go_and_a_node_consumer_share_the_queues_of_a_group(
    go: GoClient, node: NodeClient, topic: str
) -> None:
    check_sharing(go, [go, node], topic)


def check_sharing(producer: LineClient, clients: Sequence[LineClient], topic: str) -> None:
    with clients[0].push_consumer(topic, topic) as staying, \
            clients[1].push_consumer(topic, topic) as leaving:  # fmt: skip
        sharing = Sharing(producer, topic, [staying, leaving])
        sharing.until(lambda owners: sorted(map(list, owners.values())) == [[0], [0], [1], [1]])
        leaving.stop()
        sharing.until(lambda owners: list(owners.values()) == [{0}] * QUEUES)


class Sharing:
    """Who of several consumers has which queue, found out by sending to all of them."""

    def __init__(self, producer: LineClient, topic: str, consumers: Sequence[PushConsumer]) -> None:
        self._producer = producer
        self._topic = topic
        self._consumers = consumers
        self._deadline = time.monotonic() + SHARE_TIMEOUT_S

    def until(self, settled: Callable[[Owners], bool]) -> None:
        """Send round after round until the queues lie as wanted, and stay so."""
        last, same = self.round(), 1
        while same < ROUNDS_ALIKE or not settled(last):
            assert time.monotonic() < self._deadline, last
            owners = self.round()
            last, same = owners, same + 1 if owners == last else 1

    def round(self) -> Owners:
        """Send one message to every queue and return who got it, by queue."""
        sent = self._producer.send(*plain_messages(self._topic, *range(QUEUES)))
        places = [(answer.queue_id, answer.queue_offset) for answer in sent]
        assert sorted(queue for queue, _ in places) == list(range(QUEUES))
        while not (got := self._got()).keys() >= set(places):
            assert time.monotonic() < self._deadline, (places, got)
            time.sleep(0.01)
        return {queue: got[queue, offset] for queue, offset in sorted(places)}

    def _got(self) -> dict[tuple[int, int], set[int]]:
        found: dict[tuple[int, int], set[int]] = {}
        for number, consumer in enumerate(self._consumers):
            for message in consumer.received:
                found.setdefault(message.place, set()).add(number)
        return found
