"""Every setting of the store, with RocketMQ's own name for it, its default and its unit."""

import dataclasses
import enum
from pathlib import Path

from cometmq.settings import setting

KIB, MIB, GIB = 1024, 1024**2, 1024**3

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class FlushMode(enum.Enum):
    ASYNC = "ASYNC_FLUSH"
    SYNC = "SYNC_FLUSH"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreConfig:
    root: Path = setting("storePathRootDir", dataclasses.MISSING, "directory of the store")
    commit_log_file_bytes: int = setting(
        "mappedFileSizeCommitLog", GIB, "size of a CommitLog file", unit="bytes"
    )
    consume_queue_file_bytes: int = setting(
        "mappedFileSizeConsumeQueue",
        300_000 * 20,
        "size of a ConsumeQueue file: entries times 20",
        unit="bytes",
    )
    index_enabled: bool = setting("messageIndexEnable", True, "keep an index by key")
    index_slots: int = setting(
        "maxHashSlotNum", 5_000_000, "hash slots of an index file", unit="slots"
    )
    index_items: int = setting("maxIndexNum", 20_000_000, "items of an index file", unit="items")
    message_bytes_max: int = setting(
        "maxMessageSize", 4 * MIB, "largest body", unit="bytes", live=True
    )
    seal_records: bool = setting(
        "enabledAppendPropCRC", True, "give every record a checksum of the whole of it"
    )
    delay_levels: str = setting(
        "messageDelayLevel", DEFAULT_DELAY_LEVELS, "what each delay level means"
    )

    flush: FlushMode = setting(
        "flushDiskType",
        FlushMode.ASYNC,
        "SYNC_FLUSH acknowledges after the disk has it, ASYNC_FLUSH before",
    )
    flush_interval_ms: int = setting(
        "flushIntervalCommitLog", 500, "time between two syncs of the log", unit="ms"
    )
    flush_timed: bool = setting(
        "flushCommitLogTimed",
        True,
        "sync at that interval rather than whenever something was written",
    )
    sync_flush_timeout_ms: int = setting(
        "syncFlushTimeout", 5000, "how long a send waits for the disk", unit="ms"
    )
    queue_flush_interval_ms: int = setting(
        "flushIntervalConsumeQueue", 1000, "time between two syncs of queues and index", unit="ms"
    )

    warm_up: bool = setting(
        "warmMapedFileEnable", False, "touch every page of a new CommitLog file ahead of its use"
    )

    delete_when: str = setting(
        "deleteWhen",
        "04",
        "hours of the day at which expired files go, `;` between them",
        live=True,
    )
    reserved_hours: int = setting(
        "fileReservedTime", 72, "how many hours a CommitLog file is kept", unit="hours", live=True
    )
    clean_interval_ms: int = setting(
        "cleanResourceInterval", 10_000, "time between two looks for files to delete", unit="ms"
    )
    delete_batch_max: int = setting("deleteFileBatchMax", 10, "files deleted at once", unit="files")
    disk_expire_percent: int = setting(
        "diskMaxUsedSpaceRatio",
        75,
        "disk use from which expired files go at any hour",
        unit="%",
        live=True,
    )
    disk_force_percent: int = setting(
        "diskSpaceCleanForciblyRatio",
        85,
        "disk use from which files go before they expire",
        unit="%",
        live=True,
    )
    disk_full_percent: int = setting(
        "diskSpaceWarningLevelRatio",
        90,
        "disk use from which messages are refused",
        unit="%",
        live=True,
    )

    def __post_init__(self) -> None:
        if self.commit_log_file_bytes < 4 * KIB:
            raise ValueError("commit_log_file_bytes: a CommitLog file has at least 4 KiB")
        if self.consume_queue_file_bytes % 20 or self.consume_queue_file_bytes < 20:
            raise ValueError("consume_queue_file_bytes must be a multiple of 20")
        if self.index_slots < 1 or self.index_items < 2:
            raise ValueError("index_slots must be at least 1 and index_items at least 2")
        self.delete_hours()
        percents = (self.disk_expire_percent, self.disk_force_percent, self.disk_full_percent)
        if not all(0 <= percent <= 100 for percent in percents):
            raise ValueError("diskMaxUsedSpaceRatio and its like are percentages: 0 to 100")
        if self.reserved_hours < 0 or self.message_bytes_max < 0:
            raise ValueError("fileReservedTime and maxMessageSize cannot be negative")

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
        hours = [hour.strip() for hour in self.delete_when.split(";") if hour.strip()]
        if not all(hour.isdecimal() and int(hour) < 24 for hour in hours):
            raise ValueError(f"deleteWhen={self.delete_when}: hours from 00 to 23 are expected")
        return frozenset(map(int, hours))


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """`1s 5s 1m` as milliseconds; level 1 is the first."""
    delays = []
    for word in text.split():
        number, unit = word[:-1], word[-1:]
        if unit not in _UNIT_MS or not number.isdigit():
            raise ValueError(f"messageDelayLevel: {word!r} is not a number with s, m, h or d")
        delays.append(int(number) * _UNIT_MS[unit])
    return tuple(delays)
