"""Which CommitLog files may go, as RocketMQ decides it. Pure: facts in, decision out.

Expired files (not written to for `fileReservedTime`) go at the hour `deleteWhen`, when asked by
hand, or when the disk is over its first mark. Over the second mark the oldest go whatever their
age. Over the third, sends are refused until use is below the second again. The file that is
written to never goes. What is due may still be held back by a `gate`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from .config import StoreConfig

HOUR_MS = 3_600_000


class Verdict(NamedTuple):
    files: int
    """How many files go, from the oldest on."""
    disk_full: bool
    forced: bool
    """Whether they go for lack of space, whatever their age and whoever needs them."""


def decide(
    config: StoreConfig,
    files_modified_ms: Sequence[int],
    now_ms: int,
    local_hour: int,
    used_percent: float,
    *,
    by_hand: bool,
    was_full: bool,
) -> Verdict:
    """`files_modified_ms`: last change of each file from the oldest on, without the current one."""
    forced = used_percent > config.disk_force_percent
    disk_full = used_percent > config.disk_full_percent or (was_full and forced)
    due = (
        by_hand or local_hour in config.delete_hours() or used_percent > config.disk_expire_percent
    )
    oldest = files_modified_ms[: config.delete_batch_max]
    if forced:
        return Verdict(len(oldest), disk_full, forced)
    if not due:
        return Verdict(0, disk_full, forced)
    limit = now_ms - config.reserved_hours * HOUR_MS
    kept = next((n for n, modified in enumerate(oldest) if modified > limit), len(oldest))
    return Verdict(kept, disk_full, forced)
