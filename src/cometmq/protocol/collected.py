"""What plain Python gathers of records for dispatch: ConsumeQueue entries, and keys of the index.

Almost all records have a unique id, and what stands around it is the same for many of them: it is
looked at once.
"""

import re
import struct
from functools import lru_cache
from typing import Final

import msgspec

from . import flags, java
from .layout import ENTRY, KEY, MAGIC_V1, SCHEDULE_TOPIC, SEAL_PREFIX, TOPIC_BYTES_MAX_V1
from .properties import ENTRY_END
from .scan import Run

_FLAGS, _QUEUE = (struct.Struct(form).unpack_from for form in (">36xi", ">12x4s4xq"))
_SHORT_HEAD: Final = struct.Struct(">iI4x4s4xqqi16xq20xi")
"""All before the body, if both hosts are short: size, magic, queue id and offset, physical offset,
sysFlag, store time, the body's length."""
_UNUSUAL_FLAGS: Final = flags.BORN_HOST_V6 | flags.STORE_HOST_V6 | flags.TRANSACTION_MASK
_NAMES_BYTES_MAX: Final = 1024
"""Of a topic and properties that are remembered."""
_DISPATCHED = re.compile(rb"(?:^|\x02)(TAGS|KEYS|UNIQ_KEY|DELAY)\x01([^\x02]+)")
_UNIQUE: Final = b"UNIQ_KEY\x01"
_SEAL: Final = ENTRY_END + SEAL_PREFIX


class Collected:
    def __init__(self, delays_ms: tuple[int, ...], stored: int = 0) -> None:
        self.keys = bytearray()
        self.stored = stored
        """Store time of the last record."""
        self._delays_ms = delays_ms
        self._done: list[Run] = []
        self._open: dict[bytes, tuple[int, list[bytes]]] = {}

    def add(
        self,
        view: memoryview,
        position: int,
        size: int,
        physical: int,
        topic_at: int,
        topic_size: int,
        properties_at: int,
    ) -> None:
        """Take the whole record at `position`, which was stored at `self.stored`."""
        (sys_flag,) = _FLAGS(view, position)
        # Topic, and behind its size the properties: copied once, views are slow to cut.
        names = bytes(view[topic_at : position + size])
        topic = names[:topic_size]
        values = dict(_DISPATCHED.findall(names[properties_at - topic_at :]))
        if flags.is_queued(sys_flag):
            entry = ENTRY.pack(physical, size, self._tag_code(topic, values))
            queue_id, queue_offset = _QUEUE(view, position)
            self._add_entry(topic + queue_id, queue_offset, entry)
        if sys_flag & flags.TRANSACTION_MASK != flags.TRANSACTION_ROLLBACK:
            self._add_keys(_key_hashes(topic, values), physical)

    def add_usual(self, view: memoryview, position: int, end: int, physical: int) -> int:
        """Take the record at `position` if it is as almost all are, and tell its size; 0 if it is
        not, or not whole but for its checksum."""
        if end - position < _SHORT_HEAD.size:
            return 0
        size: int
        size, magic, queue_id, queue_offset, told, sys_flag, stored, body_size = (
            _SHORT_HEAD.unpack_from(view, position)
        )
        if magic != MAGIC_V1 or told != physical or sys_flag & _UNUSUAL_FLAGS or body_size < 0:
            return 0
        names_at, record_end = position + _SHORT_HEAD.size + body_size, position + size
        if record_end > end or record_end - names_at > _NAMES_BYTES_MAX:
            return 0
        names = view[names_at:record_end].tobytes()
        before, _, rest = names.partition(_UNIQUE)
        unsealed, is_sealed, digits = rest.rpartition(_SEAL)
        if is_sealed and not digits[:-1].isdigit():
            return 0
        unique_id, _, after = (unsealed if is_sealed else rest).partition(ENTRY_END)
        found = _found_around(before, after)
        if found is None or found[1] != len(names) or not unique_id or not unique_id.isascii():
            return 0
        self.stored = stored
        self.add_known(found[0], unique_id.decode(), queue_id, queue_offset, physical, size)
        return size

    def add_known(
        self,
        around: "Around",
        unique_id: str,
        queue_id: bytes,
        queue_offset: int,
        physical: int,
        size: int,
    ) -> None:
        """Take a record of which all is known, which was stored at `self.stored`."""
        entry = ENTRY.pack(physical, size, around.tag_code)
        self._add_entry(around.topic + queue_id, queue_offset, entry)
        hashed = java.key_hash(around.topic_text, unique_id)
        self.keys += KEY.pack(hashed, physical, self.stored)
        if around.hashes:
            self._add_keys(around.hashes, physical)

    def _tag_code(self, topic: bytes, values: dict[bytes, bytes]) -> int:
        """Hash of the tag; for a delayed message the time when it is due."""
        if topic == SCHEDULE_TOPIC and self._delays_ms:
            level = _decimal(values.get(b"DELAY", b""))
            if level > 0:
                return self.stored + self._delays_ms[min(level, len(self._delays_ms)) - 1]
        return _tag_hash(values[b"TAGS"]) if b"TAGS" in values else 0

    def _add_entry(self, queue: bytes, offset: int, entry: bytes) -> None:
        run = self._open.get(queue)
        if run is not None:
            first, entries = run
            if offset - first == len(entries):
                entries.append(entry)
                return
            self._done.append(Run(queue, first, b"".join(entries)))
        self._open[queue] = (offset, [entry])

    def _add_keys(self, hashes: list[int], physical: int) -> None:
        for hashed in hashes:
            self.keys += KEY.pack(hashed, physical, self.stored)

    def close(self) -> list[Run]:
        """All runs: those closed by a jump first, then one a queue in order of appearance."""
        rest = [Run(queue, first, b"".join(raw)) for queue, (first, raw) in self._open.items()]
        return self._done + rest


class Around(msgspec.Struct, frozen=True):
    """What messages of one topic have in common that differ in their unique ids alone."""

    topic: bytes
    topic_text: str
    tag_code: int
    hashes: list[int]
    """Of all keys but the unique id."""


def around(topic: bytes, before: bytes, after: bytes) -> Around | None:
    """Out of the properties before and behind a unique id; None if they are not so usual that the
    rest is known."""
    is_whole = not before or before.endswith(ENTRY_END)
    if topic == SCHEDULE_TOPIC or not is_whole or _UNIQUE in after:
        return None
    values = dict(_DISPATCHED.findall(before) + _DISPATCHED.findall(after))
    tag_code = _tag_hash(values[b"TAGS"]) if b"TAGS" in values else 0
    text = topic.decode(errors="replace")
    return Around(topic, text, tag_code, _key_hashes(topic, values))


@lru_cache(512)
def _found_around(before: bytes, after: bytes) -> tuple[Around, int] | None:
    """The same out of a record's topic and properties, less the seal; and the bytes of all that,
    as far as the properties' length tells."""
    topic_size = before[0] if before else 0
    properties_at = 1 + topic_size + 2
    if topic_size > TOPIC_BYTES_MAX_V1 or len(before) < properties_at:
        return None
    found = around(before[1 : 1 + topic_size], before[properties_at:], after)
    size = properties_at + int.from_bytes(before[1 + topic_size : properties_at], "big")
    return None if found is None else (found, size)


def _key_hashes(topic: bytes, values: dict[bytes, bytes]) -> list[int]:
    raw = (values.get(b"UNIQ_KEY", b""), *values.get(b"KEYS", b"").split(b" "))
    keys = [key.decode(errors="replace") for key in raw if key]
    if b"TAGS" in values:
        keys.append(java.tag_key(values[b"TAGS"].decode(errors="replace")))
    text = topic.decode(errors="replace")
    return [java.key_hash(text, key) for key in keys]


@lru_cache(4096)
def _tag_hash(tag: bytes) -> int:
    """A topic has few tags, and many messages with each."""
    return java.string_hash(tag.decode(errors="replace"))


def _decimal(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) < 10 else 0
