"""What somebody needs stays, however old; only a disk that is nearly full comes before."""

from pathlib import Path
from typing import Any

import pytest

from cometmq.store.disk import Disk
from cometmq.store.message_store import MessageStore

from .conftest import OpenStore
from .stores import fill

FILE_BYTES = 64 * 1024


class Needing:
    """A gate that needs all from an offset on, and remembers what it was told."""

    def __init__(self, keep_from: int | None) -> None:
        self.is_ready = True
        self.first_needed = keep_from
        self.told: list[tuple[str, int, int]] = []

    def keep_from(self) -> int | None:
        return self.first_needed

    def released(self) -> None:
        self.told.append(("released", 0, 0))

    def held(self, start: int, end: int) -> None:
        self.told.append(("held", start // FILE_BYTES, end // FILE_BYTES))

    def overruled(self, start: int, end: int) -> None:
        self.told.append(("overruled", start // FILE_BYTES, end // FILE_BYTES))


class EmptyingDisk(Disk):
    """Use of it goes down with every file that is deleted, from `full` percent on."""

    full = 10.0

    def used_percent(self, path: Path) -> float:
        files = [file.name for file in (path / "commitlog").iterdir() if file.name.isdigit()]
        return max(10.0, self.full - int(min(files)) // FILE_BYTES)


def filled(open_store: OpenStore, gate: Needing, **how: Any) -> MessageStore:
    """A store of more than seven old files."""
    store = open_store(gate=gate, reserved_hours=0, delete_when="", **how)
    fill(store, 1800, body_bytes=200)
    assert store.commit_log.end > 7 * FILE_BYTES
    return store


def files_gone(store: MessageStore) -> int:
    return store.commit_log.start_offset // FILE_BYTES


def test_files_go_up_to_the_one_with_the_first_record_that_is_needed(open_store: OpenStore) -> None:
    gate = Needing(3 * FILE_BYTES - 1)
    store = filled(open_store, gate)
    due = len(tuple(store.commit_log.segments)) - 1
    assert store.clean() == 2
    assert files_gone(store) == 2
    assert gate.told == [("held", 2, min(due, 10))]
    gate.first_needed = 3 * FILE_BYTES
    assert store.clean() == 1
    gate.first_needed = None
    while store.clean():
        pass
    assert gate.told[-1] == ("released", 0, 0)
    assert files_gone(store) == due


def test_queues_keep_what_the_log_keeps(open_store: OpenStore) -> None:
    gate = Needing(0)
    store = filled(open_store, gate)
    assert store.clean() == 0
    assert store.min_offset("orders", 0) == 0
    assert store.read("orders", 0, 0).count == 32


def test_nothing_goes_before_the_gate_knows(open_store: OpenStore) -> None:
    gate, disk = Needing(None), EmptyingDisk()
    gate.is_ready = False
    store = filled(open_store, gate, disk=disk)
    disk.full = 89.0
    assert store.clean() == 0
    gate.is_ready = True
    assert store.clean() > 0


def test_a_nearly_full_disk_comes_before_what_is_needed_file_by_file(open_store: OpenStore) -> None:
    gate, disk = Needing(2 * FILE_BYTES), EmptyingDisk()
    store = filled(open_store, gate, disk=disk)
    disk.full = 90.0
    # First what nobody needs.
    assert store.clean() == 2
    assert [what for what, _, _ in gate.told] == ["held"]
    # Then as much of the rest as must be: 90 - 5 is no longer over the mark.
    assert store.clean() == 3
    assert gate.told[1:] == [("overruled", 2, 3), ("overruled", 3, 4), ("overruled", 4, 5)]
    assert store.clean() == 0
    assert files_gone(store) == 5


@pytest.mark.parametrize("used", [76.0, 84.9])
def test_a_disk_over_the_first_mark_does_not(open_store: OpenStore, used: float) -> None:
    gate, disk = Needing(0), EmptyingDisk()
    store = filled(open_store, gate, disk=disk)
    disk.full = used
    assert store.clean(by_hand=False) == 0
    assert [what for what, _, _ in gate.told] == ["held"]
