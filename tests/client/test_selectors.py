"""Which queue a key gets: the same as from a Java producer."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cometmq.client.selectors import by_hash, by_machine_room, by_random, java_hash
from cometmq.protocol.message_queue import MessageQueue

ROWS = json.loads((Path(__file__).parent / "allocations.json").read_text(encoding="utf-8"))
KEYS = [row for row in ROWS if "key" in row]
MESSAGE = object()
"""No selector here looks at it."""


def queues_at(*brokers: str, each: int = 4) -> list[MessageQueue]:
    return [MessageQueue("topic", broker, number) for broker in brokers for number in range(each)]


def test_a_key_gets_the_queue_that_javas_hash_selector_gives_it() -> None:
    assert {type(row["key"]) for row in KEYS} == {str, int}
    for row in KEYS:
        queues = queues_at("broker", each=row["count"])
        assert by_hash(queues, MESSAGE, row["key"]) is queues[row["queue"]], row


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("", 0),
        ("polygenelubricants", -(2**31)),
        ("😀", 1_772_899),
        (-1, -1),
        (2**31 - 1, 2**31 - 1),
        (2**31, -(2**31)),
        (2**32 + 7, 6),
        (-(2**63), -(2**31)),
    ],
)
def test_the_hash_of_a_key_is_javas(key: object, hashed: int) -> None:
    assert java_hash(key) == hashed


@pytest.mark.parametrize("key", [None, True, 1.5, b"key", uuid4()], ids=repr)
def test_a_key_without_a_common_hash_is_refused(key: object) -> None:
    with pytest.raises(TypeError, match=f"not {type(key).__name__}: .*use str"):
        by_hash(queues_at("broker"), MESSAGE, key)


@pytest.mark.parametrize("key", [2**63, -(2**63) - 1])
def test_a_number_too_long_for_java_is_refused(key: int) -> None:
    with pytest.raises(ValueError, match="at most 64 bits"):
        by_hash(queues_at("broker"), MESSAGE, key)


def test_chance_reaches_every_queue_and_no_other() -> None:
    queues = queues_at("a", "b")
    assert {by_random(queues, MESSAGE, None) for _ in range(1000)} == set(queues)


def test_a_message_goes_only_to_brokers_in_the_rooms() -> None:
    select = by_machine_room({"room1", "room3"})
    queues = queues_at("room1@a", "room2@a", "room3@a", "room1")
    picked = {select(queues, MESSAGE, None).broker_name for _ in range(1000)}
    assert picked == {"room1@a", "room3@a"}


def test_inside_the_rooms_another_selector_picks() -> None:
    select = by_machine_room({"room2"}, inside=by_hash)
    queues = queues_at("room1@a", "room2@a")
    assert [select(queues, MESSAGE, key).queue_id for key in range(5)] == [0, 1, 2, 3, 0]


def test_rooms_without_a_broker_are_an_error_that_names_them() -> None:
    with pytest.raises(ValueError, match=r"topic topic is in the machine rooms \['room9'\]"):
        by_machine_room({"room9"})(queues_at("room1@a"), MESSAGE, None)


def test_the_selector_inside_sees_the_message() -> None:
    def by_size(queues: Any, message: bytes, key: object) -> MessageQueue:
        chosen: MessageQueue = queues[len(message)]
        return chosen

    select = by_machine_room({"room1"}, inside=by_size)
    assert select(queues_at("room1@a"), b"two", None).queue_id == 3
