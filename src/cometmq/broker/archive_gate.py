"""Keeps messages until they are archived: the store's gate, with `archive.requiredBeforeDelete`.

What is archived says a consumer group, `archive.group`, by the offsets that it commits like any
other. A queue of which it has none, or one beyond its end, is not archived at all. Only a disk that
is nearly full comes before: then what is lost is named, and counted.

Topics of the system are the broker's own affair. Those for retries and dead letters hold copies of
messages that stand in their topics, so they count only where the pattern names them (with a `%`).

All but `know` and `reconfigure` runs in the store's threads: tables are read without a pause
between two of their changes, so a look may be as old as one commit, never half of one.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from cometmq.clock import Clock
from cometmq.protocol.scan import split_queue_key
from cometmq.store.consume_queue import ConsumeQueue
from cometmq.store.message_store import MessageStore

from .config import BrokerConfig
from .offsets import ConsumerOffsets
from .topics import Topics, group_of

log = logging.getLogger(__name__)
QUIET_MS: Final = 600_000
"""So long files may be held before anybody hears of it."""
REPEAT_MS: Final = 3_600_000
"""Between two warnings."""
NAMED_MAX: Final = 50
"""Queues that a line names; of further ones it has the number."""


class Waiting(NamedTuple):
    """A queue with messages that are not archived, and where the first of them is."""

    topic: str
    queue_id: int
    archived: int | None
    """Up to this offset; None: the group has none."""
    queue: ConsumeQueue
    physical_offset: int

    @property
    def first_offset(self) -> int:
        return max(self.archived or 0, self.queue.min_offset)


class Lost(NamedTuple):
    """Messages of a queue that went without being archived."""

    topic: str
    queue_id: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic} queue {self.queue_id} offsets {self.start} to {self.end - 1}"


class ArchiveGate:
    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._tables: tuple[MessageStore, Topics, ConsumerOffsets] | None = None
        self._held = (0, 0)
        self._held_since_ms = 0
        self._warned_ms = 0
        self.lost_messages = 0
        """Since the broker's start."""

    def know(self, store: MessageStore, topics: Topics, offsets: ConsumerOffsets) -> None:
        """From now on it can tell; until then nothing is deleted."""
        self._tables = store, topics, offsets

    def reconfigure(self, config: BrokerConfig) -> None:
        self._config = config

    # -- what the store asks and tells -----------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        return self._tables is not None or not self._config.archive_required

    def keep_from(self) -> int | None:
        if not self._config.archive_required or self._tables is None:
            return None
        # What no queue points to yet cannot be archived.
        end = self._tables[0].dispatched.value
        return min((waiting.physical_offset for waiting in self._waiting()), default=end)

    def released(self) -> None:
        self._held, self._held_since_ms = (0, 0), 0

    def held(self, start: int, end: int) -> None:
        now_ms = self._clock.now_ms()
        self._held = start, end
        self._held_since_ms = self._held_since_ms or now_ms
        if now_ms - self._held_since_ms < QUIET_MS or now_ms - self._warned_ms < REPEAT_MS:
            return
        self._warned_ms = now_ms
        log.warning(
            "for %d minutes, %d bytes of old log files are kept since group %s has not archived: "
            "%s; let the archive catch up, or set archive.requiredBeforeDelete=false",
            (now_ms - self._held_since_ms) // 60_000, end - start, self._config.archive_group,
            self._who_waits(end),
        )  # fmt: skip

    def overruled(self, start: int, end: int) -> None:
        lost = [part for waiting in self._waiting() if (part := _lost(waiting, start, end))]
        messages = sum(part.end - part.start for part in lost)
        self.lost_messages += messages
        if messages:
            log.error(
                "the disk is nearly full: %d messages go before group %s has archived them: %s",
                messages, self._config.archive_group, _listed(map(str, lost)),
            )  # fmt: skip

    # -- what operators see ----------------------------------------------------------------------

    def figures(self) -> dict[str, str]:
        """For the runtime info; nothing where the gate is off and has lost nothing."""
        keep_from = self.keep_from()
        if keep_from is None and not self.lost_messages:
            return {}
        start, end = self._held
        is_held = keep_from is not None and keep_from < end
        return {
            "archiveKeptFromOffset": str(-1 if keep_from is None else keep_from),
            "archiveHeldBytes": str(end - start if is_held else 0),
            "archiveHeldSince": str(self._held_since_ms if is_held else 0),
            "archiveLostMessages": str(self.lost_messages),
        }

    # -- parts -----------------------------------------------------------------------------------

    def _waiting(self) -> Iterator[Waiting]:
        """Queues with messages that are still to be archived."""
        assert self._tables is not None
        store, topics, offsets = self._tables
        readable: dict[str, int] = {}
        archived: dict[str, dict[int, int]] = {}
        for key, queue in store.queues:
            topic, queue_id = split_queue_key(key)
            if topic not in readable:
                readable[topic] = self._queues_to_archive(topics, topic)
                archived[topic] = offsets.queues_of(self._config.archive_group, topic)
            if queue_id >= readable[topic]:
                continue
            upto = archived[topic].get(queue_id)
            if upto is not None and upto > queue.max_offset:
                upto = None  # Of a topic that was deleted and made anew: nothing of this one.
            first = max(upto or 0, queue.min_offset)
            entry = queue.entry(first) if first < queue.max_offset else None
            if entry is not None:
                yield Waiting(topic, queue_id, upto, queue, entry.physical_offset)

    def _queues_to_archive(self, topics: Topics, name: str) -> int:
        """How many of a topic's queues. Those that nobody can read any more, since the topic was
        deleted or has fewer queues now, cannot be archived and are not waited for."""
        known, pattern = topics.get(name), self._config.archive_topics
        if known is None or topics.is_system(name) or not re.fullmatch(pattern, name):
            return 0
        if group_of(name) is not None and "%" not in pattern:
            return 0
        return known.read_queue_nums

    def _who_waits(self, end: int) -> str:
        waiting = [one for one in self._waiting() if one.physical_offset < end]
        waiting.sort(key=lambda one: one.physical_offset)
        return _listed(
            f"{one.topic} queue {one.queue_id} from offset {one.first_offset} on"
            + (" (it has no offset there)" if one.archived is None else "")
            for one in waiting
        )


def _lost(waiting: Waiting, start: int, end: int) -> Lost | None:
    """What of a queue lies between two places of the log and is not archived."""
    if waiting.physical_offset >= end:
        return None
    queue = waiting.queue
    first = max(waiting.first_offset, queue.first_from(start))
    stop = queue.first_from(end)
    return Lost(waiting.topic, waiting.queue_id, first, stop) if stop > first else None


def _listed(texts: Iterable[str]) -> str:
    named = list(texts)
    more = f", and {len(named) - NAMED_MAX} queues more" if len(named) > NAMED_MAX else ""
    return ", ".join(named[:NAMED_MAX]) + more
