"""What senders tried and were told, and whether what a group has in the end agrees with it."""

import statistics
from collections import defaultdict
from typing import NamedTuple

from cometmq.protocol.message import StoredMessage


class Ack(NamedTuple):
    client: str
    """Of which kind the sender was."""
    body: bytes
    queue_id: int
    offset: int
    began_s: float
    ended_s: float


def body_of(sender: int, number: int) -> bytes:
    return b"%d:%07d" % (sender, number)


def split_body(body: bytes) -> tuple[int, int]:
    sender, number = body.split(b":")
    return int(sender), int(number)


class History:
    """By kinds of clients; each has senders and a group that reads everything."""

    def __init__(self) -> None:
        self.tried: set[bytes] = set()
        self.acks: list[Ack] = []
        self.newest_s: dict[str, float] = defaultdict(float)
        """When the newest message began that was acknowledged."""
        self.received: dict[str, dict[bytes, float]] = defaultdict(dict)
        """When each message came for the first time."""
        self.faults: list[tuple[float, str]] = []

    def acknowledge(self, ack: Ack) -> None:
        self.acks.append(ack)
        self.newest_s[ack.client] = max(self.newest_s[ack.client], ack.began_s)

    def receive(self, client: str, body: bytes, at_s: float) -> None:
        self.received[client].setdefault(body, at_s)

    def missing(self, client: str) -> set[bytes]:
        """What was acknowledged and has not come to these readers."""
        return {ack.body for ack in self.acks} - self.received[client].keys()

    # -- outages ---------------------------------------------------------------------------------

    def outages(self, client: str) -> list[float]:
        """For each fault: how long until something was acknowledged that was sent after it."""
        acks = [ack for ack in self.acks if ack.client == client]
        return [
            min(ack.ended_s for ack in acks if ack.began_s >= at_s) - at_s
            for at_s, _ in self.faults
        ]

    def failovers(self, client: str) -> list[float]:
        """The outages of those faults that cost a group its leader."""
        faults = zip(self.faults, self.outages(client), strict=True)
        return [seconds for (_, name), seconds in faults if name.startswith("leader")]

    def silences(self, client: str) -> list[float]:
        """For each fault: how long until something came to readers that was sent after it."""
        came_s = self.received[client]
        came = [(ack.began_s, came_s[ack.body]) for ack in self.acks if ack.body in came_s]
        return [min(s for began, s in came if began >= at_s) - at_s for at_s, _ in self.faults]

    def report(self) -> str:
        kinds = sorted(self.newest_s)
        columns = {f"{kind} sends": self.outages(kind) for kind in kinds}
        columns |= {f"{kind} reads": self.silences(kind) for kind in kinds}
        lines = [f"{'seconds until':28}" + "".join(f"{head:>14}" for head in columns)]
        for number, (_, name) in enumerate(self.faults):
            row = "".join(f"{times[number]:14.2f}" for times in columns.values())
            lines.append(f"{name:28}{row}")
        lines += [_summary(f"{kind}, leaders lost", self.failovers(kind)) for kind in kinds]
        lines.append(f"{len(self.acks)} of {len(self.tried)} messages acknowledged")
        return "\n".join(lines)

    # -- verdicts --------------------------------------------------------------------------------

    def check(self, found: dict[int, list[StoredMessage]]) -> None:
        """Compare with all messages of all queues, in order."""
        for queue_id, messages in found.items():
            self._check_dense(queue_id, messages)
            self._check_order(messages)
        self._check_acks(found)
        stored = {message.body for messages in found.values() for message in messages}
        assert stored <= self.tried, f"invented: {sorted(stored - self.tried)[:5]}"
        self._check_received()

    def _check_dense(self, queue_id: int, messages: list[StoredMessage]) -> None:
        offsets = [message.queue_offset for message in messages]
        assert offsets == list(range(len(offsets))), f"queue {queue_id} has gaps"

    def _check_order(self, messages: list[StoredMessage]) -> None:
        """A sender sends one after the other; what was tried again may stand there twice."""
        newest: dict[int, int] = defaultdict(lambda: -1)
        for message in messages:
            sender, number = split_body(message.body)
            assert number >= newest[sender], f"{message.body!r} behind {newest[sender]}"
            newest[sender] = number

    def _check_acks(self, found: dict[int, list[StoredMessage]]) -> None:
        """Every acknowledged message is where its sender was told. Two leaders that both
        acknowledge would have given one place to two messages."""
        places = {(ack.queue_id, ack.offset) for ack in self.acks}
        assert len(places) == len(self.acks), "two messages were acknowledged at one place"
        lost = [
            ack
            for ack in self.acks
            if ack.offset >= len(found[ack.queue_id])
            or found[ack.queue_id][ack.offset].body != ack.body
        ]
        assert not lost, f"{len(lost)} acknowledged messages are lost, the first: {lost[0]}"

    def _check_received(self) -> None:
        for client, came in self.received.items():
            missing = self.missing(client)
            assert not missing, f"{client}: {len(missing)} never came: {sorted(missing)[:5]}"
            invented = came.keys() - self.tried
            assert not invented, f"{client}: from nowhere {sorted(invented)[:5]}"


def _summary(what: str, times: list[float]) -> str:
    if not times:
        return f"{what}: none"
    return (
        f"{what}: {len(times)}, median {statistics.median(times):.2f} s, longest {max(times):.2f} s"
    )
