"""Where dead letters become messages again: one at a time holds a letter's queue, asks whether the
letter's copy is there already, and sends it if not.

Why no copy is sent twice:

- The brokers' locks on the queues of dead letters let only one redrive work, for a minute at a
  time. Who was killed keeps its lock for the rest of that minute; by then what it sent has arrived.
  A copy is looked for under the lock, and sent only if the lock was kept all the time since.
- A copy goes to the broker that has its letter, if its topic is there. If that broker is started
  again it has forgotten its locks, but all that was under way to it has ended, too. While it is
  away nobody asks for the copy, but nobody has the letter either.
- When an answer is lost, the topic is asked for the copy after a while, before it is sent again.
  It is the brokers' index by key that answers: where there is none, nothing is sent.
- A broker deletes its oldest messages first, so a letter is gone before its copy is.
"""

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final, NamedTuple

from cometmq.client.admin import Admin
from cometmq.client.admin.progress import QueueStats
from cometmq.client.cluster import Cluster
from cometmq.client.consumer.locks import KEPT_S, QueueLocks
from cometmq.client.errors import (
    ClientError,
    ConnectionLost,
    NoPermission,
    NoRoute,
    TopicNotFound,
)
from cometmq.client.link import Link
from cometmq.client.message import encode_text, with_unique_id
from cometmq.client.producer.packing import Packing
from cometmq.client.producer.parcels import Content, send_request
from cometmq.client.producer.results import STATUS_OF_CODE
from cometmq.client.selectors import by_hash
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.errors import MalformedRecord
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.names import DEAD_LETTER_PREFIX

from ..errors import BadOption, ClusterAway, NotThere, SparkError
from ..topic.offsets import ByQueue, order
from ..topic.patience import AWAY, patiently
from .letters import Copy, Letter

log = logging.getLogger(__name__)
GROUP_PREFIX: Final = "REDRIVE_"
"""A consumer group of this name and that of the letters' group is where all is redriven."""
PRODUCER_GROUP: Final = "COMETMQ_REDRIVE"
QUEUES: Final = 4
"""For a topic that comes into being by its first message; ours are there already."""
SETTLE_S: Final = 5.0
"""After a lost answer, until the topic is asked: a broker works on requests for less long."""
ATTEMPTS: Final = 12
ASKED_AT_ONCE: Final = 32
SEND_TIMEOUT_S: Final = 10.0
PATIENCE_S: Final = 30.0
"""For a broker to be back, once we had its lock."""
AWAY_FOR_NOW: Final = (*AWAY, TopicNotFound)
"""No NameServer knows the topics of a broker that is being started anew. What was not there in the
first place is told by `has_topic`."""
LOCK_POLL_S: Final = 1.0
INDEX_KEY: Final = "messageIndexEnable"
"""A broker's setting; on unless it says else."""
_STORED: Final = frozenset(STATUS_OF_CODE)
_PACKING: Final = Packing("zlib", 4096, 5)
"""As a producer packs by default."""


class AlreadyRunning(SparkError):
    """Another redrive of the same dead letters is at work."""


class Refused(SparkError):
    """A broker will not take a copy, however often it is asked."""


class Delivery(NamedTuple):
    """What became of copies: all that are not named here were sent."""

    refused: dict[str, str]
    """By brokers: ids, and why."""
    found: set[str]
    """The ids of those that somebody else had sent meanwhile."""


class RedriveDesk:
    def __init__(self, cluster: Cluster, group: str) -> None:
        self.dead_topic = DEAD_LETTER_PREFIX + group
        self.group = GROUP_PREFIX + group
        self._admin = Admin(cluster)
        self._link = Link(cluster)
        self._locks = QueueLocks(self._link, self.group)
        self._turns = asyncio.Semaphore(ASKED_AT_ONCE)
        self._locked: list[MessageQueue] = []
        self._topics: frozenset[str] = frozenset()
        self._topics_of_users: frozenset[str] = frozenset()

    async def open(self) -> None:
        """BadOption when there can be no letter."""
        await self._admin.start()
        self._link.start()
        await patiently(self._ask_for_topics, "asking for topics")
        if self.dead_topic not in self._topics:
            raise NotThere(
                f"there is no topic {self.dead_topic}: no message of this group has become a dead "
                "letter, or the group has another name"
            )
        route = await self._link.routes.refresh(self.dead_topic)
        if not route.read_queues:
            raise BadOption(
                f"{self.dead_topic} cannot be read: give the topic permission to be read (6)"
            )

    async def close(self) -> None:
        for queue in self._locked:
            await self._locks.release(queue)
        await self._admin.stop()
        await self._link.stop()

    # -- where copies can go ---------------------------------------------------------------------

    async def _ask_for_topics(self) -> None:
        self._topics = frozenset(await self._admin.topics.names(internal=True))
        self._topics_of_users = frozenset(await self._admin.topics.names())

    def has_topic(self, name: str) -> bool:
        return name in self._topics

    def is_internal(self, name: str) -> bool:
        """The system's own, or a group's for retries and dead letters."""
        return name in self._topics - self._topics_of_users

    async def without_index(self, topic: str) -> list[str]:
        """The brokers that would store copies and never find them again."""
        what = f"asking the brokers of {topic} for their settings"
        return await patiently(lambda: self._without_index(topic), what, AWAY_FOR_NOW)

    async def _without_index(self, topic: str) -> list[str]:
        route = await self._link.routes.find(topic)
        brokers = {queue.broker_name for queue in route.write_queues}
        if not brokers:
            return []
        try:
            told = await self._admin.brokers.config(brokers=brokers)
        except NoPermission as error:
            log.warning("whether the brokers of %s keep an index is not known: %s", topic, error)
            return []
        return sorted(name for name, settings in told.items() if settings.get(INDEX_KEY) == "false")

    # -- being the only one ----------------------------------------------------------------------

    async def lock(self, wait_s: float, on_wait: Callable[[], object]) -> None:
        """All queues of letters, for as long as the desk is open; AlreadyRunning when another one
        has them for longer than `wait_s`."""
        if self.group not in await self._admin.groups.names(internal=True):
            await self._admin.groups.create(self.group)
        route = await self._link.routes.find(self.dead_topic)
        deadline = time.monotonic() + wait_s
        told = False
        while not await self._take(route.read_queues):
            if not told:
                on_wait()
                told = True
            if time.monotonic() >= deadline:
                raise AlreadyRunning(
                    f"another redrive of {self.dead_topic} is running, or one was killed less than "
                    f"{KEPT_S:g} s ago: wait for it, then run this again"
                )
            await asyncio.sleep(LOCK_POLL_S)
        self._link.spawn(self._locks.renew())

    async def _take(self, queues: Sequence[MessageQueue]) -> bool:
        self._locked = list(queues)
        taken = [await self._locks.take(queue) for queue in queues]
        if all(taken):
            return True
        for queue in queues:  # Two that hold one each would wait for each other.
            await self._locks.release(queue)
        self._locked = []
        return False

    async def _require_lock(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            deadline = time.monotonic() + PATIENCE_S
            while not await self._locks.take(queue):
                if time.monotonic() >= deadline:
                    raise AlreadyRunning(
                        f"the lock on {queue} is lost: its broker is away, or was started again "
                        "and another redrive came first; run this again later"
                    )
                await asyncio.sleep(LOCK_POLL_S)

    async def starts(self) -> ByQueue:
        """Where letters begin that are not known to be redriven."""
        what = "asking how far earlier redrives came"
        told = await patiently(self._starts, what, AWAY_FOR_NOW)
        return dict(sorted(told.items(), key=lambda item: order(item[0])))

    async def _starts(self) -> ByQueue:
        committed = await self._admin.offsets.committed(self.group, self.dead_topic)
        stats = (await self._admin.topics.stats(self.dead_topic)).queues
        route = await self._link.routes.find(self.dead_topic)
        return {
            queue: _start(stats[queue], committed.get(queue, 0))
            for queue in route.read_queues
            if queue in stats
        }

    # -- copies ----------------------------------------------------------------------------------

    async def found(self, copies: Sequence[Copy]) -> set[str]:
        """The ids of those that are in their topics already."""
        answers = await asyncio.gather(*map(self._is_there, copies))
        return {copy.id for copy, is_there in zip(copies, answers, strict=True) if is_there}

    async def _is_there(self, copy: Copy) -> bool:
        async with self._turns:
            what = f"looking for {copy.letter.place} in {copy.topic}"
            ask = functools.partial(self._admin.messages.by_id, copy.topic, copy.id)
            return bool(await patiently(ask, what, AWAY_FOR_NOW))

    async def deliver(self, copies: Sequence[Copy]) -> Delivery:
        """Send what is not there, and see to it that it is. ClusterAway when it is not known of
        some whether they are there: they are looked for when this is run again."""
        looked, there = await self._look(copies)
        told, missing = Delivery({}, there), _without(copies, there)
        for attempt in range(ATTEMPTS):
            outcomes = await asyncio.gather(*(self._send(copy, looked) for copy in missing))
            pairs = list(zip(missing, outcomes, strict=True))
            told.refused.update(
                {copy.id: str(error) for copy, error in pairs if isinstance(error, Refused)}
            )
            open_ = [copy for copy, error in pairs if isinstance(error, ClientError)]
            if not open_:
                return told
            error = next(error for _, error in pairs if isinstance(error, ClientError))
            log.warning("%d copies are in doubt (attempt %d): %s", len(open_), attempt + 1, error)
            await asyncio.sleep(SETTLE_S)
            await self._refresh({copy.topic for copy in open_})
            looked, there = await self._look(open_)
            missing = _without(open_, there)
            if not missing:
                return told
        raise ClusterAway(f"{len(missing)} copies cannot be sent now: run this again later")

    async def _look(self, copies: Sequence[Copy]) -> tuple[float, set[str]]:
        """When, and the ids of those that are there. The locks come first: who has had them
        meanwhile may have sent some."""
        await self._require_lock({copy.letter.queue for copy in copies})
        return asyncio.get_running_loop().time(), await self.found(copies)

    async def _send(self, copy: Copy, looked: float) -> Exception | None:
        """Only if nobody else can have sent it since it was looked for."""
        async with self._turns:
            try:
                content = _content(copy, await self._body(copy.letter))
                queue = await self._queue_for(copy)
                address = self._link.routes.address_of(queue.broker_name) or ""
                request = send_request(copy.topic, content, queue, PRODUCER_GROUP, QUEUES)
                if not self._locks.has_held(copy.letter.queue, looked):
                    return ConnectionLost(f"the lock on {copy.letter.queue} was lost meanwhile")
                await self._link.ask(
                    address, request.code, request.fields, content.body,
                    timeout_s=SEND_TIMEOUT_S, accept=_STORED,
                )  # fmt: skip
            except AWAY_FOR_NOW as error:
                return error
            except MalformedRecord as error:
                return Refused(f"{copy.letter.place}: {error}")
            except ClientError as error:
                return Refused(str(error))
        return None

    async def _body(self, letter: Letter) -> bytes:
        if letter.body is not None:
            return letter.body
        # Its broker may be away: `deliver` comes again, once all others have an answer.
        return (await self._admin.messages.at(letter.queue, letter.offset)).body

    async def _queue_for(self, copy: Copy) -> MessageQueue:
        """One at the letter's own broker where there is one: that of its sharding key, if the key
        is at home there."""
        queues = (await self._link.routes.find(copy.topic)).write_queues
        if not queues:
            raise NoRoute(f"no broker takes messages to {copy.topic} now")
        letter = copy.letter
        near = [q for q in queues if q.broker_name == letter.queue.broker_name] or queues
        if not letter.sharding_key:
            return near[letter.offset % len(near)]
        home = by_hash(queues, None, letter.sharding_key)
        return home if home in near else by_hash(near, None, letter.sharding_key)

    async def _refresh(self, topics: Iterable[str]) -> None:
        for topic in topics:
            ask = functools.partial(self._link.routes.refresh, topic)
            await patiently(ask, f"asking for the route of {topic}", AWAY_FOR_NOW)

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """All before these offsets is redriven."""
        ask = functools.partial(self._admin.offsets.commit, self.group, offsets)
        await patiently(ask, "committing offsets", AWAY_FOR_NOW)


def _without(copies: Iterable[Copy], ids: Set[str]) -> list[Copy]:
    return [copy for copy in copies if copy.id not in ids]


def _start(stats: QueueStats, committed: int) -> int:
    """An offset that the queue does not reach is that of a topic which was deleted since."""
    return max(stats.min_offset, committed) if committed <= stats.max_offset else stats.min_offset


def _content(copy: Copy, body: bytes) -> Content:
    properties = with_unique_id(copy.id, encode_text(copy.letter.copy_properties()))
    packed, sys_flag = _PACKING.packed(body)
    code = int(RequestCode.SEND_MESSAGE_V2)
    return Content(code, properties, packed, sys_flag, 0, time.time_ns() // 1_000_000)
