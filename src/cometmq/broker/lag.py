"""How far groups are behind: in messages, and since when. Looked at when somebody asks."""

from collections.abc import Iterator
from typing import NamedTuple

from .context import Context


class Lag(NamedTuple):
    """Of a group in a topic, all queues together. Times are store times; None: nothing waits."""

    group: str
    topic: str
    unconsumed: int
    unconsumed_since_ms: int | None
    in_flight: int
    """Handed out and not committed."""
    unpulled: int
    unpulled_since_ms: int | None


def lags(context: Context) -> Iterator[Lag]:
    """Of every group that has offsets or is online, in each topic that it reads."""
    wanted = {group: set(topics) for group, topics in context.offsets.topics_by_group().items()}
    for online in context.clients.consumer_groups():
        # Offsets may be left of topics that a group which is online does not want any more.
        wanted[online.name] = set(online.subscriptions) or wanted.get(online.name, set())
    for group, topics in sorted(wanted.items()):
        for topic in sorted(topics):
            found = context.topics.get(topic)
            if found is not None:
                yield _lag(context, group, topic, found.read_queue_nums)


def _lag(context: Context, group: str, topic: str, queues: int) -> Lag:
    unconsumed = in_flight = unpulled = 0
    waiting: list[int | None] = []
    queueing: list[int | None] = []
    for queue_id in range(queues):
        end = context.store.max_offset(topic, queue_id)
        consumed = context.offsets.get(group, topic, queue_id)
        if consumed is None:
            continue  # As in RocketMQ: of a queue that was never read nothing is known.
        pulled = max(consumed, context.offsets.last_pulled(group, topic, queue_id) or 0)
        unconsumed += max(end - consumed, 0)
        in_flight += max(min(pulled, end) - consumed, 0)
        unpulled += max(end - pulled, 0)
        waiting.append(_since(context, topic, queue_id, consumed, end))
        queueing.append(_since(context, topic, queue_id, pulled, end))
    return Lag(
        group, topic, unconsumed, _earliest(waiting), in_flight, unpulled, _earliest(queueing)
    )


def _since(context: Context, topic: str, queue_id: int, offset: int, end: int) -> int | None:
    if offset >= end:
        return None
    # What an offset points to may be deleted: then the first that is left waits longest.
    offset = max(offset, context.store.min_offset(topic, queue_id))
    return context.store.store_time(topic, queue_id, offset)


def _earliest(times: list[int | None]) -> int | None:
    return min((time for time in times if time is not None), default=None)
