"""Which queues of a topic a member of a group gets: RocketMQ's strategies.

Every member decides for itself, so all must come to the same division. For the same input each
strategy here answers as the Java class of the same name does, down to repeated member ids. That
holds for queues and members in Java's order, which `queue_order` and `text_order` give as sort
keys. Who the members are and what becomes of a queue given away is not known here.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from dataclasses import dataclass
from hashlib import md5
from typing import ClassVar, Protocol, TypeVar

from cometmq.protocol.message_queue import MessageQueue

Placed = TypeVar("Placed", bound=Hashable)

VIRTUAL_NODES = 10
"""RocketMQ's default. All members of a group must use the same number."""


class Allocation(Protocol):
    """Any function of this shape is a strategy.

    Queues and members come sorted. A client that is not a member gets nothing.
    """

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str], /
    ) -> list[MessageQueue]: ...


def name_of(allocation: Allocation) -> str:
    """RocketMQ's name of a strategy, or that of one's own function or class."""
    own = getattr(allocation, "__name__", type(allocation).__name__)
    return str(getattr(allocation, "name", own))


def text_order(text: str) -> bytes:
    """Sorts texts as Java does: by UTF-16 code units, where U+1F600 stands before U+FF5E."""
    return text.encode("utf-16-be", "surrogatepass")


def queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    """Sorts queues as Java does: by topic, broker and number."""
    return text_order(queue.topic), text_order(queue.broker_name), queue.queue_id


def machine_room(broker_name: str) -> str | None:
    """The room of a broker named `room@name`; None for any other name."""
    # Java's split drops the empty parts at the end, so `room@name@` has a room, too.
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


@dataclass(frozen=True)
class Averagely:
    """Neighbouring queues to each member; the first members get one more if they don't divide."""

    name: ClassVar[str] = "AVG"

    def __call__(
        self, _group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str], /
    ) -> list[MessageQueue]:
        if client_id not in members:
            return []
        place = members.index(client_id)
        each, left = divmod(len(queues), len(members))
        start = place * each + min(place, left)
        return list(queues[start : start + each + (place < left)])


@dataclass(frozen=True)
class AveragelyByCircle:
    """Queues dealt out one by one, which spreads each broker over the members."""

    name: ClassVar[str] = "AVG_BY_CIRCLE"

    def __call__(
        self, _group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str], /
    ) -> list[MessageQueue]:
        if client_id not in members:
            return []
        return list(queues[members.index(client_id) :: len(members)])


@dataclass(frozen=True)
class ByConfiguration:
    """The same queues always, whoever the members are."""

    queues: Sequence[MessageQueue]
    name: ClassVar[str] = "CONFIG"

    def __call__(
        self,
        _group: str,
        _client_id: str,
        _queues: Sequence[MessageQueue],
        _members: Sequence[str],
        /,
    ) -> list[MessageQueue]:
        return list(self.queues)


@dataclass(frozen=True)
class ByMachineRoom:
    """Only queues of brokers named `room@name` with one of these rooms; nobody gets the others."""

    rooms: Set[str]
    name: ClassVar[str] = "MACHINE_ROOM"

    def __call__(
        self, _group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str], /
    ) -> list[MessageQueue]:
        if client_id not in members:
            return []
        place = members.index(client_id)
        inside = [queue for queue in queues if machine_room(queue.broker_name) in self.rooms]
        each, left = divmod(len(inside), len(members))
        # Unlike AVG: equal blocks first, then what is left over, one by one.
        extra = len(inside) - left + place
        return inside[place * each : (place + 1) * each] + inside[extra : extra + (place < left)]


@dataclass(frozen=True)
class ConsistentHash:
    """Members and queues on a ring of hashes; a new member takes queues only for itself."""

    virtual_nodes: int = VIRTUAL_NODES
    name: ClassVar[str] = "CONSISTENT_HASH"

    def __post_init__(self) -> None:
        if self.virtual_nodes < 1:
            raise ValueError(f"virtual_nodes must be 1 or more, not {self.virtual_nodes}")

    def __call__(
        self, _group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str], /
    ) -> list[MessageQueue]:
        if client_id not in members:
            return []
        ring = self._ring(members)
        points = sorted(ring)

        def owner(queue: MessageQueue) -> str:
            nearest = bisect_left(points, _ring_point(_java_text(queue)))
            return ring[points[nearest % len(points)]]

        return [queue for queue in queues if owner(queue) == client_id]

    def _ring(self, members: Sequence[str]) -> dict[int, str]:
        # An id that is listed twice has twice as many nodes.
        return {
            _ring_point(f"{member}-{node}"): member
            for member, times in Counter(members).items()
            for node in range(times * self.virtual_nodes)
        }


@dataclass(frozen=True)
class MachineRoomNearby:
    """Queues of a room go to members in that room; those of rooms without members go to all.

    `inner` divides each room. The two functions say where a broker and a client stand.
    """

    inner: Allocation
    room_of_queue: Callable[[MessageQueue], str]
    room_of_client: Callable[[str], str]

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{name_of(self.inner)}"

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str], /
    ) -> list[MessageQueue]:
        if client_id not in members:
            return []
        queues_in = _by_room(queues, self.room_of_queue)
        members_in = _by_room(members, self.room_of_client)
        here = self.room_of_client(client_id)
        allocated: list[MessageQueue] = []
        if near := queues_in.pop(here, None):
            allocated += self.inner(group, client_id, near, members_in[here])
        for room in sorted(queues_in.keys() - members_in.keys(), key=text_order):
            allocated += self.inner(group, client_id, queues_in[room], members)
        return allocated


def _by_room(things: Iterable[Placed], room_of: Callable[[Placed], str]) -> dict[str, list[Placed]]:
    rooms: dict[str, list[Placed]] = {}
    for thing in things:
        room = room_of(thing)
        if not room:
            raise ValueError(f"{thing} has no machine room; the strategy needs one for each")
        rooms.setdefault(room, []).append(thing)
    return rooms


def _java_text(queue: MessageQueue) -> str:
    """What Java's MessageQueue.toString gives; a queue stands on the ring by its hash."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


def _ring_point(key: str) -> int:
    """The first four bytes of the MD5: a place, nothing secret."""
    return int.from_bytes(md5(key.encode(), usedforsecurity=False).digest()[:4], "big")
