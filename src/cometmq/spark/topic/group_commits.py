"""Committing for a consumer group that has no member here.

Topic by topic and broker by broker: one that is away is no reason for the others to be late. Queues
that are gone are left out. A broker that does not know the group gets it. Where an operator has
reset the group, it is put back to where the reader is: a reset stands until somebody pulls by the
group's name, which nobody else may ever do, and until then brokers ignore what is committed.
"""

import asyncio
import logging
import weakref
from collections.abc import Mapping
from typing import Final, NamedTuple

from cometmq.client.admin import Admin
from cometmq.client.admin.reach import together
from cometmq.client.errors import (
    ClientError,
    GroupNotFound,
    NoRoute,
    TopicNotFound,
)
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.routes import TopicRoute

from .offsets import ByQueue

log = logging.getLogger(__name__)
_MISSING: Final = "group %s: nothing is committed for what is not there now: %s"
_RESET: Final = "group %s was reset by hand; it is put back to where its reader is, in %s"
_told: "weakref.WeakKeyDictionary[Admin, set[tuple[str, MessageQueue]]]" = (
    weakref.WeakKeyDictionary()
)
"""Of which group and queue it was told that the queue is missing: once is enough."""


class _Place(NamedTuple):
    topic: str
    broker_name: str


async def commit(
    admin: Admin, group: str, offsets: Mapping[MessageQueue, int]
) -> dict[str, ClientError]:
    """Commit what can be committed now; by topic, why it could not. Queues that are gone count as
    committed."""
    parts: dict[_Place, ByQueue] = {}
    for queue, offset in offsets.items():
        parts.setdefault(_Place(queue.topic, queue.broker_name), {})[queue] = offset
    commits = _Commits(admin, group)
    errors = await asyncio.gather(*(commits.attempt(*part) for part in parts.items()))
    commits.tell()
    return {place.topic: error for place, error in zip(parts, errors, strict=True) if error}


class _Commits:
    """Of one group, each of one topic at one broker, and what is to be told of all together."""

    def __init__(self, admin: Admin, group: str) -> None:
        self._admin = admin
        self._group = group
        self._creating: dict[str, asyncio.Task[None]] = {}
        self._missing: set[MessageQueue] = set()
        self._put_back: set[MessageQueue] = set()

    async def attempt(self, place: _Place, offsets: ByQueue) -> ClientError | None:
        try:
            await self._commit_what_is_there(place, offsets)
        except ClientError as error:
            return error
        return None

    def tell(self) -> None:
        told = _told.setdefault(self._admin, set())
        new = {queue for queue in self._missing if (self._group, queue) not in told}
        told |= {(self._group, queue) for queue in new}
        for warning, queues in ((_MISSING, new), (_RESET, self._put_back)):
            if queues:
                log.warning(warning, self._group, ", ".join(sorted(map(str, queues))))

    # -- queues that are gone --------------------------------------------------------------------

    async def _commit_what_is_there(self, place: _Place, offsets: ByQueue) -> None:
        try:
            await self._commit_by_known_group(place, offsets)
        except (NoRoute, TopicNotFound):
            missing = await self._gone(place, offsets)
            if not missing:
                raise
            self._missing |= missing
            rest = {queue: at for queue, at in offsets.items() if queue not in missing}
            if rest:
                await self._commit_by_known_group(place, rest)

    async def _gone(self, place: _Place, offsets: ByQueue) -> set[MessageQueue]:
        try:
            route = await self._admin.topics.route(place.topic)
        except TopicNotFound:
            # Deleted, if its broker is there: while that is away, nobody knows its topics either.
            there = {node.name for node in await self._admin.brokers.nodes()}
            return set(offsets) if place.broker_name in there else set()
        return offsets.keys() - _queues_in(route, place.topic)

    # -- groups that are not there yet -----------------------------------------------------------

    async def _commit_by_known_group(self, place: _Place, offsets: ByQueue) -> None:
        try:
            await self._commit(offsets)
        except GroupNotFound:
            await self._create_at(place.broker_name)
            await self._commit(offsets)

    def _create_at(self, broker_name: str) -> asyncio.Task[None]:
        """Once, however many topics want it."""
        if broker_name not in self._creating:
            work = self._admin.groups.create(self._group, brokers=[broker_name])
            self._creating[broker_name] = asyncio.create_task(work)
        return self._creating[broker_name]

    # -- groups that were reset ------------------------------------------------------------------

    async def _commit(self, offsets: ByQueue) -> None:
        commit, group = self._admin.offsets.commit, self._group
        if ignored := await commit(group, offsets):
            await together(*(self._admin.offsets.take_reset(group, queue) for queue in ignored))
            still = await commit(group, {queue: offsets[queue] for queue in ignored})
            self._put_back |= ignored - still  # Somebody may have reset it again just now.


def _queues_in(route: TopicRoute, topic: str) -> set[MessageQueue]:
    there = {data.broker_name for data in route.broker_datas if data.broker_addrs}
    return {
        MessageQueue(topic, data.broker_name, number)
        for data in route.queue_datas
        if data.broker_name in there
        for number in range(data.read_queue_nums)
    }
