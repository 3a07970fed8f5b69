"""A replay step by step, so that it can go on where it was.

Before a step it is noted where the target's queues end; behind it, that it is done. A step that was
under way when its run was killed is looked for in the target, from that note on, and only the rest
of it is sent. So it is, too, when Spark has lost a task and begun it again.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cometmq.client.admin import Admin as AsyncAdmin
from cometmq.client.admin.progress import TopicStats
from cometmq.client.blocking import Admin
from cometmq.client.errors import TopicNotFound
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.topic_config import PERM_WRITE

from ..connection import cluster_of
from ..errors import BadOption, NotThere, SparkError
from ..session import is_connect
from ..topic.offsets import Offsets, to_json
from ..topic.patience import patiently
from .replay_attempts import AWAY_FOR_NOW, PARTITION_DIGITS, BegunBefore
from .replay_checkpoint import Checkpoint, CheckpointDirectory
from .replay_plan import Plan, steps_for, with_targets
from .replay_sending import SENT, Step, ids_of, ready, rows_sent, sink_options
from .replay_sources import Choice, Source, survey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)
SETTLE_S: Final = 3.0
"""Between two looks at what a killed run has sent: its tasks may outlive it for a moment."""
SETTLE_LOOKS_MAX: Final = 20
STEP_TRIES_MAX: Final = 4
"""Of a step whose tasks are lost: as often as Spark tries a task."""
SAMPLES_MAX: Final = 10


class Sample(msgspec.Struct, frozen=True):
    """A message as it is shown."""

    place: str
    message_id: str
    stored_ms: int
    tags: str
    keys: str
    bytes: int


class Replayed(msgspec.Struct):
    """What became of the messages so far."""

    source: str
    dry_run: bool
    messages: int = 0
    """That are to be sent."""
    bytes: int = 0
    sent: int = 0
    found: int = 0
    """Sent by an earlier run of the same replay."""
    steps: int = 0
    steps_done: int = 0
    by_topic: dict[str, int] = msgspec.field(default_factory=dict)
    """Messages to be sent, by where they go."""
    queues: dict[str, str] = msgspec.field(default_factory=dict)
    """Where each source queue goes."""
    samples: list[Sample] = msgspec.field(default_factory=list)


class Run:
    def __init__(
        self,
        spark: "SparkSession",
        source: Source,
        target: Mapping[str, str],
        admin: Admin,
        kept: CheckpointDirectory | None,
        on_progress: Callable[[Replayed], object],
    ) -> None:
        self._spark = spark
        self._source = source
        self._target = dict(target)
        self._admin = admin
        self._kept = kept
        self._on_progress = on_progress

    # -- what is to be done ----------------------------------------------------------------------

    def plan(
        self, asked: str, choice: Choice, to: str, rate: float | None, *, keep_queues: bool
    ) -> Checkpoint:
        """A new one, for what the source has of this choice."""
        found = survey(self._source.all())
        if found.without_body:
            log.warning(
                "%d messages are left out: their bodies could not be read where they come from",
                found.without_body,
            )
        there = {queue.topic for queue in found.queues}
        for topic in choice.topics:
            if topic not in there and not self._source.has(topic):
                raise NotThere(f"{self._source.shown} has no topic {topic}")
        topics = {to} if to else there
        targets = {topic: self._queues_of(topic) for topic in sorted(topics)}
        queues = with_targets(found.queues, targets, to, keep_queues=keep_queues)
        rows = sum(queue.rows for queue in queues)
        plan = Plan(
            uuid.uuid4().hex, asked, queues, steps_for(rows, rate), found.first_physical,
            found.end_physical, choice.since_ms, choice.until_ms,
        )  # fmt: skip
        return Checkpoint(plan, 0)

    def _queues_of(self, topic: str) -> list[MessageQueue]:
        try:
            route = self._admin.topics.route(topic)
        except TopicNotFound:
            raise NotThere(f"there is no topic {topic}: create it first") from None
        queues = [
            MessageQueue(topic, data.broker_name, number)
            for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
            if data.perm & PERM_WRITE
            for number in range(data.write_queue_nums)
        ]
        if not queues:
            raise BadOption(
                f"topic {topic} takes no messages: give it permission to be written (6)"
            )
        return queues

    def shown(self, at: Checkpoint) -> Replayed:
        """What would be done."""
        from pyspark.sql import functions as f

        told = self._told(at, dry_run=True)
        frame = self._source.all().where("body is not null")
        frame = frame.orderBy("topic", "queueId", "queueOffset").limit(SAMPLES_MAX)
        frame = frame.withColumn("stored_ms", f.unix_millis("storeTimestamp"))
        told.samples = [_sample(row.asDict()) for row in frame.collect()]
        return told

    def _told(self, at: Checkpoint, *, dry_run: bool) -> Replayed:
        plan = at.plan
        told = Replayed(
            self._source.shown, dry_run, plan.rows, plan.bytes, 0, at.sent, plan.steps,
            at.step,
        )  # fmt: skip
        for queue in plan.queues:
            topic = queue.target.topic
            told.by_topic[topic] = told.by_topic.get(topic, 0) + queue.rows
            told.queues[f"{queue.topic} {queue.broker}:{queue.queue}"] = queue.to
        return told

    # -- steps -----------------------------------------------------------------------------------

    def run(self, at: Checkpoint, rate: float | None) -> Replayed:
        told = self._told(at, dry_run=False)
        if not at.plan.queues:
            return told
        if at.step < at.plan.steps:
            for topic in at.plan.topics:  # From here on one that is not there is waited for.
                self._queues_of(topic)
        while at.step < at.plan.steps:
            at = self._step(at, rate, told)
            self._save(at)
            self._on_progress(told)
        return told

    def _step(self, at: Checkpoint, rate: float | None, told: Replayed) -> Checkpoint:
        """Where the replay is behind the step."""
        skip: dict[int, int] = {}
        if at.began_at is not None:  # An earlier run was killed in the middle of it.
            skip = self._settled(at, rate)
        else:
            at = msgspec.structs.replace(at, began_at=self._ends(at.plan))
            self._save(at)
        found, all_of_it = sum(skip.values()), self._send_all(at, skip, rate)
        told.found += found
        told.sent += all_of_it - found
        told.steps_done += 1
        return Checkpoint(at.plan, at.step + 1, None, at.sent + all_of_it)

    def _send_all(self, at: Checkpoint, skip: dict[int, int], rate: float | None) -> int:
        """How many messages of the step are there then, `skip` included."""
        for _ in range(STEP_TRIES_MAX):
            try:
                return sum(skip.values()) + self._send(at, skip, rate)
            except BegunBefore as error:
                log.warning("step %d: Spark has begun a task again: %s", at.step + 1, error)
                skip = self._settled(at, rate)
        raise SparkError(
            f"step {at.step + 1}: Spark has lost tasks of it {STEP_TRIES_MAX} times; its log says "
            "why. With a checkpoint, running it again goes on from here"
        )

    def _save(self, at: Checkpoint) -> None:
        if self._kept is not None:
            self._kept.save(at)

    def _send(self, at: Checkpoint, skip: dict[int, int], rate: float | None) -> int:
        tasks = self._tasks(at.plan)
        share = self._share(at.plan, rate)
        sink = sink_options(self._target)
        step = Step(sink, at.plan, at.step, skip, share, at.began_at or {})
        frame = ready(self._source.step(at.plan, at.step), tasks, self._source.order)
        return rows_sent(frame.mapInArrow(step.send, SENT).collect())

    def _share(self, plan: Plan, rate: float | None) -> float | None:
        """A task's part of the rate."""
        return None if rate is None else rate / self._tasks(plan)

    def _tasks(self, plan: Plan) -> int:
        """That run at the same time, at most."""
        if is_connect(self._spark):  # Only the server knows how many it runs.
            return len(plan.queues)
        return min(len(plan.queues), self._spark.sparkContext.defaultParallelism)

    def _ends(self, plan: Plan) -> Offsets:
        ends: dict[MessageQueue, int] = {}
        for topic in plan.topics:
            stats = asyncio.run(self._stats(topic)).queues
            ends |= {queue: told.max_offset for queue, told in stats.items()}
        targets = {queue.target for queue in plan.queues}
        return to_json({queue: ends.get(queue, 0) for queue in targets})

    async def _stats(self, topic: str) -> TopicStats:
        async with AsyncAdmin(cluster_of(self._target)) as admin:
            what = f"asking where {topic} ends"
            return await patiently(lambda: admin.topics.stats(topic), what, AWAY_FOR_NOW)

    def _settled(self, at: Checkpoint, rate: float | None) -> dict[int, int]:
        """How many messages of each source queue are there, once their number stays the same."""
        found, pause_s = self._present(at), settle_s(self._share(at.plan, rate))
        for _ in range(SETTLE_LOOKS_MAX):
            time.sleep(pause_s)
            again = self._present(at)
            if again == found:
                return found
            found = again
        raise SparkError("another run of this replay is still sending: end it first")

    def _present(self, at: Checkpoint) -> dict[int, int]:
        """They come in order, so it is enough to find the last one of each."""
        from pyspark.sql import functions as f

        begin = ids_of(at.plan, at.step)
        rest = f.substring("msgId", len(begin) + 1, len(begin))
        source = f.conv(f.substring(rest, 1, PARTITION_DIGITS), 16, 10).cast("int")
        row = f.conv(f.substring(rest, PARTITION_DIGITS + 1, len(begin)), 16, 10).cast("int")
        tail = self._tail(at).where(f.col("msgId").startswith(begin))
        last = tail.groupBy(source.alias("source")).agg((f.max(row) + 1).alias("rows"))
        return {found.source: found.rows for found in last.collect()}

    def _tail(self, at: Checkpoint) -> "DataFrame":
        """What came to the target's queues since the step began."""
        began = at.began_at or {}
        queues = {topic: list(offsets) for topic, offsets in began.items()}
        reader = self._spark.read.format("rocketmq").options(**self._target)
        reader = reader.option("assign", msgspec.json.encode(queues).decode())
        reader = reader.option("startingOffsets", msgspec.json.encode(began).decode())
        return reader.option("columns", "msgId").load()


def settle_s(share: float | None) -> float:
    """A task with a small part of a rate may be silent for longer, and go on."""
    return SETTLE_S if share is None else max(SETTLE_S, 2 / share)


def _sample(row: dict[str, Any]) -> Sample:
    place = f"{row['topic']} {row.get('brokerName') or '?'}:{row['queueId']} {row['queueOffset']}"
    return Sample(
        place, row.get("msgId") or "", row["stored_ms"], row.get("tags") or "",
        row.get("keys") or "", len(row["body"] or b""),
    )  # fmt: skip
