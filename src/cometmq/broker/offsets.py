"""How far each consumer group has come in each queue.

Offsets are what consumers last told, and may go back. An operator's reset stands beside them
until the group has taken notice: its next pull is sent there, and until then what consumers report
does not count.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from cometmq.clock import Clock
from cometmq.protocol.data_version import DataVersion
from cometmq.store.config_file import ConfigFile

from .persistent import Persistent

OFFSETS_MAX = 5_000_000
"""Queues of all groups together, committed and pulled; no further one is taken."""
_SEPARATOR = "@"
Table = dict[str, dict[int, int]]


class OffsetTables(msgspec.Struct, rename="camel"):
    """`consumerOffset.json`."""

    offset_table: Table = {}
    pull_offset_table: Table = {}
    reset_offset_table: Table = {}
    data_version: DataVersion | None = None


class ConsumerOffsets(Persistent):
    def __init__(self, file: ConfigFile | None, clock: Clock) -> None:
        super().__init__(file)
        saved: OffsetTables = self.load_as(OffsetTables) or OffsetTables()
        self._offsets = saved.offset_table
        self._pulled = saved.pull_offset_table
        self._resets = saved.reset_offset_table
        self._version = saved.data_version or DataVersion(0, clock.now_ms(), 0)
        self._clock = clock
        self.on_move: Callable[[int], None] = lambda _: None
        """Called with how many messages groups have gone on since the last `take_news`."""
        self._news: dict[str, set[int]] | None = None
        """Queues whose offsets changed, where somebody collects them."""
        self._moved = 0
        self._all_new = False
        self._count = 0
        self._recount()

    def content(self) -> OffsetTables:
        return OffsetTables(self._offsets, self._pulled, self._resets, self._version)

    def save(self) -> None:
        if self._changed:
            self._version = self._version.next(self._clock.now_ms())
        super().save()

    def merge(self, told: OffsetTables) -> None:
        """Take over what a master has; what only this broker knows stays, as in RocketMQ."""
        merged = {**self._offsets, **told.offset_table}
        if merged == self._offsets and told.reset_offset_table == self._resets:
            return
        self._offsets, self._resets = merged, told.reset_offset_table
        self._version = told.data_version or self._version
        self._recount()
        self.touch()
        super().save()

    # -- news, for the other members of a group of brokers ---------------------------------------

    def begin_news(self) -> None:
        self._news = {}

    @property
    def is_all_new(self) -> bool:
        """Whether more changed than single offsets: everything is news then."""
        return self._all_new

    def take_news(self) -> Table:
        """Offsets that changed."""
        news, self._news, self._moved, self._all_new = self._news or {}, {}, 0, False
        return {
            key: {queue: self._offsets[key][queue] for queue in queues}
            for key, queues in news.items()
            if key in self._offsets
        }

    def bring_back(self, offsets: Table) -> None:
        """They could not be told yet."""
        if self._news is not None:
            for key, queues in offsets.items():
                self._news.setdefault(key, set()).update(queues)

    def take(self, offsets: Table) -> None:
        """Take over what changed at the leader."""
        for key, queues in offsets.items():
            self._offsets.setdefault(key, {}).update(queues)
        self._recount()
        self.touch()

    def replace(self, told: OffsetTables) -> None:
        self._offsets, self._resets = told.offset_table, told.reset_offset_table
        self._recount()
        self.touch()

    def _note(self, key: str, queue_id: int, messages: int) -> None:
        if self._news is not None:
            self._news.setdefault(key, set()).add(queue_id)
            self._moved += abs(messages)
            self.on_move(self._moved)

    def _note_all(self) -> None:
        if self._news is not None:
            self._news, self._all_new = {}, True
            self.on_move(OFFSETS_MAX)

    # -- what groups tell ------------------------------------------------------------------------

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Take what a group tells; False when there is no room for one more queue."""
        if self.is_reset(group, topic, queue_id):
            return True
        key = _key(topic, group)
        self.touch()
        before = self._offsets.get(key, {}).get(queue_id, 0) if self._news is not None else 0
        if not self._put(self._offsets, key, queue_id, offset):
            return False
        if self._news is not None and before != offset:
            self._note(key, queue_id, offset - before)
        return True

    def _put(self, table: Table, key: str, queue_id: int, offset: int) -> bool:
        queues = table.get(key)
        if queues is None or queue_id not in queues:
            if self._count >= OFFSETS_MAX:
                return False
            self._count += 1
            queues = table.setdefault(key, {})
        queues[queue_id] = offset
        return True

    def _recount(self) -> None:
        self._count = sum(
            len(queues) for table in (self._offsets, self._pulled) for queues in table.values()
        )

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        key = _key(topic, group)
        reset = self._resets.get(key, {}).get(queue_id)
        return reset if reset is not None else self._offsets.get(key, {}).get(queue_id)

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """What the group told, whatever an operator wants."""
        return self._offsets.get(_key(topic, group), {}).get(queue_id)

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember from where a queue was last read, as long as there is room."""
        self._put(self._pulled, _key(topic, group), queue_id, offset)

    def last_pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        return self._pulled.get(_key(topic, group), {}).get(queue_id)

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Send a group elsewhere: its next pull learns of it."""
        key = _key(topic, group)
        self._resets.setdefault(key, {})[queue_id] = offset
        queues = self._offsets.setdefault(key, {})
        self._count += queue_id not in queues
        queues[queue_id] = offset
        self._note_all()
        self.touch()

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset stands, of which the group has not taken notice yet."""
        return bool(self._resets) and queue_id in self._resets.get(_key(topic, group), ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where an operator wants the group to go on; told once."""
        if not self._resets:
            return None
        key = _key(topic, group)
        queues = self._resets.get(key)
        if queues is None or queue_id not in queues:
            return None
        offset = queues.pop(queue_id)
        if not queues:
            del self._resets[key]
        self._note_all()
        self.touch()
        return offset

    def queues_of(self, group: str, topic: str) -> dict[int, int]:
        """Where a group is in each queue of a topic that it has read."""
        key = _key(topic, group)
        return {**self._offsets.get(key, {}), **self._resets.get(key, {})}

    def topics_of(self, group: str) -> list[str]:
        return [topic for topic, owner in self._pairs() if owner == group]

    def topics_by_group(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for topic, group in self._pairs():
            found.setdefault(group, []).append(topic)
        return found

    def groups_of(self, topic: str) -> list[str]:
        return [group for consumed, group in self._pairs() if consumed == topic]

    def copy(self, source: str, target: str, topics: Iterable[str]) -> None:
        """Let one group begin where another one is."""
        for topic in topics:
            found = self._offsets.get(_key(topic, source))
            if found is not None:
                self._offsets[_key(topic, target)] = dict(found)
        self._recount()
        self._note_all()
        self.touch()

    def forget_group(self, group: str) -> None:
        self._forget(lambda _, owner: owner == group)

    def forget_topic(self, topic: str) -> None:
        self._forget(lambda consumed, _: consumed == topic)

    def _forget(self, chosen: Callable[[str, str], bool]) -> None:
        for table in (self._offsets, self._pulled, self._resets):
            for key in [key for key in table if chosen(*_split(key))]:
                del table[key]
        self._recount()
        self._note_all()
        self.touch()

    def _pairs(self) -> Iterator[tuple[str, str]]:
        return (_split(key) for key in self._offsets)


def _key(topic: str, group: str) -> str:
    return f"{topic}{_SEPARATOR}{group}"


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition(_SEPARATOR)
    return topic, group
