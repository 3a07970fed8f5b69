"""Every setting of the store, with RocketMQ's own name for it, its default and its unit."""

import dataclasses
import enum
from pathlib import Path

KIB, MIB, GIB = 1024, 1024**2, 1024**3

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class FlushMode(enum.Enum):
    ASYNC = "ASYNC_FLUSH"
    SYNC = "SYNC_FLUSH"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """The comment behind each field is its key in a RocketMQ broker.conf."""

    root: Path  # storePathRootDir
    commit_log_file_bytes: int = GIB  # mappedFileSizeCommitLog
    consume_queue_file_bytes: int = 300_000 * 20  # mappedFileSizeConsumeQueue
    index_enabled: bool = True  # messageIndexEnable
    index_slots: int = 5_000_000  # maxHashSlotNum
    index_items: int = 20_000_000  # maxIndexNum
    message_bytes_max: int = 4 * MIB  # maxMessageSize
    seal_records: bool = True  # enabledAppendPropCRC
    delay_levels: str = DEFAULT_DELAY_LEVELS  # messageDelayLevel

    flush: FlushMode = FlushMode.ASYNC  # flushDiskType
    flush_interval_ms: int = 500  # flushIntervalCommitLog
    flush_timed: bool = True  # flushCommitLogTimed
    sync_flush_timeout_ms: int = 5000  # syncFlushTimeout
    queue_flush_interval_ms: int = 1000  # flushIntervalConsumeQueue

    warm_up: bool = False  # warmMapedFileEnable

    delete_when: str = "04"  # deleteWhen: hours of the day, `;` between them
    reserved_hours: int = 72  # fileReservedTime
    clean_interval_ms: int = 10_000  # cleanResourceInterval
    delete_batch_max: int = 10  # deleteFileBatchMax
    disk_expire_percent: int = 75  # diskMaxUsedSpaceRatio
    disk_force_percent: int = 85  # diskSpaceCleanForciblyRatio
    disk_full_percent: int = 90  # diskSpaceWarningLevelRatio

    def __post_init__(self) -> None:
        if self.commit_log_file_bytes < 4 * KIB:
            raise ValueError("commit_log_file_bytes: a CommitLog file has at least 4 KiB")
        if self.consume_queue_file_bytes % 20 or self.consume_queue_file_bytes < 20:
            raise ValueError("consume_queue_file_bytes must be a multiple of 20")
        if self.index_slots < 1 or self.index_items < 2:
            raise ValueError("index_slots must be at least 1 and index_items at least 2")

    @property
    def commit_log_dir(self) -> Path:
        return self.root / "commitlog"

    @property
    def consume_queue_dir(self) -> Path:
        return self.root / "consumequeue"

    @property
    def index_dir(self) -> Path:
        return self.root / "index"

    def delays_ms(self) -> tuple[int, ...]:
        return parse_delay_levels(self.delay_levels)

    def delete_hours(self) -> frozenset[int]:
        return frozenset(int(hour) for hour in self.delete_when.split(";") if hour)


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """`1s 5s 1m` as milliseconds; level 1 is the first."""
    delays = []
    for word in text.split():
        number, unit = word[:-1], word[-1:]
        if unit not in _UNIT_MS or not number.isdigit():
            raise ValueError(f"messageDelayLevel: {word!r} is not a number with s, m, h or d")
        delays.append(int(number) * _UNIT_MS[unit])
    return tuple(delays)
