"""How Spark writes to topics: tasks send, and the driver hears of them.

Spark makes a writer of its own for the tasks of a job or micro-batch, and for a stream another one
for its commit: what they share travels with the writer to the tasks, and back with the messages.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from cometmq.client.admin import Admin
from cometmq.client.errors import ClientError
from cometmq.client.producer.results import SendAnswer
from cometmq.transport.memory import keep_freed_memory

from ..errors import NotSent, SparkError, TooManyHalves
from ..worker_connection import GoesToWorkers
from ..worker_garbage import leave_modules_alone
from .commits import Batch, Commits
from .halves import Half, half_of
from .ids import Origin, origin_in_job
from .options import SinkOptions, read_sink_options
from .orphans import HalfEnds, half_ends
from .parcels import Parcel
from .sending import Sending
from .task import PLACING, Known, Task

log = logging.getLogger(__name__)
QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
Messages = list[WriterCommitMessage | None]


class Plan(NamedTuple):
    """What all tasks of a job or micro-batch know, whichever attempt they are."""

    queues: Known
    half_ends: HalfEnds


class Written(WriterCommitMessage):
    """What a task has sent."""

    def __init__(
        self, origin: Origin, rows: int, halves: Sequence[Half], half_ends: HalfEnds
    ) -> None:
        self.origin = origin
        self.rows = rows
        self.halves = halves
        self.half_ends = half_ends


class RocketMQWriter(GoesToWorkers, DataSourceArrowWriter):
    """A batch write. All attempts at its tasks know it as the same job."""

    def __init__(self, given: Mapping[str, str], columns: Sequence[str]) -> None:
        self._given = given
        self._columns = columns
        self._job = uuid.uuid4()
        self._plan = asyncio.run(planned(read_sink_options(given)))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        origin = origin_in_job(self._job, _task().partitionId())
        return write_rows(self._given, origin, self._columns, self._plan, iterator)

    def commit(self, messages: Messages) -> None:
        written = Batch(str(self._job), _halves(messages), self._plan.half_ends)
        _decide(self._given, written, self._columns, lambda commits: commits.commit(written))

    def abort(self, messages: Messages) -> None:
        _roll_back(self._given, Batch(str(self._job), _halves(messages), self._plan.half_ends))


class RocketMQStreamWriter(GoesToWorkers, DataSourceStreamArrowWriter):
    def __init__(self, given: Mapping[str, str], columns: Sequence[str]) -> None:
        self._given = given
        self._columns = columns
        self._plan = asyncio.run(planned(read_sink_options(given)))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        task = _task()
        query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
        assert query is not None
        assert batch is not None
        origin = Origin(query, int(batch), task.partitionId())
        return write_rows(self._given, origin, self._columns, self._plan, iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        written = _batch(messages)
        _decide(
            self._given, written, self._columns,
            lambda commits: commits.commit_batch(written, batchId),
        )  # fmt: skip

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: ARG002, N803 - Spark's name
        _roll_back(self._given, _batch(messages))


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None
    return task


def write_rows(
    given: Mapping[str, str],
    origin: Origin,
    columns: Sequence[str],
    plan: Plan,
    batches: Iterator[pa.RecordBatch],
) -> Written:
    """What a task does. Half messages of a task that fails are rolled back, if that is possible."""
    leave_modules_alone()
    keep_freed_memory()
    halves: list[Half] = []
    options = read_sink_options(given)

    def stored(parcel: Parcel, answer: SendAnswer) -> None:
        halves.append(half_of(parcel, answer))

    told = stored if options.is_transactional else None
    try:
        with Task(options, origin, columns, plan.queues, told) as task:
            task.send(batches)
    except TooManyHalves as error:
        _roll_back(given, Batch("", halves, {}))
        raise NotSent(f"{error}; {_room_made(options, origin.query, plan)}") from error
    except Exception:
        _roll_back(given, Batch("", halves, {}))
        raise
    in_order = sorted(halves, key=lambda half: half.unique_id)
    return Written(origin, task.rows, in_order, plan.half_ends)


def _room_made(options: SinkOptions, query: str, plan: Plan) -> str:
    """What can be done when a broker has too many half messages, and what was done. They are
    decided at the end of a batch, but some may be those of attempts that had no end."""

    async def make_room() -> int:
        async with Commits(options, is_ordered=False) as commits:
            return await commits.roll_back_earlier(query, plan.half_ends)

    remedy = "write smaller batches (maxOffsetsPerTrigger), or to more brokers"
    try:
        count = asyncio.run(make_room())
    except (ClientError, SparkError) as error:
        log.warning("half messages of killed attempts stay undecided: %s", error)
        count = 0
    if not count:
        return remedy
    return f"{count} of killed attempts of this query were rolled back: try again, else {remedy}"


# -- at the driver -------------------------------------------------------------------------------


async def planned(options: SinkOptions) -> Plan:
    """Where rows with fixed ids go: a task that begins while a broker is away must not send its
    rows elsewhere than the attempt before it."""
    queues: Known = {}
    if options.has_fixed_ids and options.topic:
        sending = Sending(options)
        await sending.start()
        try:
            queues = {options.topic: await sending.queues(options.topic)}
        finally:
            await sending.close()
    if not options.is_transactional:
        return Plan(queues, {})
    async with Admin(options.cluster) as admin:
        return Plan(queues, await half_ends(admin))


def _of_tasks(messages: Messages) -> list[Written]:
    """Of those that have come to their end."""
    return [message for message in messages if isinstance(message, Written)]


def _halves(messages: Messages) -> list[Half]:
    return [half for message in _of_tasks(messages) for half in message.halves]


def _batch(messages: Messages) -> Batch:
    """All tasks of a micro-batch tell the same of it."""
    tasks = _of_tasks(messages)
    if not tasks:
        return Batch("", (), {})
    return Batch(tasks[0].origin.query, _halves(messages), tasks[0].half_ends)


def _decide(
    given: Mapping[str, str],
    written: Batch,
    columns: Sequence[str],
    decide: Callable[[Commits], Awaitable[None]],
) -> None:
    async def decided(options: SinkOptions) -> None:
        async with Commits(options, is_ordered=not PLACING.isdisjoint(columns)) as commits:
            await decide(commits)

    options = read_sink_options(given)
    if options.is_transactional and (written.halves or written.half_ends):
        asyncio.run(decided(options))


def _roll_back(given: Mapping[str, str], written: Batch) -> None:
    """As far as possible: what stays undecided is never shown to consumers either."""
    try:
        _decide(given, written, (), lambda commits: commits.roll_back(written))
    except (ClientError, SparkError) as error:
        log.warning("%d half messages stay undecided: %s", len(written.halves), error)
