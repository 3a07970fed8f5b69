"""What a walk over log bytes gives back; shared by the reference codec and its compiled twin."""

import enum

import msgspec


class Stop(enum.IntEnum):
    """Why a walk ended."""

    END = 0
    """All bytes that were asked for are whole records."""
    BLANK = 1
    """The marker that fills up a file: go on with the next one."""
    DAMAGED = 2
    """Not a whole record here; `Scan.damage` says what is wrong."""


class Damage(enum.IntEnum):
    """What is wrong with a record. The hot functions return these negated."""

    NONE = 0
    SIZE = 1
    MAGIC = 2
    POSITION = 3
    LENGTHS = 4
    CHECKSUM = 5
    QUEUE_OFFSET = 6

    def describe(self) -> str:
        return _DAMAGE_TEXTS[self]


_DAMAGE_TEXTS = {
    Damage.NONE: "nothing",
    Damage.SIZE: "its size field reaches beyond the data",
    Damage.MAGIC: "no record starts here (magic number)",
    Damage.POSITION: "it names another physical offset",
    Damage.LENGTHS: "the lengths of its parts do not add up",
    Damage.CHECKSUM: "its checksum does not match",
    Damage.QUEUE_OFFSET: "it names another queue offset than the queue's entry",
}


class Run(msgspec.Struct, frozen=True, gc=False):
    """Consecutive ConsumeQueue entries of one queue."""

    queue: bytes
    """Topic, then the queue id as 4 bytes big-endian."""
    first_offset: int
    entries: bytes


class Scan(msgspec.Struct, frozen=True, gc=False):
    position: int
    """Where the walk stopped: the first byte that is not part of a whole record."""
    stop: Stop
    damage: Damage
    records: int
    last_timestamp: int
    """Store time of the last whole record; 0 when there was none."""
    runs: list[Run]
    keys: bytes
    """Index keys to insert: int32 hash, int64 physical offset, int64 store time, repeated."""


class Selection(msgspec.Struct, frozen=True, gc=False):
    """Outcome of choosing records of one segment by ConsumeQueue entries."""

    entries_used: int
    slices: list[int]
    """Flat pairs of (position, length) in the segment; adjoining records are one slice."""
    records: int
    size: int
    damaged: list[tuple[int, int, Damage]]
    """(entry number, physical offset, what is wrong): never part of a slice."""
    outside: bool
    """Stopped because the next entry points to another segment."""


QUEUE_ID_BYTES = 4


def queue_key(topic: str, queue_id: int) -> bytes:
    return topic.encode() + queue_id.to_bytes(QUEUE_ID_BYTES, "big", signed=True)


def split_queue_key(key: bytes) -> tuple[str, int]:
    topic, queue_id = key[:-QUEUE_ID_BYTES], key[-QUEUE_ID_BYTES:]
    return topic.decode(), int.from_bytes(queue_id, "big", signed=True)
