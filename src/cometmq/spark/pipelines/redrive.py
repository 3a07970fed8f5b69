"""Dead letters back to their topics, each once: `redrive("127.0.0.1:9876", "billing")`.

Letters are read and chosen by Spark, and sent by the driver in the order of their queues. Where all
letters are redriven is kept as the offsets of a consumer group of its own; of those behind, the
topics tell themselves. So a redrive can be killed at any time and run again, with the same choice
or with another one. See `redrive_desk` for why no letter comes twice.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, check_topic
from cometmq.transport.background import BackgroundLoop

from ..connection import CONNECTION, cluster_of
from ..errors import BadOption
from ..session import session
from ..topic.offsets import ByQueue, to_json
from .failures import plain
from .redrive_desk import RedriveDesk
from .redrive_letters import COLUMNS, Copy, Letter, letter_of
from .replay_pace import Pace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAIT_S: Final = 75.0
"""For the lock of a redrive that was killed: longer than a broker keeps it."""
WINDOW: Final = 64
"""Letters that are looked for, sent and noted together."""
SAMPLES_MAX: Final = 10


class Sample(msgspec.Struct, frozen=True):
    """A letter as it is shown."""

    place: str
    message_id: str
    topic: str
    """Where it goes."""
    tags: str
    keys: str
    stored_ms: int
    attempts: int
    bytes: int


class Redriven(msgspec.Struct):
    """What became of the letters so far."""

    group: str
    dry_run: bool
    letters: int = 0
    """Looked at: all behind those that an earlier run has done with."""
    chosen: int = 0
    """By filters and limit."""
    sent: int = 0
    """Of a dry run: would be sent."""
    found: int = 0
    """Redriven before, and there."""
    refused: int = 0
    by_topic: dict[str, int] = msgspec.field(default_factory=dict)
    """Sent."""
    reasons: dict[str, int] = msgspec.field(default_factory=dict)
    """Of refusals."""
    samples: list[Sample] = msgspec.field(default_factory=list)

    def add(self, copy: Copy) -> None:
        self.sent += 1
        self.by_topic[copy.topic] = self.by_topic.get(copy.topic, 0) + 1
        if len(self.samples) < SAMPLES_MAX:
            self.samples.append(_sample(copy))

    def refuse(self, reason: str) -> None:
        self.refused += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1


def _sample(copy: Copy) -> Sample:
    letter = copy.letter
    return Sample(
        letter.place, letter.message_id, copy.topic, letter.tags, letter.keys, letter.stored_ms,
        letter.attempts, len(letter.body),
    )  # fmt: skip


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which letters are redriven: those that fit all that is said."""

    tags: Sequence[str] = ()
    keys: Sequence[str] = ()
    since_ms: int | None = None
    """When they became dead letters."""
    until_ms: int | None = None
    where: str = ""
    """SQL over the source's columns, as in `reconsumeTimes > 3 and properties['shop'] = '7'`."""
    limit: int | None = None

    def condition(self) -> str:
        """As SQL."""
        tests = [
            f"tags in ({_texts(self.tags)})" if self.tags else "",
            f"arrays_overlap(split(keys, ' '), array({_texts(self.keys)}))" if self.keys else "",
            f"stored_ms >= {self.since_ms:d}" if self.since_ms is not None else "",
            f"stored_ms < {self.until_ms:d}" if self.until_ms is not None else "",
            f"({self.where})" if self.where else "",
        ]
        return " and ".join(filter(None, tests)) or "true"


def redrive(
    namesrv: str,
    group: str,
    *,
    to: str = "",
    choice: Choice = Choice(),  # noqa: B008 - it cannot be changed
    rate: float | None = None,
    dry_run: bool = False,
    wait_s: float = WAIT_S,
    options: Mapping[str, str] | None = None,
    spark: "SparkSession | None" = None,
    on_progress: Callable[[Redriven], object] = lambda _: None,
    on_wait: Callable[[], object] = lambda: None,
) -> Redriven:
    """Send the dead letters of a consumer group again, to the topics where they were first, or all
    of them `to` one topic.

    `rate` is letters a second, at most. `dry_run` tells what would be done. AlreadyRunning is
    raised when another redrive of the group is still at work after `wait_s`. `options` are those of
    the source that say how to reach the cluster. Errors are those of `cometmq.spark.errors`.
    """
    _check(group, to, choice, rate, options or {})
    where = {**(options or {}), "namesrvAddr": namesrv}
    told = Redriven(group, dry_run)
    background = BackgroundLoop("cometmq-redrive")
    background.start()
    desk = RedriveDesk(cluster_of(where), group)
    try:
        background.call(desk.open())
        if to and not desk.has_topic(to):
            raise BadOption(f"there is no topic {to}: create it first")
        running = spark if spark is not None else session("cometmq-redrive")
        if not dry_run:
            background.call(desk.lock(wait_s, on_wait))
        letters = _letters(running, where, background.call(desk.starts()), choice)
        _Run(background, desk, to, rate, told, on_progress).redrive(letters, choice.limit)
    except Exception as error:
        raise plain(error) from error
    finally:
        background.call(desk.close())
        background.stop()
    return told


def _check(
    group: str, to: str, choice: Choice, rate: float | None, options: Mapping[str, str]
) -> None:
    try:
        check_topic(DEAD_LETTER_PREFIX + group)
        if to:
            check_topic(to)
    except IllegalMessage as error:
        raise BadOption(str(error)) from None
    if to.startswith((DEAD_LETTER_PREFIX, RETRY_PREFIX)):
        raise BadOption(f"{to} is no topic that messages are sent to")
    if choice.limit is not None and choice.limit < 1:
        raise BadOption("limit: 1 or more is possible")
    if rate is not None and rate <= 0:
        raise BadOption("rate: more than 0 letters a second is possible")
    wrong = [name for name in options if name not in CONNECTION[1:]]
    if wrong:
        raise BadOption(f"{wrong[0]}: a redrive takes {', '.join(CONNECTION[1:])}")


def _letters(
    spark: "SparkSession", where: Mapping[str, str], starts: ByQueue, choice: Choice
) -> "DataFrame":
    """Letters with `chosen`; only the chosen ones with their bodies. Spark keeps their order."""
    from pyspark.sql import functions as f

    told = to_json(starts)
    reader = spark.read.format("rocketmq").options(**dict(where)).option("topic", ",".join(told))
    reader = reader.option("startingOffsets", msgspec.json.encode(told).decode())
    # What retention takes meanwhile is gone; what is left is to be redriven.
    reader = reader.option("failOnDataLoss", "false").option("columns", ",".join(COLUMNS))
    frame = reader.load().withColumn("stored_ms", f.unix_millis("storeTimestamp"))
    chosen = f.coalesce(f.expr(choice.condition()), f.lit(False))
    body = f.when(f.col("chosen"), f.col("body"))
    return frame.withColumn("chosen", chosen).withColumn("body", body)


def _texts(values: Sequence[str]) -> str:
    """As SQL has them; nothing in them means anything there."""
    return ", ".join(f"decode(unhex('{value.encode().hex()}'), 'UTF-8')" for value in values)


class _Run:
    def __init__(
        self,
        background: BackgroundLoop,
        desk: RedriveDesk,
        to: str,
        rate: float | None,
        told: Redriven,
        on_progress: Callable[[Redriven], object],
    ) -> None:
        self._background = background
        self._desk = desk
        self._to = to
        self._pace = Pace(rate)
        self._told = told
        self._on_progress = on_progress
        self._done: dict[MessageQueue, int] = {}
        """Behind the last letter of each queue that is redriven."""
        self._left: dict[MessageQueue, int] = {}
        """The first letter of each queue that is not."""

    def redrive(self, letters: "DataFrame", limit: int | None) -> None:
        chosen = self._chosen(letters, limit)
        while window := list(itertools.islice(chosen, self._pace.portion(WINDOW))):
            self._redrive_some([copy for copy in map(self._copy_of, window) if copy is not None])
            self._done |= {letter.queue: letter.offset + 1 for letter in window}
            self._commit()
            self._on_progress(self._told)

    def _chosen(self, letters: "DataFrame", limit: int | None) -> Iterator[Letter]:
        for row in letters.toLocalIterator():
            queue = MessageQueue(row.topic, row.brokerName, row.queueId)
            if row.chosen and self._told.chosen == limit:
                self._left.setdefault(queue, row.queueOffset)
                return
            self._told.letters += 1
            if row.chosen:
                self._told.chosen += 1
                yield letter_of(row)
            else:
                self._left.setdefault(queue, row.queueOffset)

    def _copy_of(self, letter: Letter) -> Copy | None:
        topic = self._to or letter.origin
        if not topic:
            self._refuse(letter, "it does not tell its first topic: name one (--to)")
        elif not self._desk.has_topic(topic):
            self._refuse(letter, f"there is no topic {topic}: create it, or name another (--to)")
        else:
            return Copy(letter.copy_id, topic, letter)
        return None

    def _redrive_some(self, copies: list[Copy]) -> None:
        there = self._background.call(self._desk.found(copies))
        missing = [copy for copy in copies if copy.id not in there]
        refused: dict[str, str] = {}
        if missing and not self._told.dry_run:
            self._pace.wait(len(missing))
            refused = self._background.call(self._desk.deliver(missing))
        self._told.found += len(there)
        for copy in missing:
            if copy.id in refused:
                self._refuse(copy.letter, refused[copy.id])
            else:
                self._told.add(copy)

    def _refuse(self, letter: Letter, reason: str) -> None:
        self._told.refuse(reason)
        self._left[letter.queue] = min(letter.offset, self._left.get(letter.queue, letter.offset))

    def _commit(self) -> None:
        if not self._told.dry_run:
            ends = {q: min(end, self._left.get(q, end)) for q, end in self._done.items()}
            self._background.call(self._desk.commit(ends))
