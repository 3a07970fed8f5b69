"""What all consumers have in common: a group's queues are read, and progress is written down.

Where the messages go is the sink's affair. Offsets are committed every few seconds, when a queue
is given up and at the end, never beyond the first message that is not done.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Command
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.subscription import SubscriptionData
from cometmq.transport.connection import Connection, Handler

from ..cluster import Cluster
from ..errors import ClientError
from ..link import Link
from ..received import ReceivedMessage
from ..routes import Route
from .feed import Feed, FlowLimits
from .membership import Group, Membership, start_offset
from .progress import BrokerProgress, FileProgress, Progress
from .pulls import Puller, PullOptions
from .subscriptions import Filter, Model, Wanted, subscription_of
from .window import Window

log = logging.getLogger(__name__)
_HAND_OVER_S = 10.0
"""How long a consumer that stops waits for the last commit of a queue that it was giving up."""


class Sink(Protocol):
    def deliver(self, feed: Feed, window: Window, messages: list[ReceivedMessage]) -> None: ...

    async def taken(self, feed: Feed) -> None:
        """Called before a queue is read: wait here until it may be."""
        ...

    async def given_up(self, feed: Feed) -> None:
        """Called before the last commit of a queue: wait here until all is done with it."""
        ...

    async def released(self, queue: MessageQueue) -> None:
        """Called after the last commit of a queue."""
        ...


class Reader:
    def __init__(
        self,
        cluster: Cluster,
        group: Group,
        wanted: Wanted,
        *,
        client_id: str,
        offsets_file: Path,
        limits: FlowLimits,
        pull_options: PullOptions,
        commit_interval_s: float,
        handlers: Mapping[int, Handler] | None = None,
    ) -> None:
        """`handlers` answer what brokers ask beside the news that members changed.

        A `commit_interval_s` of 0 leaves committing to whoever uses the reader.
        """
        self.group = group
        self.membership = Membership(group, wanted, self.set_queues)
        self.link = Link(
            cluster,
            client_id=client_id,
            handlers={
                **(handlers or {}),
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
            },
            heartbeat=self.membership.heartbeat,
        )
        self.feeds: dict[MessageQueue, Feed] = {}
        self.is_shared = group.model is Model.CLUSTERING
        self.progress: Progress = (
            BrokerProgress(self.link, group.name) if self.is_shared else FileProgress(offsets_file)
        )
        self._limits = limits
        self._commit_interval_s = commit_interval_s
        self._commits = commit_interval_s > 0
        self._puller = Puller(self.link, group.name, pull_options)
        self._sink: Sink | None = None
        self._is_paused = False
        self._leaving: dict[MessageQueue, asyncio.Task[None]] = {}
        self._loops: list[asyncio.Task[None]] = []

    # -- life ------------------------------------------------------------------------------------

    async def start(self, sink: Sink) -> None:
        """Returns when the queues of this member are known, if that can be known now."""
        link, membership = self.link, self.membership
        self._sink = sink
        link.start()
        self.progress.open()
        link.routes.on_change(self._route_changed)
        await membership.prepare(link)
        await link.introduce()
        await membership.rebalance(link)
        self._loops.append(link.spawn(membership.run(link)))
        if self._commits:
            self._loops.append(link.spawn(self._commit_regularly()))

    async def stop_reading(self) -> None:
        """No new queue, no new message; what was delivered may still be finished."""
        for loop in self._loops:
            loop.cancel()
        for feed in self.feeds.values():
            feed.drop()

    async def leave(self) -> None:
        """Write down how far we got, and tell the brokers that we go."""
        assert self._sink is not None
        try:
            await self._end_hand_overs()
            if self._commits:
                await self.commit()
            await asyncio.gather(*map(self._sink.released, self.feeds))
            await self.link.unregister(consumer_group=self.group.name)
        finally:
            await self.link.stop()

    async def _end_hand_overs(self) -> None:
        if self._leaving:
            _, late = await asyncio.wait(self._leaving.values(), timeout=_HAND_OVER_S)
            for leaving in late:
                leaving.cancel()

    # -- what is read ----------------------------------------------------------------------------

    async def subscribe(self, topic: str, wanted: Filter) -> None:
        self.link.require_running()
        await self.membership.subscribe(self.link, topic, wanted)
        await self.link.beat()
        for feed in self.feeds.values():
            if feed.queue.topic == topic:
                feed.restart()

    async def unsubscribe(self, topic: str) -> None:
        self.link.require_running()
        self.membership.unsubscribe(topic)
        await self.link.beat()

    def pause(self) -> None:
        """Read nothing more, also of queues that come later."""
        self._is_paused = True
        for feed in self.feeds.values():
            feed.pause()

    def resume(self) -> None:
        self._is_paused = False
        for feed in self.feeds.values():
            feed.resume()

    # -- queues ----------------------------------------------------------------------------------

    def _members_changed(self, _: Connection, __: Command) -> None:
        self.membership.wake()

    def _route_changed(self, _: Route) -> None:
        self.membership.wake()

    async def set_queues(self, queues: set[MessageQueue]) -> None:
        """From now on exactly these are ours."""
        gone = [self.feeds.pop(queue) for queue in list(self.feeds) if queue not in queues]
        for feed in gone:
            feed.drop()
            earlier = self._leaving.get(feed.queue)
            self._leaving[feed.queue] = self.link.spawn(self._hand_over(feed, earlier))
        for queue in queues - self.feeds.keys():
            feed = self.feeds[queue] = self._new_feed(queue)
            feed.is_paused = self._is_paused
            feed.start()

    async def _hand_over(self, feed: Feed, earlier: asyncio.Task[None] | None) -> None:
        """One after the other, when a queue comes and goes faster than a handler ends."""
        assert self._sink is not None
        if earlier is not None:
            await asyncio.wait([earlier])
        await self._sink.given_up(feed)
        if self._commits:
            await self._commit_last(feed)
        await self._sink.released(feed.queue)
        if self._leaving.get(feed.queue) is asyncio.current_task():
            del self._leaving[feed.queue]

    async def _commit_last(self, feed: Feed) -> None:
        try:
            await self._commit([feed])
        except ClientError as error:
            log.warning("%r is given up, its last offset is not committed: %s", feed, error)

    def _new_feed(self, queue: MessageQueue) -> Feed:
        assert self._sink is not None
        return Feed(
            queue,
            self._puller,
            self._subscription(queue.topic),
            self._sink.deliver,
            take_over=self._take_over,
            find_start=self._find_start,
            beat=self.link.beat,
            limits=self._limits,
            commits=self.is_shared and self._commits,
        )

    def _subscription(self, topic: str) -> Callable[[], SubscriptionData]:
        """What is wanted of a topic, as of now: it may change while its queues are read."""
        everything = subscription_of(topic, "*")
        return lambda: self.membership.subscriptions.get(topic, everything)

    async def _take_over(self, feed: Feed) -> None:
        assert self._sink is not None
        leaving = self._leaving.get(feed.queue)
        if leaving is not None:
            # The queue came back before we had let it go.
            await asyncio.wait([leaving])
        await self._sink.taken(feed)

    async def _find_start(self, queue: MessageQueue) -> int:
        return await start_offset(self.link, self.progress, self.group, queue)

    # -- progress --------------------------------------------------------------------------------

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._commit_interval_s)
            await self.commit()

    async def commit(self, *, strict: bool = False) -> None:
        """A failure is told and tried again, since the offset is only late; `strict` raises it."""
        try:
            await self._commit(self.feeds.values())
        except ClientError as error:
            if strict:
                raise
            log.warning("group %s: offsets cannot be committed now: %s", self.group.name, error)

    async def _commit(self, feeds: Iterable[Feed]) -> None:
        due = {
            feed: feed.commit_offset
            for feed in feeds
            if feed.commit_offset is not None and feed.commit_offset != feed.committed
        }
        if due:
            await self.progress.write({feed.queue: offset for feed, offset in due.items()})
            for feed, offset in due.items():
                feed.committed = offset
