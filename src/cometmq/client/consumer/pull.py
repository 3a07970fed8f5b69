"""A consumer that takes messages when it likes: `async for`, or `poll`.

Messages are read ahead and wait here within bounds. A message counts as consumed when the next
one is asked for: if the program ends in between, the message comes again. Queues are shared out
among the members of the group (`topics`), or chosen by oneself (`assign`).
"""

import asyncio
import dataclasses
import datetime as dt
from collections import deque
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, Unpack

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.message_queue import MessageQueue

from ..allocation import Allocation, Averagely, queue_order
from ..cluster import Cluster, cluster_at
from ..errors import IllegalArgument
from ..received import ReceivedMessage
from .feed import Feed
from .inquiries import Inquiries
from .membership import Group
from .options import PullConsumerOptions, PullKeywords
from .progress import default_offsets_file, queue_offset
from .pulls import PullOptions
from .reader import Reader
from .subscriptions import ConsumeFrom, Filter, Model, Wanted, beginning_of, check_group
from .window import Window

POLL_MESSAGES = 32


class _Ready(NamedTuple):
    feed: Feed
    window: Window
    message: ReceivedMessage


class PullConsumer:
    """Takes messages when it likes.

    async with PullConsumer("127.0.0.1:9876", group="audit", topics="orders") as consumer:
        async for message in consumer:
            ...

    `PullConsumerOptions` has the other options: by their names, or several together as `options`.
    """

    def __init__(
        self,
        cluster: str | Cluster,
        *,
        group: str,
        topics: Wanted = (),
        model: Model = Model.CLUSTERING,
        consume_from: ConsumeFrom | dt.datetime = ConsumeFrom.LAST,
        allocation: Allocation | None = None,
        offsets_file: str | Path | None = None,
        client_id: str = "",
        options: PullConsumerOptions | None = None,
        **more: Unpack[PullKeywords],
    ) -> None:
        self._options = dataclasses.replace(options or PullConsumerOptions(), **more)
        inquiries = Inquiries(None, is_orderly=False)
        self._reader = Reader(
            cluster_at(cluster),
            Group(
                name=check_group(group),
                model=model,
                beginning=beginning_of(consume_from),
                allocation=allocation or Averagely(),
                is_active=True,
            ),
            topics,
            client_id=client_id,
            offsets_file=Path(offsets_file or default_offsets_file(group)),
            limits=self._options.flow,
            pull_options=PullOptions(
                messages_max=self._options.pull_messages, sends_subscription=True
            ),
            commit_interval_s=(
                self._options.commit_interval_s if self._options.auto_commit else 0.0
            ),
            handlers=inquiries.handlers,
        )
        inquiries.reader = self._reader
        self._ready: deque[_Ready] = deque()
        self._taken: list[_Ready] = []
        self._arrived = asyncio.Event()
        self._has_started = False
        self._is_assigned = False

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        if self._has_started:
            raise IllegalArgument("a consumer starts once; make a new one")
        self._has_started = True
        try:
            await self._reader.start(self)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Commit what was consumed, unless that is left to `commit()`, and leave the group."""
        if not self._reader.link.is_running:
            return
        await self._reader.stop_reading()
        await self._reader.leave()
        self._arrived.set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    # -- messages --------------------------------------------------------------------------------

    async def poll(
        self, timeout_s: float = 5.0, messages_max: int = POLL_MESSAGES
    ) -> list[ReceivedMessage]:
        """The next messages, at least one unless the time is up. Those before are consumed now."""
        self._reader.link.require_running()
        self._finish_taken()
        try:
            async with asyncio.timeout(timeout_s):
                while not self._take(messages_max) and self._reader.link.is_running:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return []
        return [ready.message for ready in self._taken]

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Messages without end, until the consumer is stopped."""
        while self._reader.link.is_running:
            self._finish_taken()
            taken = self._take(1)
            if taken:
                yield taken[0].message
            else:
                self._arrived.clear()
                await self._arrived.wait()

    def _take(self, count: int) -> list[_Ready]:
        ready = self._ready
        taken = self._taken
        while ready and len(taken) < count:
            candidate = ready.popleft()
            feed = candidate.feed
            if not feed.is_dropped and feed.window is candidate.window:
                taken.append(candidate)
        return taken

    def _finish_taken(self) -> None:
        for feed, window, message in self._taken:
            feed.finish(window, [message])
        self._taken = []

    # -- the reader's sink -----------------------------------------------------------------------

    def deliver(self, feed: Feed, window: Window, messages: list[ReceivedMessage]) -> None:
        self._ready.extend([_Ready(feed, window, message) for message in messages])
        self._arrived.set()

    async def taken(self, feed: Feed) -> None:
        """A queue is ours as soon as it is given to us."""

    async def given_up(self, feed: Feed) -> None:
        """Nothing to wait for: what was taken and not committed comes again elsewhere."""
        self._forget(feed)

    def _forget(self, feed: Feed) -> None:
        self._taken = [ready for ready in self._taken if ready.feed is not feed]
        self._ready = deque(ready for ready in self._ready if ready.feed is not feed)

    async def released(self, queue: MessageQueue) -> None:
        """Nothing was locked."""

    # -- queues ----------------------------------------------------------------------------------

    @property
    def client_id(self) -> str:
        return self._reader.link.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """Those that this consumer reads now."""
        return sorted(self._reader.feeds, key=queue_order)

    async def queues_of(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that can be read."""
        return list((await self._reader.link.routes.find(topic)).read_queues)

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, whoever else reads them."""
        if self._reader.membership.subscriptions:
            raise IllegalArgument("this consumer shares topics with its group; it cannot assign")
        wanted = set(queues)
        self._is_assigned = True
        for topic in {queue.topic for queue in wanted}:
            await self._reader.link.routes.find(topic)
        await self._reader.set_queues(wanted)

    async def subscribe(self, topic: str, wanted: Filter = "*") -> None:
        """Add a topic, or change what is wanted of it."""
        if self._is_assigned:
            raise IllegalArgument("this consumer was assigned its queues; it cannot subscribe")
        await self._reader.subscribe(topic, wanted)

    async def unsubscribe(self, topic: str) -> None:
        await self._reader.unsubscribe(topic)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Read these no further. What was read already is still given out."""
        for queue in queues:
            self._feed(queue).pause()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            self._feed(queue).resume()

    # -- offsets ---------------------------------------------------------------------------------

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on with the message at this offset."""
        if offset < 0:
            raise IllegalArgument(f"offset {offset}; the first one is 0")
        feed = self._feed(queue)
        self._forget(feed)
        feed.reset(offset)

    async def seek_to_beginning(self, queue: MessageQueue) -> None:
        self.seek(queue, await self.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        self.seek(queue, await self.max_offset(queue))

    async def commit(self) -> None:
        """Write down that everything given out so far is consumed. Raises when that fails."""
        self._finish_taken()
        await self._reader.commit(strict=True)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where the group is; None when it has read nothing of this queue."""
        return await self._reader.progress.read(queue, exact=True)

    def position(self, queue: MessageQueue) -> int | None:
        """What would be committed now; None while it is not known where to begin."""
        return self._feed(queue).commit_offset

    async def min_offset(self, queue: MessageQueue) -> int:
        return await queue_offset(self._reader.link, queue, RequestCode.GET_MIN_OFFSET)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset of the next message that will come."""
        return await queue_offset(self._reader.link, queue, RequestCode.GET_MAX_OFFSET)

    async def offset_at(self, queue: MessageQueue, time: dt.datetime) -> int:
        """The first message that was stored at that time or after it."""
        begin = beginning_of(time).timestamp_ms
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return await queue_offset(self._reader.link, queue, code, timestamp=begin)

    def _feed(self, queue: MessageQueue) -> Feed:
        feed = self._reader.feeds.get(queue)
        if feed is None:
            raise IllegalArgument(f"this consumer does not read {queue}")
        return feed
