"""Wheel, timer log and checkpoint as one: entries in, and saves in the order that keeps them safe.

A save goes: the CommitLog to disk (entries point into it), the timer log, the slots of the wheel
(they point into the timer log), the checkpoint. So a crash at any point leaves a wheel that at most
lacks entries which the log has, and `relink` adds those.
"""

from pathlib import Path

from cometmq.protocol.java import string_hash
from cometmq.protocol.message import StoredMessage
from cometmq.store.disk import Disk
from cometmq.store.message_store import MessageStore

from .checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from .timed import PRECISION_MS, real_topic
from .timer_log import RECALL, DamagedTimers, Entry, TimerLog
from .wheel import NO_ENTRY, Slot, Wheel


def checkpoint_path(root: Path) -> Path:
    return root / "config" / "timercheck"


class TimerFiles:
    def __init__(self, root: Path, log_file_bytes: int, disk: Disk) -> None:
        self._disk = disk
        self._checkpoint_path = checkpoint_path(root)
        self.wheel = Wheel(root / "timerwheel", disk)
        self.log = TimerLog(root / "timerlog", log_file_bytes, disk)
        self.exist = False
        """Whether there are any; they are made for the first message."""

    def create(self) -> None:
        self.log.clear()
        self.wheel.create()
        self.exist = True

    def open(self) -> None:
        self.wheel.open()
        self.log.load()
        self.exist = True

    def close(self) -> None:
        self.wheel.close()
        self.log.close()
        self.exist = False

    # -- entries ---------------------------------------------------------------------------------

    def add(self, waits: StoredMessage, kind: int, due_ms: int, now_ms: int) -> int:
        """Note when a message is due; the entry's position. OSError on a full disk."""
        second = due_ms // PRECISION_MS
        slot = self.wheel.slot(second) or Slot(second, NO_ENTRY, NO_ENTRY, 0, 0)
        topic_hash = string_hash(real_topic(waits).decode(errors="replace"))
        entry = Entry(
            slot.newest, kind, now_ms, due_ms - now_ms, waits.physical_offset, waits.size,
            topic_hash,
        )  # fmt: skip
        position = self.log.append(entry)
        self.wheel.put(slot.grown(position, recall=bool(kind & RECALL)))
        return position

    def relink(self, position: int, entry: Entry) -> bool:
        """Let the wheel know of an entry that the log has; False when it does already."""
        second = entry.due_ms // PRECISION_MS
        slot = self.wheel.slot(second) or Slot(second, NO_ENTRY, NO_ENTRY, 0, 0)
        if slot.newest >= position:
            return False
        if entry.previous != slot.newest:
            raise DamagedTimers(
                f"the entry at {position} follows {entry.previous}, its slot ends at {slot.newest}"
            )
        self.wheel.put(slot.grown(position, recall=bool(entry.kind & RECALL)))
        return True

    def newest(self, second: int) -> int:
        slot = self.wheel.slot(second)
        return slot.newest if slot is not None else NO_ENTRY

    # -- saves -----------------------------------------------------------------------------------

    def read_checkpoint(self) -> Checkpoint | None:
        return read_checkpoint(self._checkpoint_path)

    def write(self, checkpoint: Checkpoint, store: MessageStore) -> None:
        """Make durable what a checkpoint says, then the checkpoint, after `wheel.freeze`. Runs in
        another thread than everything else here."""
        store.flush()
        self.log.sync(checkpoint.timer_log_end)
        self.wheel.write()
        write_checkpoint(self._checkpoint_path, checkpoint, self._disk)

    def give_up(self, checkpoint: Checkpoint, store: MessageStore) -> None:
        """Make empty files, after the checkpoint has said that what there is must not be used."""
        store.flush()
        write_checkpoint(self._checkpoint_path, checkpoint, self._disk)
        self.close()
        self.create()
