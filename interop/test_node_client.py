"""What is peculiar to the Node.js client; what it shares is in `test_foreign_clients`."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from interop.line_client import QUEUES, LineClientError, Outgoing, by_key
from interop.node_client import NodeClient


def queue_of(sharding_key: str) -> int:
    """The queue that the client picks for a key."""
    digest = hashlib.md5(sharding_key.encode()).digest()
    return int.from_bytes(digest[:4], "big") % QUEUES


def test_an_unknown_topic_is_refused_in_the_words_of_the_name_server(
    node: NodeClient, unique_name: str
) -> None:
    # The client takes the answer for an error before it could try the default topic's route.
    words = f"No topic route info in name server for the topic: {unique_name}\nSee "
    with pytest.raises(LineClientError, match=words):
        node.send(Outgoing(unique_name, b"nowhere to go"))


def test_a_unicode_tag_filters(node: NodeClient, topic: str) -> None:
    # The Go client cannot: it hashes bytes where a broker hashes UTF-16.
    tags = ["红", "绿", "蓝😀"] * QUEUES
    node.send(*(Outgoing(topic, tag.encode(), tag=tag) for tag in tags))
    with node.push_consumer(topic, topic, expression="红 || 蓝😀") as consumer:
        received = consumer.take(2 * QUEUES)
    assert Counter(message.body.decode() for message in received) == {"红": QUEUES, "蓝😀": QUEUES}
    assert all(message.tag == message.body.decode() for message in received)


def test_messages_with_a_sharding_key_keep_their_order(node: NodeClient, topic: str) -> None:
    # Keys that belong to queue 0 the client deals out over all queues, so they have no order.
    keys = [key for key in (f"客户-{number}" for number in range(20)) if queue_of(key) != 0]
    for number in range(10):
        node.send(*(Outgoing(topic, b"%d" % number, keys=[k], sharding_key=k) for k in keys))
    with node.push_consumer(topic, topic) as consumer:
        received = consumer.take(10 * len(keys))
    found = by_key(received)
    assert found.keys() == set(keys)
    for key, of_key in found.items():
        assert [int(message.body) for message in of_key] == list(range(10))
        assert {message.queue_id for message in of_key} == {queue_of(key)}
        assert {message.properties["__SHARDING_KEY"] for message in of_key} == {key}
