"""Offsets: where queues begin and end, where groups are in them, and moving groups.

A reset is kept by the broker until the group's members hear of it, so it holds for those that are
online, too. Committing is what members do themselves: of a group that is online, its members
commit over it.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command
from cometmq.protocol.message_queue import MessageQueue

from ..errors import BadAnswer, ConsumerNotOnline, IllegalArgument, NoRoute
from ..link import SUCCESS
from .moments import Moment, milliseconds
from .progress import decoded_maps, queues_in
from .pulling import PULLED_OR_NOT, pull_fields
from .reach import BrokerNode, Reach, together

EARLIEST: Literal["earliest"] = "earliest"
LATEST: Literal["latest"] = "latest"
Place = Moment | Literal["earliest", "latest"]
"""The first message stored at or after a moment, the queue's beginning, or its end."""

_END_MS = -1
_TIMESTAMPS = {EARLIEST: 0, LATEST: _END_MS}
_FOUND_OR_NOT = SUCCESS | {int(ResponseCode.QUERY_NOT_FOUND)}
_RESETS_ONE_QUEUE = 453
"""Brokers from this version on (5.2.0) reset a single queue; older ones would reset all."""
_IGNORED = "Offset has been previously reset"
"""What brokers say of a commit that counts for nothing, with the code of success."""


class _OffsetTable(msgspec.Struct, rename="camel"):
    offset_table: dict[str, int] = {}


class Offsets:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    # -- queues ----------------------------------------------------------------------------------

    async def min(self, queue: MessageQueue) -> int:
        """The offset of the first message that the queue still has."""
        return await self._at(await self._reach.holder(queue), queue, EARLIEST)

    async def max(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message will get."""
        return await self._at(await self._reach.holder(queue), queue, LATEST)

    async def search(self, queue: MessageQueue, when: Place) -> int:
        return await self._at(await self._reach.holder(queue), queue, when)

    async def search_topic(self, topic: str, when: Place) -> dict[MessageQueue, int]:
        """The offsets of a moment in all queues of a topic."""
        queues = await self._reach.queues(topic)
        found = await together(*(self._at(node, q, when) for q, node in queues.items()))
        return dict(zip(queues, found, strict=True))

    # -- groups ----------------------------------------------------------------------------------

    async def committed(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Where a group will go on; queues of which it has no offset are left out, or at 0 where
        brokers before 5.0 tell it so."""
        queues = await self._reach.queues(topic)
        answers = await together(*(self._committed_at(n, q, group) for q, n in queues.items()))
        found = zip(queues, answers, strict=True)
        return {queue: offset for queue, offset in found if offset is not None}

    async def commit(
        self, group: str, offsets: Mapping[MessageQueue, int]
    ) -> frozenset[MessageQueue]:
        """Commit as a member of the group would. The answer has the queues in which that counts
        for nothing, since a reset stands: the group's next pull there takes it (`take_reset`),
        `set` moves it."""
        nodes = await self._nodes_of(offsets)
        ignored: set[MessageQueue] = set()
        # One queue of each broker first: a silent one costs one time-out, however many it has.
        first = {nodes[queue]: queue for queue in offsets}.values()
        for some in (list(first), list(offsets.keys() - first)):
            asked = (self._commit_at(nodes[q], q, group, offsets[q]) for q in some)
            taken = zip(some, await together(*asked), strict=True)
            ignored |= {queue for queue, counts in taken if not counts}
        return frozenset(ignored)

    async def take_reset(self, group: str, queue: MessageQueue) -> None:
        """Have the broker know that the group has heard of a reset there, if one stands: from now
        on commits count. A pull in its name does that; what it brings is left alone."""
        fields = pull_fields(queue, 0, 1, group=group)
        node = await self._reach.holder(queue)
        await self._reach.ask(node, RequestCode.PULL_MESSAGE, fields, accept=PULLED_OR_NOT)

    async def reset(self, group: str, topic: str, to: Place) -> dict[MessageQueue, int]:
        """Have a group go on at a moment, at the beginning (`"earliest"`) or the end (`"latest"`)
        of every queue. The answer says where that is. Brokers before 5.2 move only groups that
        have offsets there already."""
        nodes = await self._reach.holders(topic)
        moved = await together(*(self._reset_at(node, group, topic, to) for node in nodes))
        return {queue: offset for table in moved for queue, offset in table.items()}

    async def skip(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Have a group leave out all messages that are there now."""
        return await self.reset(group, topic, LATEST)

    async def set(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Have a group go on at these offsets. At brokers before 5.2 that is a commit."""
        nodes = await self._nodes_of(offsets)
        await together(*(self._check_in_queue(nodes[q], q, o) for q, o in offsets.items()))
        await together(*(self._set_at(nodes[q], q, group, o) for q, o in offsets.items()))

    async def clone(self, source: str, target: str, topic: str, *, offline: bool = True) -> None:
        """Have one group go on where another one is. Without `offline` only in topics that the
        source, if it is online, subscribes to."""
        fields = {"srcGroup": source, "destGroup": target, "topic": topic, "offline": offline}
        nodes = await self._reach.holders(topic)
        await self._reach.ask_each(nodes, RequestCode.CLONE_GROUP_OFFSET, fields)

    # -- parts -----------------------------------------------------------------------------------

    async def _nodes_of(self, queues: Mapping[MessageQueue, int]) -> dict[MessageQueue, BrokerNode]:
        topics = sorted({queue.topic for queue in queues})
        known = await together(*(self._reach.queues(topic) for topic in topics))
        nodes = {queue: node for table in known for queue, node in table.items()}
        for queue in queues:
            if queue not in nodes:
                raise NoRoute(f"there is no {queue}")
        return nodes

    async def _at(self, node: BrokerNode, queue: MessageQueue, when: Place) -> int:
        fields: dict[str, object] = {"topic": queue.topic, "queueId": queue.queue_id}
        if when == EARLIEST:
            code = RequestCode.GET_MIN_OFFSET
        elif when == LATEST:
            code = RequestCode.GET_MAX_OFFSET
        else:
            code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            fields["timestamp"] = _timestamp(when)
        return _offset_in(await self._reach.ask(node, code, fields))

    async def _committed_at(self, node: BrokerNode, queue: MessageQueue, group: str) -> int | None:
        answer = await self._reach.ask(
            node,
            RequestCode.QUERY_CONSUMER_OFFSET,
            {**_place_of(group, queue), "setZeroIfNotFound": False},
            accept=_FOUND_OR_NOT,
        )
        return _offset_in(answer) if answer.code == ResponseCode.SUCCESS else None

    async def _commit_at(
        self, node: BrokerNode, queue: MessageQueue, group: str, offset: int
    ) -> bool:
        """False if the broker ignores it because a reset stands."""
        fields = {**_place_of(group, queue), "commitOffset": offset}
        answer = await self._reach.ask(node, RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        return answer.remark != _IGNORED

    async def _reset_at(
        self, node: BrokerNode, group: str, topic: str, to: Place
    ) -> dict[MessageQueue, int]:
        fields = {"group": group, "topic": topic, "timestamp": _timestamp(to), "isForce": True}
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        try:
            answer = await self._reach.ask(node, code, fields)
        except ConsumerNotOnline:  # From brokers before 5.2: they move members only.
            return await self._commit_place(node, group, topic, to)
        return queues_in(decoded_maps(answer, _OffsetTable, "new offsets").offset_table)

    async def _commit_place(
        self, node: BrokerNode, group: str, topic: str, to: Place
    ) -> dict[MessageQueue, int]:
        queues = [queue for queue, at in (await self._reach.queues(topic)).items() if at == node]
        places = await together(*(self._at(node, queue, to) for queue in queues))
        offsets = dict(zip(queues, places, strict=True))
        await together(*(self._commit_at(node, q, group, o) for q, o in offsets.items()))
        return offsets

    async def _check_in_queue(self, node: BrokerNode, queue: MessageQueue, offset: int) -> None:
        low = await self._at(node, queue, EARLIEST)
        high = await self._at(node, queue, LATEST)
        if not low <= offset <= high:
            raise IllegalArgument(f"offset {offset} is not in {low} to {high} of {queue}")

    async def _set_at(self, node: BrokerNode, queue: MessageQueue, group: str, offset: int) -> None:
        probe = {"topic": queue.topic, "queueId": queue.queue_id}
        version = (await self._reach.ask(node, RequestCode.GET_MIN_OFFSET, probe)).version
        if version < _RESETS_ONE_QUEUE:
            await self._commit_at(node, queue, group, offset)
            return
        # With this time, and without force, a broker that knows no single queues moves none back.
        fields = {
            "group": group, "topic": queue.topic, "queueId": queue.queue_id, "offset": offset,
            "timestamp": _END_MS, "isForce": False,
        }  # fmt: skip
        await self._reach.ask(node, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)


def _timestamp(place: Place) -> int:
    if isinstance(place, str):
        if place not in _TIMESTAMPS:
            raise IllegalArgument(f"{place!r}: earliest, latest or a moment is expected")
        return _TIMESTAMPS[place]
    if (when_ms := milliseconds(place)) < 0:
        raise IllegalArgument(f"{when_ms} ms is no moment since 1970")
    return when_ms


def _place_of(group: str, queue: MessageQueue) -> dict[str, object]:
    return {"consumerGroup": group, "topic": queue.topic, "queueId": queue.queue_id}


def _offset_in(answer: Command) -> int:
    try:
        return int(answer.text_fields()["offset"])
    except (KeyError, ValueError) as error:
        raise BadAnswer(f"an answer without an offset: {error}") from None
