"""Locks on queues: a broker gives each to one member of a group, for a minute at a time."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.fastjson import decode_body
from cometmq.protocol.message_queue import MessageQueue

from ..errors import ClientError
from ..link import Link
from .progress import master_of

log = logging.getLogger(__name__)
RENEW_S = 20.0
LIVES_S = 30.0
"""We trust a lock for half as long as the broker keeps it."""


class _LockAnswer(msgspec.Struct):
    queues: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default=[])


class QueueLocks:
    def __init__(self, link: Link, group: str) -> None:
        self._link = link
        self._group = group
        self._wanted: set[MessageQueue] = set()
        self._held: dict[MessageQueue, float] = {}

    def holds(self, queue: MessageQueue) -> bool:
        taken = self._held.get(queue)
        return taken is not None and _now() - taken < LIVES_S

    async def take(self, queue: MessageQueue) -> bool:
        """Whether the broker says that this queue is ours alone. From then on it is renewed."""
        self._wanted.add(queue)
        if not self.holds(queue):
            await self._take([queue])
        return self.holds(queue)

    async def release(self, queue: MessageQueue) -> None:
        """Even if we do not know to hold it: the answer to an attempt may still be on its way."""
        self._wanted.discard(queue)
        self._held.pop(queue, None)
        try:
            await self._link.ask(
                master_of(self._link, queue), RequestCode.UNLOCK_BATCH_MQ, {}, self._body([queue])
            )
        except ClientError as error:
            log.warning("the lock on %s could not be released, it will expire: %s", queue, error)

    async def renew(self) -> None:
        """For ever: keep what is wanted."""
        while True:
            await asyncio.sleep(RENEW_S)
            await self._take(self._wanted)

    async def _take(self, queues: Iterable[MessageQueue]) -> None:
        by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            by_broker[queue.broker_name].append(queue)
        await asyncio.gather(*map(self._take_at_one, by_broker.values()))

    async def _take_at_one(self, queues: list[MessageQueue]) -> None:
        asked = _now()
        try:
            answer = await self._link.ask(
                master_of(self._link, queues[0]), RequestCode.LOCK_BATCH_MQ, {}, self._body(queues)
            )
        except ClientError as error:
            log.warning("queues of %s cannot be locked now: %s", queues[0].broker_name, error)
            return
        taken = set(decode_body(answer.body, _LockAnswer, "list of locked queues").queues)
        for queue in queues:
            if queue in taken and queue in self._wanted:
                self._held[queue] = asked
            else:
                self._held.pop(queue, None)

    def _body(self, queues: list[MessageQueue]) -> bytes:
        return msgspec.json.encode({
            "consumerGroup": self._group,
            "clientId": self._link.client_id,
            "mqSet": queues,
            "onlyThisBroker": False,
        })  # fmt: skip


def _now() -> float:
    return asyncio.get_running_loop().time()
