"""A cluster as Spark's driver sees it: which queues there are, what they have, where places are.

Calls block, and wait for brokers that are away for a moment. The event loop beside keeps the
connections alive between two batches.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from cometmq.client.admin import Admin
from cometmq.client.admin.reach import together
from cometmq.client.link import Link
from cometmq.protocol.message_queue import MessageQueue
from cometmq.transport.background import BackgroundLoop

from .discovery import KnownQueues, discover, gone
from .group_commits import commit
from .offsets import ByQueue, QueueRange
from .options import Position, SourceOptions
from .patience import patiently
from .positions import resolve
from .pulls import Pulls, QueueGone

log = logging.getLogger(__name__)
_SAMPLE_MESSAGES = 32
T = TypeVar("T")


class Overview:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._background = BackgroundLoop("cometmq-spark")
        self._admin = Admin(options.cluster)
        self._link = Link(options.cluster)

    def __enter__(self) -> Self:
        self._background.start()
        self._call(self._start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call(self._stop())
        self._background.stop()

    def queues(self, places: ByQueue | None = None, *, all_answer: bool = False) -> KnownQueues:
        """All queues there are now. Those in which a stream has a place already may be away; with
        `all_answer` not those of brokers that are listed."""
        return self._patiently(
            lambda: discover(self._admin, self._options, places, all_answer=all_answer),
            "looking for queues",
        )

    def gone(self, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Those of them that are no more, while their brokers are there."""
        return self._patiently(lambda: gone(self._admin, queues), "looking for missing queues")

    def resolve(self, place: Position, queues: KnownQueues) -> ByQueue:
        group = self._options.consumer_group
        return self._patiently(
            lambda: resolve(self._admin, place, queues, group), f"finding {place.option}"
        )

    def message_bytes(self, ranges: Iterable[QueueRange]) -> dict[MessageQueue, int]:
        """How large the first messages of each range are on average."""
        return self._patiently(lambda: self._sampled(list(ranges)), "sampling messages")

    def commit(self, offsets: ByQueue) -> None:
        """Have the consumer group be where the stream is. When that fails the group is late, which
        the next commit mends."""
        group = self._options.consumer_group
        for topic, error in self._call(commit(self._admin, group, offsets)).items():
            log.warning("group %s cannot commit in topic %s now: %s", group, topic, error)

    # -- parts -----------------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._background.call(work)

    def _patiently(self, work: Callable[[], Awaitable[T]], what: str) -> T:
        return self._call(patiently(work, what))

    async def _start(self) -> None:
        await self._admin.start()
        self._link.start()

    async def _stop(self) -> None:
        await asyncio.gather(self._admin.stop(), self._link.stop())

    async def _sampled(self, ranges: list[QueueRange]) -> dict[MessageQueue, int]:
        sizes = await together(*map(self._sample, ranges))
        return {part.queue: size for part, size in zip(ranges, sizes, strict=True) if size}

    async def _sample(self, part: QueueRange) -> int:
        pulls = Pulls(self._link, part.queue, group=self._options.consumer_group)
        await pulls.connect()
        start = part.start
        try:
            pulled = await pulls.answer(pulls.ask(start, min(part.size, _SAMPLE_MESSAGES)))
        except QueueGone:  # Its task tells.
            return 0
        if pulled.min_offset > start:  # Its first messages are lost; sample those left.
            start = pulled.min_offset
            pulled = await pulls.answer(pulls.ask(start, _SAMPLE_MESSAGES))
        # Records are not looked into: if some are damaged, their task tells.
        return len(pulled.records) // max(1, pulled.next_offset - start)
