"""Which waiting messages have been delivered, told by the log itself.

Whoever delivers a message that waited (for a delay level, or for a time of its own) writes into the
copy where the waiting record lies, in the field that names the half message of a transaction. So
progress that is saved now and then becomes exact: what the log has behind the saved point is
counted from there. The delivered copies are the truth, no file beside the log is.
"""

import logging
import struct
import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

from cometmq.protocol.flags import BORN_HOST_V6, STORE_HOST_V6
from cometmq.protocol.message import StoredMessage
from cometmq.protocol.properties import UNIQUE_KEY, property_value
from cometmq.protocol.scan import queue_key
from cometmq.store.log_walk import Piece, walk
from cometmq.store.message_store import MessageStore

log = logging.getLogger(__name__)
PROGRESS_INTERVAL_S = 2.0
_UNIQUE_KEY = UNIQUE_KEY.encode()
_SIZE = struct.Struct(">i")
_ORIGIN = struct.Struct(">q")
_ORIGIN_AT = 48 + 8 + 8 + 8 + 4
"""Where it stands behind IPv4 hosts; an IPv6 host has 12 bytes more."""
_V6_MORE = 12


class Delivered(NamedTuple):
    origin: StoredMessage
    """The record that waited."""
    copied_ms: int
    """Store time of the copy."""


def delivered_since(
    store: MessageStore, start: int, topics: Collection[str]
) -> Iterator[Delivered]:
    """What waited in one of these topics and has its copy at `start` of the log or behind it."""
    end = store.appended.value
    start = max(start, store.commit_log.start_offset)
    first = _first_record(store, topics)
    shown = time.monotonic()
    for part in walk(store.commit_log.segments, start, end, verify=False):
        if isinstance(part, Piece):
            for where, origin in _copies(store, part, first):
                found = _verified(store, where, origin, topics)
                if found is not None:
                    yield found
        if time.monotonic() - shown >= PROGRESS_INTERVAL_S:
            shown = time.monotonic()
            log.info("looking for delivered messages: at %d of %d bytes", part.start, end)


def first_waiting(store: MessageStore, topic: str, queue_id: int) -> int:
    """Where in the log the first message of a queue lies; its end when there is none. No copy can
    lie before what it was made from."""
    queue = store.queues.get(queue_key(topic, queue_id))
    if queue is not None:
        for offset in range(queue.min_offset, queue.max_offset):
            entry = queue.entry(offset)
            if entry is not None and not entry.is_hole:
                return entry.physical_offset
    return store.appended.value


def _first_record(store: MessageStore, topics: Collection[str]) -> bytes | None:
    """The unique key of the log's very first record, if that one waits: its offset, 0, is also
    what stands in every record that is no copy."""
    if store.commit_log.start_offset > 0:
        return None
    first = store.message_at(0)
    if first is None or first.topic not in topics:
        return None
    return property_value(first.properties, _UNIQUE_KEY)


def _copies(store: MessageStore, piece: Piece, first: bytes | None) -> Iterator[tuple[int, int]]:
    """Records of a piece that name another one: their offset, and that of the other."""
    segment = store.commit_log.segments.find(piece.start)
    if segment is None:  # Retention was quicker.
        return
    view, base = segment.view, segment.base
    at, end = piece.start - base, piece.end - base
    while at < end:
        (size,) = _SIZE.unpack_from(view, at)
        hosts = view[at + 39]
        field = at + _ORIGIN_AT
        field += _V6_MORE * (bool(hosts & BORN_HOST_V6) + bool(hosts & STORE_HOST_V6))
        (origin,) = _ORIGIN.unpack_from(view, field)
        if origin > 0 or (first is not None and first in bytes(view[at : at + size])):
            yield base + at, origin
        at += size


def _verified(
    store: MessageStore, where: int, origin: int, topics: Collection[str]
) -> Delivered | None:
    if not 0 <= origin < where:
        return None
    waiting, copy = store.message_at(origin), store.message_at(where)
    if waiting is None or copy is None or waiting.topic not in topics:
        return None
    if _key(waiting) != _key(copy):
        return None
    return Delivered(waiting, copy.store_timestamp)


def _key(message: StoredMessage) -> bytes | None:
    return property_value(message.properties, _UNIQUE_KEY)
