"""How far consumer groups are: asked of the brokers, or read from a store's own files."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from cometmq.client.blocking import Admin
from cometmq.protocol.fastjson import parse_json
from cometmq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX

from ..errors import Unreadable
from ..log.files import Files, read_at
from .report_figures import GroupFigures, QueueLag

CONFIG: Final = "config"
OFFSETS_FILE: Final = "consumerOffset.json"


class QueueEnd(NamedTuple):
    end: int
    messages: int
    """That the log still has."""


Ends = Mapping[tuple[str, int], QueueEnd]
"""By topic and number of the queue."""


def groups_online(
    admin: Admin, topics: Collection[str], chosen: Collection[str]
) -> list[GroupFigures]:
    """Those that are `chosen`, or all that have offsets in one of the topics."""
    known = set(admin.topics.names(internal=True))
    names = sorted(chosen) or admin.groups.names()
    found = [_asked(admin, name, topics, known) for name in names]
    return [group for group in found if group.queues or group.group in chosen]


def groups_in_files(
    files: Files, ends: Ends, topics: Collection[str], chosen: Collection[str]
) -> list[GroupFigures]:
    """By the offsets that the broker saved last, which it does every few seconds."""
    lags: dict[str, list[QueueLag]] = defaultdict(list)
    for key, offsets in _saved(files).items():
        topic, _, group = key.partition("@")
        if (chosen and group not in chosen) or not _concerns(topic, group, topics):
            continue
        for number, consumed in sorted(offsets.items()):
            known = ends.get((topic, number))
            if known is not None:
                lags[group].append(QueueLag(topic, "", number, known.end, consumed))
    return [
        GroupFigures(group, _lag(queues), queues, None, _dead_letters(ends, group))
        for group, queues in sorted(lags.items())
    ]


def _asked(
    admin: Admin, group: str, topics: Collection[str], known: Collection[str]
) -> GroupFigures:
    progress = admin.groups.progress(group)
    queues = [
        QueueLag(
            queue.topic, queue.broker_name, queue.queue_id, told.broker_offset,
            told.consumer_offset, told.last_timestamp,
        )
        for queue, told in progress.queues.items()
        if _concerns(queue.topic, group, topics)
    ]  # fmt: skip
    dead = DEAD_LETTER_PREFIX + group
    dead_letters = admin.topics.stats(dead).messages if dead in known else 0
    return GroupFigures(group, _lag(queues), queues, progress.consume_tps, dead_letters)


def _concerns(topic: str, group: str, topics: Collection[str]) -> bool:
    """A group's retries are part of its work on any topic."""
    return topic in topics or topic == RETRY_PREFIX + group


def _lag(queues: list[QueueLag]) -> int:
    return sum(queue.lag for queue in queues)


def _dead_letters(ends: Ends, group: str) -> int:
    dead = DEAD_LETTER_PREFIX + group
    return sum(queue.messages for (topic, _), queue in ends.items() if topic == dead)


def _saved(files: Files) -> dict[str, dict[int, int]]:
    """By `topic@group`, then by queue; nothing when the store has no such file."""
    size = files.listed(CONFIG).get(OFFSETS_FILE)
    if not size:
        return {}
    path = f"{CONFIG}/{OFFSETS_FILE}"
    told: Any = None
    try:
        told = parse_json(read_at(files.open(path), 0, size))
        return msgspec.convert(told["offsetTable"], dict[str, dict[int, int]], strict=False)
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise Unreadable(f"{files.shown(path)} has no offsets of groups: {error}") from None
