"""Who gets which queues. All members of a group must agree, Java's among them.

`allocations.json` holds what the strategies of RocketMQ's Java clients 4.9.8 and 5.5.0 answer to
random groups; `python -m interop.allocations_table` makes it. An answer lists, for each member in
Java's order, positions in the question's list of queues.
"""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.client.allocation import (
    Allocation,
    Averagely,
    AveragelyByCircle,
    ByConfiguration,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    machine_room,
    name_of,
    queue_order,
    text_order,
)
from cometmq.protocol.message_queue import MessageQueue

ROWS = json.loads((Path(__file__).parent / "allocations.json").read_text(encoding="utf-8"))
GROUPS = [row for row in ROWS if "members" in row]
GROUP = "group"


def before_at(name: str) -> str:
    """The rooms of the generator: what stands before the @, `elsewhere` for all other names."""
    at = name.find("@")
    return name[:at] if at > 0 else "elsewhere"


def room_of_queue(queue: MessageQueue) -> str:
    return before_at(queue.broker_name)


NEARBY = MachineRoomNearby(Averagely(), room_of_queue, before_at)
COMPLETE: list[Allocation] = [Averagely(), AveragelyByCircle(), ConsistentHash(), NEARBY]
EVEN: list[Allocation] = [Averagely(), AveragelyByCircle()]

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
groups = st.sets(names, min_size=1, max_size=9).map(lambda found: sorted(found, key=text_order))
topics = st.sets(st.tuples(names, st.integers(0, 9)), min_size=1, max_size=40).map(
    lambda found: sorted((MessageQueue("t", *queue) for queue in found), key=queue_order)
)


def queues_of(row: Any) -> list[MessageQueue]:
    pairs = zip(row["brokers"], row["ids"], strict=True)
    return [MessageQueue(row["topic"], broker, number) for broker, number in pairs]


def shares(
    allocation: Allocation, queues: list[MessageQueue], members: list[str]
) -> dict[str, list[MessageQueue]]:
    return {member: allocation(GROUP, member, queues, members) for member in members}


@pytest.mark.parametrize("name", [name for name in GROUPS[0] if name.isupper()])
def test_every_member_gets_what_the_java_client_would_give_it(name: str) -> None:
    for row in GROUPS:
        queues = queues_of(row)
        built_in: list[Allocation] = [
            Averagely(),
            AveragelyByCircle(),
            ByConfiguration(queues[:1]),
            ByMachineRoom(set(row["rooms"])),
            ConsistentHash(row["nodes"]),
            NEARBY,
        ]
        allocation = {name_of(one): one for one in built_in}[name]
        ours = shares(
            allocation, sorted(queues, key=queue_order), sorted(row["members"], key=text_order)
        )
        assert list(ours.values()) == [[queues[i] for i in share] for share in row[name]], row


def test_the_table_has_groups_where_each_strategy_gives_something_to_somebody() -> None:
    assert len(GROUPS) >= 80
    for name in (name for name in GROUPS[0] if name.isupper()):
        assert sum(any(row[name]) for row in GROUPS) > len(GROUPS) / 2, name
    assert any(len(set(row["members"])) < len(row["members"]) for row in GROUPS)


@pytest.mark.parametrize("allocation", COMPLETE, ids=name_of)
@given(queues=topics, members=groups)
def test_each_queue_goes_to_exactly_one_member(
    allocation: Allocation, queues: list[MessageQueue], members: list[str]
) -> None:
    given_out = [queue for share in shares(allocation, queues, members).values() for queue in share]
    assert Counter(given_out) == Counter(queues)


@pytest.mark.parametrize("allocation", EVEN, ids=name_of)
@given(queues=topics, members=groups)
def test_no_member_has_two_queues_more_than_another(
    allocation: Allocation, queues: list[MessageQueue], members: list[str]
) -> None:
    loads = [len(share) for share in shares(allocation, queues, members).values()]
    assert max(loads) - min(loads) <= 1


@given(queues=topics, members=groups, newcomer=names)
def test_on_the_ring_a_new_member_takes_queues_only_for_itself(
    queues: list[MessageQueue], members: list[str], newcomer: str
) -> None:
    before = shares(ConsistentHash(), queues, members)
    after = shares(ConsistentHash(), queues, sorted({*members, newcomer}, key=text_order))
    for member in set(members) - {newcomer}:
        assert set(after[member]) <= set(before[member])


def test_on_the_ring_a_tenth_member_moves_about_a_tenth_of_the_queues() -> None:
    chance = random.Random(1)
    queues = [MessageQueue("t", f"broker-{n // 100}", n % 100) for n in range(1000)]
    members = sorted(f"10.0.0.{chance.randrange(255)}@{n}" for n in range(10))
    for newcomer in members:
        moved = ConsistentHash(100)(GROUP, newcomer, queues, members)
        assert 40 < len(moved) < 200


@pytest.mark.parametrize("allocation", [*COMPLETE, ByMachineRoom({"room1"})], ids=name_of)
def test_a_client_that_is_no_member_gets_nothing(allocation: Allocation) -> None:
    queues = [MessageQueue("t", "room1@a", number) for number in range(4)]
    assert allocation(GROUP, "member", queues, ["member"]) == queues
    assert allocation(GROUP, "stranger", queues, ["member"]) == []
    assert allocation(GROUP, "stranger", queues, []) == []


@pytest.mark.parametrize("allocation", [*COMPLETE, ByMachineRoom({"room1"})], ids=name_of)
def test_a_topic_without_queues_gives_nothing(allocation: Allocation) -> None:
    assert allocation(GROUP, "member", [], ["member"]) == []


def test_queues_of_brokers_in_other_rooms_go_to_nobody() -> None:
    brokers = ("room1@a", "room2@a", "room3@a", "plain")
    queues = [MessageQueue("t", broker, 0) for broker in brokers]
    ours = shares(ByMachineRoom({"room1", "room3"}), queues, ["m1", "m2", "m3"])
    assert ours == {"m1": [queues[0]], "m2": [queues[2]], "m3": []}


@pytest.mark.parametrize(
    ("broker", "room"),
    [("r@a", "r"), ("r@a@@", "r"), ("@a", ""), ("r@", None), ("r", None), ("r@a@b", None)],
)
def test_a_room_is_read_from_a_name_of_two_parts(broker: str, room: str | None) -> None:
    assert machine_room(broker) == room


def test_a_room_of_its_own_serves_itself_and_orphaned_rooms_are_shared() -> None:
    queues = [MessageQueue("t", broker, 0) for broker in ("east@a", "north@a", "north@b", "west@a")]
    ours = shares(NEARBY, queues, ["east@1", "west@1"])
    assert ours == {"east@1": [queues[0], queues[1]], "west@1": [queues[3], queues[2]]}


def test_a_nearby_strategy_needs_to_know_every_room() -> None:
    nowhere = MachineRoomNearby(Averagely(), room_of_queue, lambda _: "")
    with pytest.raises(ValueError, match="member has no machine room"):
        nowhere(GROUP, "member", [MessageQueue("t", "b", 0)], ["member"])


def test_a_ring_needs_nodes() -> None:
    with pytest.raises(ValueError, match="virtual_nodes must be 1 or more, not 0"):
        ConsistentHash(0)


def test_any_function_is_a_strategy_and_goes_by_its_name() -> None:
    def all_for_the_first(
        group: str, client_id: str, queues: Any, members: Any
    ) -> list[MessageQueue]:
        return list(queues) if client_id == members[0] else []

    nearby = MachineRoomNearby(all_for_the_first, room_of_queue, before_at)
    queues = [MessageQueue("t", "east@a", number) for number in range(2)]
    assert name_of(nearby) == "MACHINE_ROOM_NEARBY-all_for_the_first"
    assert nearby(GROUP, "east@2", queues, ["east@1", "east@2"]) == []
    assert nearby(GROUP, "east@1", queues, ["east@1", "east@2"]) == queues
