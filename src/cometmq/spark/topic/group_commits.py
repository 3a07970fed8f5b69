"""Committing for a consumer group that has no member here.

Topic by topic: one that was deleted, or whose broker is away, is no reason for the others to be
late. Nor is a queue that its topic has no more, which is left out.
"""

import asyncio
import logging
import weakref
from collections.abc import Mapping

from cometmq.client.admin import Admin
from cometmq.client.errors import ClientError, NoRoute
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.routes import TopicRoute

log = logging.getLogger(__name__)
_left_out: "weakref.WeakKeyDictionary[Admin, set[MessageQueue]]" = weakref.WeakKeyDictionary()
"""Queues that were told to be missing: once is enough."""


async def commit(
    admin: Admin, group: str, offsets: Mapping[MessageQueue, int]
) -> dict[str, ClientError]:
    """Commit what can be committed now; by topic, why it could not. Queues that are in no route
    count as committed."""
    topics = sorted({queue.topic for queue in offsets})
    parts = [{q: at for q, at in offsets.items() if q.topic == topic} for topic in topics]
    failures = await asyncio.gather(*(_commit_one(admin, group, part) for part in parts))
    return {topic: error for topic, error in zip(topics, failures, strict=True) if error}


async def _commit_one(
    admin: Admin, group: str, offsets: Mapping[MessageQueue, int]
) -> ClientError | None:
    try:
        await _commit_known(admin, group, offsets)
    except ClientError as error:
        return error
    return None


async def _commit_known(admin: Admin, group: str, offsets: Mapping[MessageQueue, int]) -> None:
    try:
        await admin.offsets.commit(group, offsets)
    except NoRoute:
        (topic,) = {queue.topic for queue in offsets}
        known = _queues_in(await admin.topics.route(topic), topic)
        missing = offsets.keys() - known
        if not missing:
            raise
        _tell(admin, group, missing)
        await admin.offsets.commit(group, {q: at for q, at in offsets.items() if q in known})


def _queues_in(route: TopicRoute, topic: str) -> set[MessageQueue]:
    there = {data.broker_name for data in route.broker_datas if data.broker_addrs}
    return {
        MessageQueue(topic, data.broker_name, number)
        for data in route.queue_datas
        if data.broker_name in there
        for number in range(data.read_queue_nums)
    }


def _tell(admin: Admin, group: str, missing: set[MessageQueue]) -> None:
    told = _left_out.setdefault(admin, set())
    if missing - told:
        names = ", ".join(sorted(str(queue) for queue in missing - told))
        log.warning("group %s: nothing is committed for what is not there now: %s", group, names)
        told |= missing
