"""What was sent, what was acknowledged, what each group was given: written down as it happens.

The verdict compares it with what brokers have in the end. A group may get a message several times;
it may miss none that was acknowledged. Times are the machine's monotonic clock, the same in all of
its processes.
"""

import asyncio
import dataclasses
import itertools
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from cometmq.client.producer.results import SendResult
from cometmq.protocol.message_queue import MessageQueue

Place = tuple[MessageQueue, int]
"""A message by its queue and offset."""
Stored = Mapping[Place, bytes]
"""All messages that brokers have in the end."""
Committed = Mapping[MessageQueue, int]
"""Where a group is."""


@dataclasses.dataclass(eq=False)
class Delivery:
    """One call of a handler; of a pull consumer, from one poll to the next."""

    member: str
    place: Place
    body: bytes
    began_ns: int
    ended_ns: int = 0
    """0 while it lasts."""
    is_done: bool = False
    """Whether the handler came to its end."""
    is_excused: bool = False
    """Whether it was at work when all that kept others from its queue was lost."""


class Group:
    """What the members of one group were given, in the order of their beginnings."""

    def __init__(self, name: str, *, is_orderly: bool) -> None:
        self.name = name
        self.is_orderly = is_orderly
        self.deliveries: list[Delivery] = []
        self.bodies_done: set[bytes] = set()
        self.commits: list[tuple[int, Committed]] = []
        """What was seen to be committed, and when."""

    def saw_committed(self, offsets: Committed) -> None:
        self.commits.append((time.monotonic_ns(), offsets))

    def first_ends(self) -> dict[Place, int]:
        """When each message was finished for the first time."""
        ends: dict[Place, int] = {}
        for one in self.deliveries:
            if one.is_done:
                ends[one.place] = min(one.ended_ns, ends.get(one.place, one.ended_ns))
        return ends

    def by_queue(self) -> dict[MessageQueue, list[Delivery]]:
        queues: dict[MessageQueue, list[Delivery]] = defaultdict(list)
        for delivery in sorted(self.deliveries, key=lambda delivery: delivery.began_ns):
            queues[delivery.place[0]].append(delivery)
        return queues


class Ledger:
    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.acknowledged: dict[bytes, Place] = {}
        self.failures: list[str] = []
        """Why sends failed: a fault may cost sends, as long as their senders hear of it."""
        self.groups: dict[str, Group] = {}
        self._numbers = itertools.count()
        self._changed = asyncio.Event()

    # -- writing ---------------------------------------------------------------------------------

    def next_body(self, sender: str) -> bytes:
        body = f"{sender} {next(self._numbers)}".encode()
        self.sent.add(body)
        return body

    def acknowledge(self, body: bytes, result: SendResult) -> None:
        self.acknowledged[body] = result.queue, result.queue_offset
        self._changed.set()

    def group(self, name: str, *, is_orderly: bool = False) -> Group:
        if name not in self.groups:
            self.groups[name] = Group(name, is_orderly=is_orderly)
        return self.groups[name]

    def begin(
        self, group: Group, member: str, place: Place, body: bytes, at_ns: int = 0
    ) -> Delivery:
        delivery = Delivery(member, place, body, at_ns or time.monotonic_ns())
        group.deliveries.append(delivery)
        self._changed.set()
        return delivery

    def end(self, group: Group, delivery: Delivery, at_ns: int = 0) -> None:
        delivery.ended_ns = at_ns or time.monotonic_ns()
        delivery.is_done = True
        group.bodies_done.add(delivery.body)
        self._changed.set()

    def excuse_open(self, group: Group, member: str = "") -> None:
        """Let it be no fault that others go on beside what is at work now."""
        for delivery in group.deliveries:
            if not delivery.ended_ns and member in ("", delivery.member):
                delivery.is_excused = True

    # -- reading ---------------------------------------------------------------------------------

    async def until(self, fact: Callable[[], bool], what: str, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not fact():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"not within {within_s:g} s: {what}; {self.summary()}") from None

    def missing(self, group: Group) -> set[bytes]:
        """Acknowledged, but not consumed by a group so far."""
        return self.acknowledged.keys() - group.bodies_done

    def summary(self) -> str:
        groups = ", ".join(
            f"{group.name} got {len(group.deliveries)} and misses {sorted(self.missing(group))[:5]}"
            for group in self.groups.values()
        )
        return (
            f"{len(self.sent)} sent, {len(self.acknowledged)} acknowledged, "
            f"{len(self.failures)} failed; {groups}; failures: {self.failures[-3:]}"
        )


# -- the verdict ---------------------------------------------------------------------------------


def faults_of(ledger: Ledger, stored: Stored) -> list[str]:
    """All that is wrong; nothing, it is to be hoped."""
    wrong = [
        f"{body!r} was acknowledged at {place} and is not there: lost"
        for body, place in ledger.acknowledged.items()
        if stored.get(place) != body
    ]
    for group in ledger.groups.values():
        wrong += [f"{group.name} never got {body!r}: lost" for body in ledger.missing(group)]
        wrong += [f"{group.name} got {body!r}, never sent" for body in _made_up(ledger, group)]
        wrong += _committed_too_far(group, stored)
        if group.is_orderly:
            wrong += _out_of_order(group, stored)
    return wrong


def _made_up(ledger: Ledger, group: Group) -> set[bytes]:
    return {delivery.body for delivery in group.deliveries} - ledger.sent


def _committed_too_far(group: Group, stored: Iterable[Place]) -> list[str]:
    """What is committed was finished before: else it is lost when its member dies."""
    ends = group.first_ends()
    return [
        f"{group.name} committed {offsets[queue]} in {queue} before {offset} was finished"
        for queue, offset in stored
        for at_ns, offsets in group.commits
        if offset < offsets.get(queue, 0) and ends.get((queue, offset), sys.maxsize) > at_ns
    ]


def _out_of_order(group: Group, stored: Iterable[Place]) -> list[str]:
    """In order means for each queue: never two handlers at once, and none begins with a message
    before all those ahead of it were finished. Repeats of finished ones are allowed."""
    wrong = []
    ends = group.first_ends()
    for queue, deliveries in group.by_queue().items():
        offsets = sorted(offset for at, offset in stored if at == queue)
        ahead_of = {later: earlier for earlier, later in itertools.pairwise(offsets)}
        wrong += _side_by_side(queue, deliveries)
        wrong += [
            f"{queue}: {one.place[1]} was begun before {ahead_of[one.place[1]]} was finished"
            for one in deliveries
            if one.place[1] in ahead_of
            and ends.get((queue, ahead_of[one.place[1]]), sys.maxsize) > one.began_ns
        ]
    return wrong


def _side_by_side(queue: MessageQueue, deliveries: list[Delivery]) -> list[str]:
    wrong = []
    latest: Delivery | None = None
    for delivery in deliveries:
        if latest is not None and delivery.began_ns < (latest.ended_ns or sys.maxsize):
            wrong.append(
                f"{queue}: {delivery.member} began {delivery.place[1]} while {latest.member} was "
                f"at work on {latest.place[1]}"
            )
        if not delivery.is_excused:
            latest = delivery
    return wrong
