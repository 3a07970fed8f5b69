"""A consumer that gets messages as they come.

Underneath it pulls: a broker holds each pull until there is something to answer. Handlers run
concurrently, or for each queue one after the other (`orderly`).
"""

import asyncio
import dataclasses
import datetime as dt
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

from cometmq.protocol.message_queue import MessageQueue

from ..allocation import Allocation, Averagely, queue_order
from ..cluster import Cluster, cluster_at
from ..errors import IllegalArgument
from .concurrent import ConcurrentWorkers
from .feed import FlowLimits
from .handling import BatchHandler, Handler, Handling
from .inquiries import Inquiries
from .locks import QueueLocks
from .membership import Group
from .options import PushKeywords, PushOptions
from .orderly import OrderlyOptions, OrderlyWorkers
from .progress import default_offsets_file
from .pulls import PullOptions
from .reader import Reader
from .returns import Returns
from .subscriptions import ConsumeFrom, Filter, Model, Wanted, beginning_of, check_group


class PushConsumer:
    """Calls a handler for each message.

    async with PushConsumer("127.0.0.1:9876", group="billing", topics="orders", handler=bill):
        await asyncio.Event().wait()

    A handler returns None when it has consumed its message, `Later` when it is to come again.
    `PushOptions` has the other options: by their names, or several together as `options`.
    """

    def __init__(
        self,
        cluster: str | Cluster,
        *,
        group: str,
        topics: Wanted,
        handler: Handler | None = None,
        batch_handler: BatchHandler | None = None,
        orderly: bool = False,
        model: Model = Model.CLUSTERING,
        consume_from: ConsumeFrom | dt.datetime = ConsumeFrom.LAST,
        allocation: Allocation | None = None,
        offsets_file: str | Path | None = None,
        client_id: str = "",
        options: PushOptions | None = None,
        **more: Unpack[PushKeywords],
    ) -> None:
        """`offsets_file` keeps the progress of a member of a broadcasting group."""
        self._options = dataclasses.replace(options or PushOptions(), **more)
        self._handling = Handling(handler, batch_handler, self._options.workers)
        self._inquiries = Inquiries(self._handling, is_orderly=orderly)
        self._reader = Reader(
            cluster_at(cluster),
            Group(
                name=check_group(group),
                model=model,
                beginning=beginning_of(consume_from),
                allocation=allocation or Averagely(),
                is_active=False,
            ),
            topics,
            client_id=client_id,
            offsets_file=Path(offsets_file or default_offsets_file(group)),
            limits=_limits(self._options.flow, orderly),
            pull_options=PullOptions(messages_max=self._options.pull_messages),
            commit_interval_s=self._options.commit_interval_s,
            handlers=self._inquiries.handlers,
        )
        self._inquiries.reader = self._reader
        self._new_workers = self._orderly_workers if orderly else self._concurrent_workers
        self._workers: ConcurrentWorkers | OrderlyWorkers | None = None

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when this member has its queues. A filter that cannot be read is refused."""
        if self._workers is not None:
            raise IllegalArgument("a consumer starts once; make a new one")
        self._workers = self._new_workers()
        self._handling.start()
        self._workers.start()
        try:
            await self._reader.start(self._workers)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Let handlers that have begun end, commit, leave the group."""
        if self._workers is None or not self._reader.link.is_running:
            return
        if asyncio.current_task() in self._workers.tasks:
            raise IllegalArgument("a handler cannot await its own end: stop from outside of it")
        await self._reader.stop_reading()
        await self._workers.stop(self._options.stop_timeout_s)
        await self._reader.leave()
        self._handling.stop()

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

    # -- while it runs ---------------------------------------------------------------------------

    @property
    def client_id(self) -> str:
        return self._reader.link.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """Those that this member has now."""
        return sorted(self._reader.feeds, key=queue_order)

    async def subscribe(self, topic: str, wanted: Filter = "*") -> None:
        """Add a topic, or change what is wanted of it."""
        await self._reader.subscribe(topic, wanted)

    async def unsubscribe(self, topic: str) -> None:
        await self._reader.unsubscribe(topic)

    def pause(self) -> None:
        """Read no further, until `resume`. What was read already is still handled."""
        self._reader.pause()

    def resume(self) -> None:
        self._reader.resume()

    # -- parts -----------------------------------------------------------------------------------

    def _returns(self) -> Returns | None:
        """A broadcasting group repeats nothing: each member has its own copy."""
        if not self._reader.is_shared:
            return None
        return Returns(
            self._reader.link, self._reader.group.name, self._options.max_reconsume_times
        )

    def _concurrent_workers(self) -> ConcurrentWorkers:
        return ConcurrentWorkers(
            self._handling,
            self._returns(),
            workers=self._options.workers,
            batch_size=1 if self._handling.takes_one else self._options.batch_size,
            timeout_s=self._options.consume_timeout_s,
        )

    def _orderly_workers(self) -> OrderlyWorkers:
        reader = self._reader
        return OrderlyWorkers(
            self._handling,
            self._returns(),
            QueueLocks(reader.link, reader.group.name) if reader.is_shared else None,
            OrderlyOptions(
                batch_size=1 if self._handling.takes_one else self._options.batch_size,
                suspend_s=self._options.suspend_s,
                reconsume_max=self._options.max_reconsume_times,
            ),
            workers=self._options.workers,
        )


def _limits(flow: FlowLimits, orderly: bool) -> FlowLimits:
    """Orderly consumption leaves no gaps: how far the offsets span says nothing there."""
    return dataclasses.replace(flow, span=0) if orderly else flow
