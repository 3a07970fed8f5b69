"""Has consumer groups follow streaming queries, from a thread that may wait for brokers.

What cannot be committed is tried again; a later offset takes the place of an earlier one. Queues
that stayed where they were are told again once a while, in case that a broker has forgotten them.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from cometmq.client.admin import Admin
from cometmq.client.errors import ClientError
from cometmq.transport.background import BackgroundLoop

from .connection import cluster_of
from .stream_report import Loss, SourceProgress
from .topic.copies import without_master
from .topic.group_commits import commit
from .topic.offsets import ByQueue, QueueRange

log = logging.getLogger(__name__)
PATIENCE_S: Final = 60.0
"""So long a commit is tried."""
ALL_EVERY_S: Final = 60.0


class Follower(NamedTuple):
    namesrv_addr: str
    group: str


class _Pending(NamedTuple):
    offsets: ByQueue
    since_s: float


class GroupFollower:
    """Of one thread. `connection` has the options with which clusters are reached."""

    def __init__(
        self, connection: Mapping[str, str], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection = connection
        self._now_s = now_s
        self._background: BackgroundLoop | None = None
        self._admins: dict[str, Admin] = {}
        self._pending: dict[Follower, _Pending] = {}
        self._done: dict[Follower, ByQueue] = {}
        self._all_told_s: dict[Follower, float] = {}

    def open(self) -> None:
        """Be ready: in a process that is about to end no event loop can be begun."""
        self._loop()

    @property
    def is_behind(self) -> bool:
        return bool(self._pending)

    def put(self, source: SourceProgress) -> None:
        """A batch is durable: its group, if it has one, is to know."""
        notes = source.notes
        if notes is None or not notes.group:
            return
        follower = Follower(notes.namesrv_addr, notes.group)
        moved = self._moved(follower, source.ends)
        if moved:
            waiting = self._pending.get(follower, _Pending({}, self._now_s()))
            self._pending[follower] = _Pending(waiting.offsets | moved, waiting.since_s)

    def commit(self) -> None:
        """Commit what waits, as far as brokers are there."""
        for follower, pending in list(self._pending.items()):
            refused = self._committed(follower, pending.offsets)
            left = {q: at for q, at in pending.offsets.items() if q.topic in refused}
            for topic, why in refused.items():
                log.warning("group %s, topic %s: not committed: %s", follower.group, topic, why)
            if left and self._now_s() - pending.since_s < PATIENCE_S:
                self._pending[follower] = _Pending(left, pending.since_s)
                continue
            del self._pending[follower]
            if left:
                log.error(
                    "group %s is left behind in %s; the next batch's commit mends it",
                    follower.group, ", ".join(sorted(refused)),
                )  # fmt: skip

    def overtaken(self, source: SourceProgress) -> list[Loss]:
        """What retention has deleted of a batch by now; whether it was read before, is not known.
        For streams that go on after a loss: their tasks tell it to nobody but their logs."""
        notes = source.notes
        if notes is None or not notes.tolerates_loss or not source.ranges:
            return []
        try:
            begins = self._begins(notes.namesrv_addr, source.ranges)
        except (ClientError, OSError, ValueError) as error:
            log.warning("whether anything was lost cannot be told now: %s", error)
            return []
        gone = [
            part._replace(end=min(part.end, begins.get(part.queue, 0)))
            for part in source.ranges
        ]  # fmt: skip
        known = {lost.queue: lost for lost in notes.lost_ranges()}
        rest = [part.behind(known.get(part.queue)) for part in gone]
        return [Loss(part, is_certain=False) for part in rest if part.size > 0]

    def close(self) -> None:
        """Hang up; what is asked for afterwards connects anew."""
        if self._background is not None:
            admins, self._admins = list(self._admins.values()), {}
            self._background.call(_stop(admins))
            self._background.stop()
            self._background = None

    # -- parts -----------------------------------------------------------------------------------

    def _moved(self, follower: Follower, ends: ByQueue) -> ByQueue:
        now_s = self._now_s()
        if now_s - self._all_told_s.get(follower, float("-inf")) >= ALL_EVERY_S:
            self._all_told_s[follower] = now_s
            return dict(ends)
        known = self._done.get(follower, {})
        return {queue: at for queue, at in ends.items() if known.get(queue) != at}

    def _committed(self, follower: Follower, offsets: ByQueue) -> dict[str, Exception]:
        """Commit; by topic, why it cannot be."""
        try:
            admin = self._admin(follower.namesrv_addr)
            refused: Mapping[str, Exception] = self._loop().call(
                commit(admin, follower.group, offsets)
            )
        except (ClientError, OSError, ValueError) as error:
            refused = dict.fromkeys({queue.topic for queue in offsets}, error)
        done = {queue: at for queue, at in offsets.items() if queue.topic not in refused}
        self._done.setdefault(follower, {}).update(done)
        return dict(refused)

    def _begins(self, namesrv_addr: str, ranges: list[QueueRange]) -> ByQueue:
        admin = self._admin(namesrv_addr)
        begins: ByQueue = {}
        for topic in sorted({part.queue.topic for part in ranges}):
            begins |= self._loop().call(_begins_of(admin, topic))
        return begins

    def _admin(self, namesrv_addr: str) -> Admin:
        if namesrv_addr not in self._admins:
            admin = Admin(cluster_of({**self._connection, "namesrvAddr": namesrv_addr}))
            self._loop().call(admin.start())
            self._admins[namesrv_addr] = admin
        return self._admins[namesrv_addr]

    def _loop(self) -> BackgroundLoop:
        if self._background is None:
            self._background = BackgroundLoop("cometmq-spark-groups")
            self._background.start()
        return self._background


async def _stop(admins: list[Admin]) -> None:
    await asyncio.gather(*(admin.stop() for admin in admins))


async def _begins_of(admin: Admin, topic: str) -> ByQueue:
    """As masters tell it: a slave may begin later."""
    route = await admin.topics.route(topic)
    stats = await admin.topics.stats(topic, route)
    copies = await without_master(admin, route)
    found = stats.queues.items()
    return {queue: told.min_offset for queue, told in found if queue.broker_name not in copies}
