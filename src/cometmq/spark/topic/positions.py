"""Places in queues as a user names them (earliest, a group's, offsets, times) become offsets.

Offsets that a user writes must name every queue that is read, and no other: a forgotten queue would
be read from a place that nobody chose.
"""

from collections.abc import Collection, Iterable

from cometmq.client.admin import Admin
from cometmq.client.admin.reach import holders_in, together
from cometmq.client.errors import NoRoute, TopicNotFound
from cometmq.protocol.message_queue import MessageQueue

from ..errors import BadOption
from .copies import without_master
from .discovery import KnownQueues
from .offsets import EARLIEST, LATEST, ByQueue, queue_text
from .options import Named, Position


async def resolve(admin: Admin, place: Position, queues: KnownQueues, group: str) -> ByQueue:
    """Where a place is in each of the queues."""
    if place.named is Named.GROUP:
        return await _of_group(admin, queues, group)
    if place.is_by_time:
        return await _by_time(admin, place, queues)
    if place.named is not None:
        return beginnings(queues) if place.named is Named.EARLIEST else ends(queues)
    return _by_offsets(place, queues)


def beginnings(queues: KnownQueues) -> ByQueue:
    return {queue: stats.min_offset for queue, stats in queues.items()}


def ends(queues: KnownQueues) -> ByQueue:
    return {queue: stats.max_offset for queue, stats in queues.items()}


async def _of_group(admin: Admin, queues: KnownQueues, group: str) -> ByQueue:
    """A queue of which the group has no offset is read from its beginning: nothing is left out."""
    topics = sorted({queue.topic for queue in queues})
    try:
        tables = await together(*(admin.offsets.committed(group, topic) for topic in topics))
    except TopicNotFound as error:  # It was there a moment ago: its only broker has just left.
        raise NoRoute(str(error)) from error
    committed = {q: at for table in tables for q, at in table.items() if q in queues}
    await _require_masters(admin, queues.keys() - committed)
    for queue, at in committed.items():
        end = queues[queue].max_offset
        # Behind the end, unless queue and group have both gone on since the queue was looked at.
        if end < at <= await admin.offsets.max(queue):
            committed[queue] = end
    return beginnings(queues) | committed


async def _require_masters(admin: Admin, queues: Collection[MessageQueue]) -> None:
    """Of a broker that has just left, nobody says whether a group has an offset there."""
    for topic in sorted({queue.topic for queue in queues}):
        route = await admin.topics.route(topic)
        there = {node.name for node in holders_in(route, topic)}
        there -= await without_master(admin, route)
        wanted = {queue.broker_name for queue in queues if queue.topic == topic}
        if away := sorted(wanted - there):
            raise NoRoute(f"the master of {', '.join(away)} is away")


def _by_offsets(place: Position, queues: KnownQueues) -> ByQueue:
    _require_all(place, queues, place.offsets)
    _refuse_others(place, queues, place.offsets)
    found = {}
    for queue, stats in queues.items():
        named = {EARLIEST: stats.min_offset, LATEST: stats.max_offset}
        offset = place.offsets[queue]
        found[queue] = named.get(offset, offset)
        if offset > stats.max_offset:
            raise BadOption(
                f"{place.option}: {offset} is behind the end of topic {queue.topic}, queue "
                f"{queue_text(queue)}, which is {stats.max_offset}"
            )
    return found


async def _by_time(admin: Admin, place: Position, queues: KnownQueues) -> ByQueue:
    times = {queue: place.time_of(queue) for queue in queues}
    known = {queue: time for queue, time in times.items() if time is not None}
    _require_all(place, queues, known)
    _refuse_others(place, queues, place.timestamps or {})
    others = sorted(place.topic_timestamps.keys() - {queue.topic for queue in queues})
    if others:
        raise BadOption(f"{place.option} names topic {', '.join(others)}, which is not read")
    found = await together(*(_since(admin, place, q, queues, at) for q, at in known.items()))
    return dict(zip(known, found, strict=True))


async def _since(
    admin: Admin, place: Position, queue: MessageQueue, queues: KnownQueues, time_ms: int
) -> int:
    """The first message stored at a time or later."""
    stats = queues[queue]
    if stats.messages and stats.last_update_timestamp >= time_ms:
        return await admin.offsets.search(queue, time_ms)
    if place.late is None:
        raise BadOption(
            f"{place.option}: topic {queue.topic}, queue {queue_text(queue)} has no message since "
            f"{time_ms}; startingOffsetsByTimestampStrategy=latest begins at its end"
        )
    return stats.max_offset


def _require_all(place: Position, queues: KnownQueues, named: ByQueue) -> None:
    missing = [queue for queue in queues if queue not in named]
    if missing:
        raise BadOption(f"{place.option} does not name {_listed(missing)}")


def _refuse_others(place: Position, queues: KnownQueues, named: ByQueue) -> None:
    others = [queue for queue in named if queue not in queues]
    if others:
        raise BadOption(f"{place.option} names {_listed(others)}, which is not read")


def _listed(queues: Iterable[MessageQueue]) -> str:
    return ", ".join(f"{queue.topic} {queue_text(queue)}" for queue in queues)
