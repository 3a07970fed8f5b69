"""Changes of a group's tables as records of its log, in a topic of their own.

Values are absolute, so applying a record twice changes nothing, and a member that goes on from an
older point ends with the same tables. A snapshot comes in parts, one behind the other; it replaces
everything when its last part is there. One that breaks off counts for nothing.
"""

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from cometmq.protocol.data_version import DataVersion
from cometmq.protocol.group_config import GroupConfig, GroupConfigs
from cometmq.protocol.topic_config import TopicConfig, TopicConfigs

from ..delays import DelayProgress
from ..offsets import OffsetTables, Table

Value = TypeVar("Value")
ENTRY_BYTES: Final = 256
"""What an entry of a table takes at most, on average: parts are divided by number of entries."""


class TableChange(msgspec.Struct, omit_defaults=True):
    part: int = 0
    parts: int = 0
    """Of how many parts of a snapshot this is which, from 0 on; 0 parts: a change."""
    topics: dict[str, TopicConfig | None] = {}
    topics_version: DataVersion | None = None
    groups: dict[str, GroupConfig | None] = {}
    groups_version: DataVersion | None = None
    forbidden: dict[str, dict[str, int]] | None = None
    offsets: Table = {}
    resets: Table | None = None
    """Only in a snapshot, as they stand beside all offsets."""
    delays: DelayProgress | None = None
    timers: bytes | None = None
    addresses: dict[str, str] = {}
    """Members of the group, and where they listen."""


class Tables(msgspec.Struct):
    """All of it, as a snapshot has it."""

    topics: TopicConfigs
    groups: GroupConfigs
    offsets: OffsetTables
    delays: DelayProgress | None = None
    timers: bytes | None = None
    addresses: dict[str, str] = {}

    def parts(self, bytes_max: int) -> list[TableChange]:
        """As changes whose records have about `bytes_max` bytes."""
        entries_max = max(bytes_max // ENTRY_BYTES, 1)
        topics = list(_portions(self.topics.topic_config_table, entries_max))
        groups = list(_portions(self.groups.subscription_group_table, entries_max))
        offsets = list(_portions(self.offsets.offset_table, entries_max))
        found = [TableChange(topics=dict(portion)) for portion in topics]
        found += [TableChange(groups=dict(portion)) for portion in groups]
        found += [TableChange(offsets=portion) for portion in offsets]
        found.append(
            TableChange(
                topics_version=self.topics.data_version,
                groups_version=self.groups.data_version,
                forbidden=self.groups.forbidden_table,
                resets=self.offsets.reset_offset_table,
                delays=self.delays,
                timers=self.timers,
                addresses=self.addresses,
            )
        )
        for number, part in enumerate(found):
            part.part, part.parts = number, len(found)
        return found


def joined(parts: list[TableChange]) -> Tables:
    """A snapshot out of all its parts."""
    last = parts[-1]
    topics = {name: t for part in parts for name, t in part.topics.items() if t is not None}
    groups = {name: g for part in parts for name, g in part.groups.items() if g is not None}
    offsets: Table = {}
    for part in parts:
        for key, queues in part.offsets.items():
            offsets.setdefault(key, {}).update(queues)
    return Tables(
        TopicConfigs(topics, last.topics_version or DataVersion()),
        GroupConfigs(groups, last.forbidden or {}, last.groups_version or DataVersion()),
        OffsetTables(offsets, {}, last.resets or {}),
        last.delays,
        last.timers,
        last.addresses,
    )


def _portions(table: dict[str, Value], count: int) -> Iterator[dict[str, Value]]:
    items = list(table.items())
    for start in range(0, len(items), count):
        yield dict(items[start : start + count])


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(TableChange, strict=False)


def encode(change: TableChange) -> bytes:
    return _encoder.encode(change)


def decode(body: bytes) -> TableChange:
    return _decoder.decode(body)
