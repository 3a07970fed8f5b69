"""What a stream tells those who listen, beside its offsets: whom to commit for, and what is lost.

Spark shows a source's latest offset in a query's progress and keeps it nowhere, so notes travel
with it, under a name that no topic can have. They hold no secret. A stream that neither commits
for a group nor tolerates losses has none.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from .offsets import QueueRange, order, parse_queue, queue_text

KEY: Final = "@source"
_Lost = dict[str, dict[str, tuple[int, int]]]


class Notes(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    namesrv_addr: str
    group: str = ""
    """Whose offsets are to be committed; none: nobody's."""
    tolerates_loss: bool = False
    lost: _Lost = {}
    """By topic and `broker:queue`: the last messages that were gone before they were read."""

    def lost_ranges(self) -> list[QueueRange]:
        return [
            QueueRange(parse_queue(topic, text), *bounds)
            for topic, queues in self.lost.items()
            for text, bounds in queues.items()
        ]


def lost_by_topic(ranges: Iterable[QueueRange]) -> _Lost:
    told: _Lost = {}
    for part in sorted(ranges, key=lambda part: order(part.queue)):
        told.setdefault(part.queue.topic, {})[queue_text(part.queue)] = (part.start, part.end)
    return told


def with_notes(offsets: Mapping[str, Any], notes: Notes | None) -> dict[str, Any]:
    return {**offsets, **({} if notes is None else {KEY: msgspec.to_builtins(notes)})}


def split_notes(told: Mapping[str, Any]) -> tuple[dict[str, Any], Notes | None]:
    """Offsets without the notes, and the notes."""
    offsets = {topic: queues for topic, queues in told.items() if topic != KEY}
    return offsets, msgspec.convert(told[KEY], Notes) if KEY in told else None
