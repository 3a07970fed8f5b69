"""Which queues a read is about, and what each of them has, as NameServer and brokers tell it now.

Topics by name or pattern, or queues one by one. A topic that a stream has read from may be away,
since its brokers sign off when they are started anew; its queues are missing then, no more, and so
are those of a broker that is listed and does not answer. Where queues begin and end is for masters
to say: of what slaves tell, only that counts which a stream can go on with.
"""

import asyncio
import logging
import re
from collections.abc import Collection, Iterable

from cometmq.client.admin import Admin
from cometmq.client.admin.progress import QueueStats
from cometmq.client.admin.reach import together
from cometmq.client.errors import NoRoute, TopicNotFound
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from cometmq.protocol.routes import MASTER_ID, BrokerData, QueueData, TopicRoute
from cometmq.protocol.topic_config import PERM_READ

from ..errors import BadOption, NotThere
from .copies import without_master
from .offsets import ByQueue, order, queue_text
from .options import SourceOptions
from .patience import AWAY

log = logging.getLogger(__name__)
_TOPICS_AT_ONCE = 4
"""Of which one broker is asked at the same time."""
KnownQueues = dict[MessageQueue, QueueStats]
"""Queues with their first and their next offset."""


async def discover(
    admin: Admin,
    options: SourceOptions,
    places: ByQueue | None = None,
    *,
    all_answer: bool = False,
) -> KnownQueues:
    """All queues that can be read and are wanted, in order. `places` are those that a stream has
    reached: their queues may be away, those of brokers that are listed only unless `all_answer`.
    Without them all must be there, masters included."""
    if places is None:
        await _require_brokers(admin, {queue.broker_name for queue in options.assigned})
    may_miss = {queue.topic for queue in places or ()}
    if options.pattern:
        topics = await _matching(admin, options.pattern)
        may_miss |= set(topics)
    else:
        topics = sorted({*options.topics, *(queue.topic for queue in options.assigned)})
    look = _Look(admin, all_answer=all_answer or places is None)
    tables = await together(*(_queues_of(admin, look, topic, may_miss) for topic in topics))
    found = {queue: stats for table, _ in tables for queue, stats in table.items()}
    copies = {queue for table, away in tables for queue in table if queue.broker_name in away}
    return _credible(_wanted(found, options, first=places is None), copies, places)


async def _matching(admin: Admin, pattern: str) -> list[str]:
    """Topics for retries and dead letters are found by who asks for them, with a `%`. The system's
    own are for who names them: nobody means them with `.*`."""
    names = set(await admin.topics.names())
    if "%" in pattern:
        every = await admin.topics.names(internal=True)
        names |= {name for name in every if name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))}
    return sorted(name for name in names if re.fullmatch(pattern, name))


async def gone(admin: Admin, queues: Collection[MessageQueue]) -> set[MessageQueue]:
    """Those that are no more, though the master of their broker is there. A topic that may not be
    read from has its queues all the same."""
    there = (await admin.brokers.cluster_info()).broker_addr_table
    masters = {name for name, data in there.items() if MASTER_ID in data.broker_addrs}
    held = [queue for queue in queues if queue.broker_name in masters]
    topics = sorted({queue.topic for queue in held})
    routed = await together(*(_routed(admin, topic) for topic in topics))
    return set(held).difference(*routed)


async def _routed(admin: Admin, topic: str) -> set[MessageQueue]:
    try:
        route = await admin.topics.route(topic)
    except TopicNotFound:
        return set()
    return _queues_in(topic, route.queue_datas)


def _queues_in(topic: str, datas: Iterable[QueueData]) -> set[MessageQueue]:
    return {
        MessageQueue(topic, data.broker_name, number)
        for data in datas
        for number in range(data.read_queue_nums)
    }


async def _require_brokers(admin: Admin, names: Collection[str]) -> None:
    """Some broker, and those that are named. They sign off when they are started anew, and their
    topics with them: nobody has mistyped what is missing then. Asked before anything else, since a
    broker comes back with all of its topics at once."""
    there = (await admin.brokers.cluster_info()).broker_addr_table
    if not there:
        raise NoRoute("no broker is registered now")
    if away := sorted(name for name in names if name not in there):
        raise NoRoute(f"broker {', '.join(away)} is not registered now")


class _Look:
    """Asks brokers what their queues have. One that does not answer, though it is listed, costs a
    look one time-out, however many topics it has; its queues are away if it need not answer."""

    def __init__(self, admin: Admin, *, all_answer: bool) -> None:
        self._admin = admin
        self._all_answer = all_answer
        self._silent: set[str] = set()
        self._turns: dict[str, asyncio.Semaphore] = {}

    async def stats(self, topic: str, route: TopicRoute) -> KnownQueues:
        if self._all_answer:
            return (await self._admin.topics.stats(topic, route)).queues
        tables = await together(*(self._stats_at(data, topic) for data in route.broker_datas))
        return {queue: told for table in tables for queue, told in table.items()}

    async def _stats_at(self, broker: BrokerData, topic: str) -> KnownQueues:
        name, alone = broker.broker_name, TopicRoute(broker_datas=[broker])
        async with self._turns.setdefault(name, asyncio.Semaphore(_TOPICS_AT_ONCE)):
            if name in self._silent:
                return {}
            try:
                return (await self._admin.topics.stats(topic, alone)).queues
            except AWAY as error:
                log.info("queues of topic %s are away: %s", topic, error)
                self._silent.add(name)
                return {}


async def _queues_of(
    admin: Admin, look: _Look, topic: str, may_miss: Collection[str]
) -> tuple[KnownQueues, set[str]]:
    """What a topic has, and at which brokers a slave says so."""
    try:
        route = await admin.topics.route(topic)
        stats = await look.stats(topic, route)
        copies = await without_master(admin, route)
    except TopicNotFound:
        if topic in may_miss:
            return {}, set()
        raise NotThere(f"there is no topic {topic}: create it first") from None
    readable = _queues_in(topic, (data for data in route.queue_datas if data.perm & PERM_READ))
    return {queue: told for queue, told in stats.items() if queue in readable}, copies


def _credible(
    found: KnownQueues, copies: Collection[MessageQueue], places: ByQueue | None
) -> KnownQueues:
    """Without what slaves say of queues whose place they do not have."""
    if places is None and (away := {queue.broker_name for queue in copies if queue in found}):
        raise NoRoute(f"the master of {', '.join(sorted(away))} is away")
    known = places or {}
    return {
        queue: told
        for queue, told in found.items()
        if queue not in copies or told.min_offset <= known.get(queue, -1) <= told.max_offset
    }


def _wanted(found: KnownQueues, options: SourceOptions, *, first: bool) -> KnownQueues:
    if options.assigned:
        missing = [queue for queue in options.assigned if queue not in found]
        if missing and first:
            raise BadOption(f"assign: topic {missing[0].topic} has no {queue_text(missing[0])}")
        chosen = {queue: found[queue] for queue in options.assigned if queue in found}
    elif options.queues:
        names = set(options.queues)
        chosen = {q: told for q, told in found.items() if names & _names(q)}
        unknown = sorted(names.difference(*map(_names, chosen)))
        if found and first and unknown:
            raise BadOption(f"queues: there is no {', '.join(unknown)}")
    else:
        chosen = found
    return dict(sorted(chosen.items(), key=lambda item: order(item[0])))


def _names(queue: MessageQueue) -> set[str]:
    """By which the option `queues` may mean it."""
    return {queue_text(queue), str(queue.queue_id)}
