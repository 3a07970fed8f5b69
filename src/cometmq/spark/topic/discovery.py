"""Which queues a read is about, and what each of them has, as NameServer and brokers tell it now.

Topics by name or pattern, or queues one by one. A topic that a stream has read from may be away,
since its brokers sign off when they are started anew; its queues are missing then, no more.
"""

import re
from collections.abc import Collection

from cometmq.client.admin import Admin
from cometmq.client.admin.progress import QueueStats
from cometmq.client.admin.reach import together
from cometmq.client.errors import TopicNotFound
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.topic_config import PERM_READ

from ..errors import BadOption
from .offsets import order, queue_text
from .options import SourceOptions

KnownQueues = dict[MessageQueue, QueueStats]
"""Queues with their first and their next offset."""


async def discover(
    admin: Admin, options: SourceOptions, known_topics: Collection[str] = ()
) -> KnownQueues:
    """All queues that can be read and are wanted, in order. `known_topics` may be away."""
    may_miss = set(known_topics)
    if options.pattern:
        # Topics for retries and dead letters are found by who asks for them.
        names = await admin.topics.names(internal="%" in options.pattern)
        topics = [name for name in names if re.fullmatch(options.pattern, name)]
        may_miss |= set(topics)
    else:
        topics = sorted({*options.topics, *(queue.topic for queue in options.assigned)})
    tables = await together(*(_queues_of(admin, topic, may_miss) for topic in topics))
    found = {queue: stats for table in tables for queue, stats in table.items()}
    return _wanted(found, options, first=not known_topics)


async def _queues_of(admin: Admin, topic: str, may_miss: Collection[str]) -> KnownQueues:
    try:
        route = await admin.topics.route(topic)
        stats = (await admin.topics.stats(topic)).queues
    except TopicNotFound:
        if topic in may_miss:
            return {}
        raise BadOption(f"there is no topic {topic}: create it first") from None
    readable = {
        MessageQueue(topic, data.broker_name, number)
        for data in route.queue_datas
        if data.perm & PERM_READ
        for number in range(data.read_queue_nums)
    }
    return {queue: told for queue, told in stats.items() if queue in readable}


def _wanted(found: KnownQueues, options: SourceOptions, *, first: bool) -> KnownQueues:
    if options.assigned:
        missing = [queue for queue in options.assigned if queue not in found]
        if missing and first:
            raise BadOption(f"assign: topic {missing[0].topic} has no {queue_text(missing[0])}")
        chosen = {queue: found[queue] for queue in options.assigned if queue in found}
    elif options.queues:
        names = set(options.queues)
        chosen = {q: told for q, told in found.items() if names & {queue_text(q), str(q.queue_id)}}
        if found and first and not chosen:
            raise BadOption(f"queues: none of {', '.join(options.queues)} is there")
    else:
        chosen = found
    return dict(sorted(chosen.items(), key=lambda item: order(item[0])))
