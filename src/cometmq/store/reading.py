"""What reads of the store give back."""

import enum

import msgspec

from cometmq.protocol.scan import Damage


class ReadStatus(enum.Enum):
    """RocketMQ's own outcomes of a read by queue and offset."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"


class DamagedMessage(msgspec.Struct, frozen=True):
    """A place in a queue whose record is lost. It is passed over, and said so."""

    queue_offset: int
    physical_offset: int
    damage: Damage


class ReadResult(msgspec.Struct, frozen=True, kw_only=True):
    status: ReadStatus
    next_offset: int
    min_offset: int
    max_offset: int
    slices: list[memoryview] = []
    """Whole records, straight from the mapped log or, where they are scattered, copied from it;
    valid as long as they are held."""
    count: int = 0
    size: int = 0
    damaged: list[DamagedMessage] = []
    behind_bytes: int = 0
    """How much log has been written since the last record that was read here."""


class Boundary(enum.Enum):
    """Which offset a time means between two messages, and among several of one time."""

    LOWER = "lower"
    UPPER = "upper"
