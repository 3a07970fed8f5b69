"""How far another broker's timers are, put where ours begin."""

import msgspec

from cometmq.store.disk import Disk

from ..context import Context
from ..timers.checkpoint import REBUILDING, Checkpoint, Progress, write_checkpoint
from ..timers.files import checkpoint_path


def keep_timers(context: Context, disk: Disk, told: bytes | None, log_end: int) -> None:
    """Keep what was told no later than when the log ended at `log_end`. Whoever becomes the master
    makes the timers' other files anew, from where this says."""
    found = Checkpoint.decode(told) if told is not None else None
    if found is None:
        return
    # RocketMQ does not tell where in the log its copies begin, nor do they name their origins.
    known = found.progress or Progress(found.second_ms, log_end, found.queue_offset)
    checkpoint = msgspec.structs.replace(found, timer_log_end=REBUILDING, progress=known)
    write_checkpoint(checkpoint_path(context.store.config.root), checkpoint, disk)
