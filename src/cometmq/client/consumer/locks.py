"""Locks on queues: a broker gives each to one member of a group, for a minute at a time.

A broker that was started again has forgotten its locks and may have given them to others: a lock
is trusted as long as the connection lasts over which it was given, and for half of its time.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.fastjson import decode_body
from cometmq.protocol.message_queue import MessageQueue
from cometmq.transport.connection import Connection

from ..backoff import Backoff
from ..errors import ClientError, answers_read
from ..link import Link
from .progress import master_of

log = logging.getLogger(__name__)
RENEW_S = 20.0
KEPT_S = 60.0
"""For so long a broker keeps a lock that nobody renews."""
LIVES_S = KEPT_S / 2
"""For so long we trust it."""


class _LockAnswer(msgspec.Struct):
    queues: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default=[])


class _Held(NamedTuple):
    since: float
    """Nobody else has had it from then on."""
    asked: float
    over: Connection


class QueueLocks:
    def __init__(self, link: Link, group: str) -> None:
        self._link = link
        self._group = group
        self._wanted: set[MessageQueue] = set()
        self._held: dict[MessageQueue, _Held] = {}

    def holds(self, queue: MessageQueue) -> bool:
        held = self._held.get(queue)
        return held is not None and held.over.is_open and _now() - held.asked < LIVES_S

    def has_held(self, queue: MessageQueue, since: float) -> bool:
        """Whether nobody else can have had the queue since then, by the event loop's clock."""
        return self.holds(queue) and self._held[queue].since <= since

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
        if not await self._released(queue):
            self._link.spawn(self._release_later(queue))

    async def _release_later(self, queue: MessageQueue) -> None:
        """Nobody else may have the queue before, until the lock expires by itself."""
        backoff = Backoff()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KEPT_S):
                await asyncio.sleep(backoff.next_s())
                while queue not in self._wanted and not await self._released(queue):
                    await asyncio.sleep(backoff.next_s())

    async def _released(self, queue: MessageQueue) -> bool:
        try:
            await self._link.ask(
                master_of(self._link, queue), RequestCode.UNLOCK_BATCH_MQ, {}, self._body([queue])
            )
        except ClientError as error:
            log.warning("the lock on %s could not be released, it may expire: %s", queue, error)
            return False
        return True

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
            address = master_of(self._link, queues[0])
            over = await self._link.connection(address)
            answer = await self._link.ask(
                address, RequestCode.LOCK_BATCH_MQ, {}, self._body(queues)
            )
            with answers_read():
                taken = set(decode_body(answer.body, _LockAnswer, "list of locked queues").queues)
        except ClientError as error:
            log.warning("queues of %s cannot be locked now: %s", queues[0].broker_name, error)
            return
        for queue in queues:
            if queue in taken and queue in self._wanted:
                is_renewed = self.holds(queue) and self._held[queue].over is over
                since = self._held[queue].since if is_renewed else _now()
                self._held[queue] = _Held(since, asked, over)
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
