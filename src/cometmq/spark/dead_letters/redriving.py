"""A redrive: letters in the order of their queues become messages again, each once.

Where all letters are redriven is kept as the offsets of a consumer group of its own; of those
behind, the topics tell themselves. So a redrive can be killed at any time and run again, with the
same choice or with another one. See `desk` for why no letter comes twice.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from cometmq.client.cluster import Cluster
from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, check_topic
from cometmq.transport.background import BackgroundLoop

from ..errors import BadOption, NotThere
from ..pace import Pace
from ..topic.offsets import ByQueue
from .desk import INDEX_KEY, RedriveDesk
from .letters import Candidate, Copy, Letter

WAIT_S: Final = 75.0
"""For the lock of a redrive that was killed: longer than a broker keeps it."""
WINDOW: Final = 64
"""Letters that are looked for, sent and noted together."""
SAMPLES_MAX: Final = 10
REASONS_MAX: Final = 100
OTHER_REASONS: Final = "other reasons"
"""Behind so many: some name the place of their letter."""


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
    """By filters, up to the limit."""
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
        if reason not in self.reasons and len(self.reasons) >= REASONS_MAX:
            reason = OTHER_REASONS
        self.reasons[reason] = self.reasons.get(reason, 0) + 1


def _sample(copy: Copy) -> Sample:
    letter = copy.letter
    return Sample(
        letter.place, letter.message_id, copy.topic, letter.tags, letter.keys, letter.stored_ms,
        letter.attempts, letter.body_bytes,
    )  # fmt: skip


def redrive_letters(
    cluster: Cluster,
    group: str,
    read: Callable[[ByQueue], Iterable[Candidate]],
    *,
    to: str = "",
    limit: int | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    wait_s: float = WAIT_S,
    on_progress: Callable[[Redriven], object] = lambda _: None,
    on_wait: Callable[[], object] = lambda: None,
) -> Redriven:
    """Send the dead letters of a consumer group again, to the topics where they were first, or all
    of them `to` one topic.

    `read` gives the letters from these offsets on, queue by queue in order. `limit` counts those
    that are not there yet, so that who runs this again gets further. `rate` is letters a second, at
    most. `dry_run` tells what would be done. AlreadyRunning is raised when another redrive of the
    group is still at work after `wait_s`.
    """
    _check(group, to, limit, rate)
    told = Redriven(group, dry_run)
    background = BackgroundLoop("cometmq-redrive")
    background.start()
    desk = RedriveDesk(cluster, group)
    try:
        background.call(desk.open())
        if to and not desk.has_topic(to):
            raise NotThere(f"there is no topic {to}: create it first")
        if not dry_run:
            background.call(desk.lock(wait_s, on_wait))
        letters = read(background.call(desk.starts()))
        _Run(background, desk, to, limit, rate, told, on_progress).redrive(letters)
    finally:
        background.call(desk.close())
        background.stop()
    return told


def _check(group: str, to: str, limit: int | None, rate: float | None) -> None:
    try:
        check_topic(DEAD_LETTER_PREFIX + group)
        if to:
            check_topic(to)
    except IllegalMessage as error:
        raise BadOption(str(error)) from None
    if to.startswith((DEAD_LETTER_PREFIX, RETRY_PREFIX)):
        raise BadOption(f"{to} is no topic that messages are sent to")
    if limit is not None and limit < 1:
        raise BadOption("limit: 1 or more is possible")
    if rate is not None and not 0 < rate < math.inf:
        raise BadOption("rate: more than 0 letters a second are possible, and not endlessly many")


class _Run:
    def __init__(
        self,
        background: BackgroundLoop,
        desk: RedriveDesk,
        to: str,
        limit: int | None,
        rate: float | None,
        told: Redriven,
        on_progress: Callable[[Redriven], object],
    ) -> None:
        self._background = background
        self._desk = desk
        self._to = to
        self._limit = limit
        self._pace = Pace(rate)
        self._told = told
        self._on_progress = on_progress
        self._done: dict[MessageQueue, int] = {}
        """Behind the last letter of each queue that is redriven."""
        self._left: dict[MessageQueue, int] = {}
        """The first letter of each queue that is not."""
        self._objections: dict[str, str] = {}
        """Why nothing goes to a topic, by its name; empty where all is well."""

    def redrive(self, candidates: Iterable[Candidate]) -> None:
        chosen = self._chosen(candidates)
        while window := list(itertools.islice(chosen, self._portion())):
            self._redrive_some([copy for copy in map(self._copy_of, window) if copy is not None])
            self._done |= {letter.queue: letter.offset + 1 for letter in window}
            self._commit()
            self._on_progress(self._told)

    def _portion(self) -> int:
        """How many letters are next; 0 at the limit. Those that were found do not count for it: a
        letter that was not chosen keeps them from being noted, and each run finds them again."""
        most = self._pace.portion(WINDOW)
        if self._limit is None:
            return most
        return min(most, self._limit - self._told.sent - self._told.refused)

    def _chosen(self, candidates: Iterable[Candidate]) -> Iterator[Letter]:
        for queue, offset, letter in candidates:
            self._told.letters += 1
            if letter is not None:
                self._told.chosen += 1
                yield letter
            else:
                self._left.setdefault(queue, offset)

    def _copy_of(self, letter: Letter) -> Copy | None:
        if letter.unreadable:
            self._refuse(letter, f"{letter.place}: {letter.unreadable}")
            return None
        topic = self._to or letter.origin
        if topic not in self._objections:
            self._objections[topic] = self._objection(topic)
        if reason := self._objections[topic]:
            self._refuse(letter, reason)
            return None
        return Copy(letter.copy_id, topic, letter)

    def _objection(self, topic: str) -> str:
        desk = self._desk
        if not topic:
            return "it does not tell its first topic: name one (--to)"
        if not desk.has_topic(topic):
            return f"there is no topic {topic}: create it, or name another (--to)"
        if not self._to and desk.is_internal(topic):
            return f"its first topic is said to be {topic}, the system's own: name another (--to)"
        if brokers := self._background.call(desk.without_index(topic)):
            return (
                f"{', '.join(brokers)} has no index by key, which tells what {topic} has already: "
                f"set {INDEX_KEY}=true there and start it again, or name another topic (--to)"
            )
        return ""

    def _redrive_some(self, copies: list[Copy]) -> None:
        there = self._background.call(self._desk.found(copies))
        missing = [copy for copy in copies if copy.id not in there]
        refused: dict[str, str] = {}
        if missing and not self._told.dry_run:
            self._pace.wait(len(missing))
            refused, sent_meanwhile = self._background.call(self._desk.deliver(missing))
            there |= sent_meanwhile
        self._told.found += len(there)
        for copy in missing:
            if copy.id in refused:
                self._refuse(copy.letter, refused[copy.id])
            elif copy.id not in there:
                self._told.add(copy)

    def _refuse(self, letter: Letter, reason: str) -> None:
        self._told.refuse(reason)
        self._left[letter.queue] = min(letter.offset, self._left.get(letter.queue, letter.offset))

    def _commit(self) -> None:
        if not self._told.dry_run:
            ends = {q: min(end, self._left.get(q, end)) for q, end in self._done.items()}
            self._background.call(self._desk.commit(ends))
