"""The end of a transactional write: all half messages of a batch are decided alike.

NameServers keep how far each query has come, as a value for its id: that batch 7 has begun before
its first half message is committed, that it is done behind the last. More than half of them must
know, and more than half are asked, so that one may be away or new. A batch that Spark runs again,
because its driver died before it noted the end, is not shown to consumers a second time. All
brokers that may have shown rows of it are asked, also one that is away: the batch waits for it.

    7 has begun  half messages of batch 7 whose rows are in the topic already are rolled back, the
                 others committed; also when it is done, since a clone may have other rows
    8 has begun  all are rolled back, and the query fails: its checkpoint is older than the mark
    else         all are committed
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec

from cometmq.client.admin import Admin
from cometmq.client.link import Link

from ..errors import NotSent
from ..topic.patience import patiently
from .decisions import Decisions
from .halves import Half
from .options import SinkOptions
from .orphans import HalfEnds, Orphans
from .shown import Shown

log = logging.getLogger(__name__)
NAMESPACE: Final = "COMETMQ_SPARK_SINK"


class Batch(NamedTuple):
    """What tasks have written."""

    query: str
    """Or the job, of a batch write; empty if nobody told."""
    halves: Sequence[Half]
    half_ends: HalfEnds
    """Where the brokers' queues of half messages ended before."""


class Mark(msgspec.Struct, frozen=True):
    """How far a query has come."""

    batch: int = -1
    done: bool = True
    half_ends: HalfEnds = {}
    """Where the brokers' queues of half messages ended: what is before that is decided."""
    brokers: Collection[str] = ()
    """Where rows of the batch may be shown, by whichever attempt at it."""


class Commits:
    def __init__(self, options: SinkOptions, *, is_ordered: bool) -> None:
        """`is_ordered`: whether rows of one queue are to be shown in their order."""
        self._options = options
        self._admin = Admin(options.cluster)
        self._link = Link(options.cluster)
        self._shown = Shown(self._link, options.send_timeout_s)
        self._decisions = Decisions(self._link, options, self._shown, is_ordered=is_ordered)
        self._orphans = Orphans(self._admin, self._decisions)

    async def __aenter__(self) -> Self:
        await self._admin.start()
        self._link.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.gather(self._admin.stop(), self._link.stop())

    async def commit(self, written: Batch) -> None:
        """A batch write: nobody writes the same again."""
        await self._decisions.commit(written.halves)
        await self._orphans.roll_back(written.query, written.half_ends, written.halves)

    async def commit_batch(self, written: Batch, batch: int) -> None:
        query, halves = written.query, written.halves
        mark = await self._read(query)
        if mark.batch > batch:
            await self._decisions.roll_back(halves)
            raise NotSent(
                f"the NameServers know of batch {mark.batch} of query {query}, and this is batch "
                f"{batch}: its checkpoint is an older copy, or a clone; start with a new checkpoint"
            )
        since = {**written.half_ends, **mark.half_ends}
        brokers = {half.broker_name for half in halves}
        shown = set[Half]()
        if mark.batch == batch:
            log.warning(
                "batch %d of query %s was begun before: what is shown already is not shown again",
                batch, query,
            )  # fmt: skip
            shown = await self._shown.among_the_newest(halves, mark.brokers)
            brokers.update(mark.brokers)
        await self._write(query, Mark(batch, done=False, half_ends=since, brokers=brokers))
        await self._decisions.commit([half for half in halves if half not in shown])
        await self._decisions.roll_back([half for half in halves if half in shown])
        ends = await self._orphans.roll_back(query, since, halves)
        await self._write(query, Mark(batch, done=True, half_ends=ends, brokers=brokers))

    async def roll_back(self, written: Batch) -> None:
        await self._decisions.roll_back(written.halves)
        if written.query:
            await self._orphans.roll_back(written.query, written.half_ends, written.halves)

    async def roll_back_earlier(self, query: str, before: HalfEnds) -> int:
        """What attempts left that were killed before this one began; how many."""
        mark = await self._read(query)
        return await self._orphans.roll_back_between(query, mark.half_ends, before)

    # -- parts -----------------------------------------------------------------------------------

    async def _read(self, query: str) -> Mark:
        told = await patiently(
            lambda: self._admin.namesrvs.get_from_most(NAMESPACE, query),
            "asking the NameServers how far the query has come",
            patience_s=self._options.send_timeout_s,
        )
        marks = [msgspec.json.decode(text, type=Mark) for text in told]
        newest = max(marks, key=lambda mark: (mark.batch, mark.done), default=Mark())
        # One that missed the last attempt at the batch does not know where that has shown rows.
        brokers = {name for mark in marks if mark.batch == newest.batch for name in mark.brokers}
        return msgspec.structs.replace(newest, brokers=brokers)

    async def _write(self, query: str, mark: Mark) -> None:
        await patiently(
            lambda: self._admin.namesrvs.put_to_most(
                NAMESPACE, query, msgspec.json.encode(mark).decode()
            ),
            "telling the NameServers how far the query has come",
            patience_s=self._options.send_timeout_s,
        )
