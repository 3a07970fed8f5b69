"""Half messages of attempts that were killed before they could tell anybody of them.

Consumers never see them, but their broker would keep them for ever. They stand in its queue of half
messages, and their ids tell whose they are: once a batch is decided, whatever else is there of the
same query since the batch before is rolled back.
"""

import logging
from collections.abc import Collection, Mapping
from typing import Final

from cometmq.client.admin import Admin
from cometmq.client.errors import ClientError
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.names import HALF_TOPIC

from ..errors import NotSent, SparkError
from .decisions import Decisions
from .halves import Half
from .ids import QUERY_DIGITS, Origin, fixed_ids
from .rows import NO_QUEUE

log = logging.getLogger(__name__)
HalfEnds = Mapping[str, int]
"""Where the queue of half messages ended at a time, by broker."""
TOLD_TOGETHER: Final = 10_000
_REAL_TOPIC: Final = "REAL_TOPIC"


async def half_ends(admin: Admin) -> HalfEnds:
    """Of all brokers. Nothing where brokers do not tell."""
    try:
        queues = (await admin.topics.stats(HALF_TOPIC)).queues
    except ClientError as error:
        log.warning("half messages that are left over will not be looked for: %s", error)
        return {}
    return {queue.broker_name: stats.max_offset for queue, stats in queues.items()}


class Orphans:
    def __init__(self, admin: Admin, decisions: Decisions) -> None:
        self._admin = admin
        self._decisions = decisions

    async def roll_back(self, query: str, since: HalfEnds, known: Collection[Half]) -> HalfEnds:
        """Those of a query that are not `known`; from where on the next one has to look. As far as
        possible: what cannot be decided now stays invisible."""
        reached = dict(since)
        for name, end in (await half_ends(self._admin)).items():
            mine = {half.queue_offset for half in known if half.broker_name == name}
            try:
                if name in since and end - since[name] > len(mine):
                    await self._roll_back(query, name, range(since[name], end), mine)
                reached[name] = end
            except NotSent as error:  # Another time its broker would say the same.
                log.warning("half messages of query %s stay undecided: %s", query, error)
                reached[name] = end
            except (ClientError, SparkError) as error:
                log.warning("half messages of query %s may be left over: %s", query, error)
        return reached

    async def roll_back_between(self, query: str, since: HalfEnds, ends: HalfEnds) -> int:
        """All of a query that stand there; how many. Without `since`, from the beginning."""
        where = {name: range(since.get(name, 0), end) for name, end in ends.items()}
        return sum([await self._roll_back(query, name, part, ()) for name, part in where.items()])

    async def _roll_back(self, query: str, name: str, where: range, known: Collection[int]) -> int:
        prefix = fixed_ids(Origin(query, 0, 0), 0, 0).text(0)[:QUERY_DIGITS]
        queue, count = MessageQueue(HALF_TOPIC, name, 0), 0
        found: list[Half] = []
        async for message in self._admin.messages.read(queue, start=where.start, stop=where.stop):
            if message.message_id.startswith(prefix) and message.queue_offset not in known:
                found.append(_half(message, name))
                count += 1
            if len(found) == TOLD_TOGETHER:
                await self._decisions.roll_back(found)
                found = []
        await self._decisions.roll_back(found)
        if count:
            log.info("%d half messages of killed attempts were rolled back", count)
        return count


def _half(message: ReceivedMessage, broker_name: str) -> Half:
    """As far as a rollback needs it."""
    return Half(
        message.properties.get(_REAL_TOPIC, ""), broker_name, NO_QUEUE, message.queue_offset,
        message.physical_offset, message.message_id, row_crc=0,
    )  # fmt: skip
