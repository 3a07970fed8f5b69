"""Old files go when they should, with all that points to them, and no other file ever does."""

import time
from pathlib import Path

import pytest

from cometmq.store.config import StoreConfig
from cometmq.store.disk import Disk
from cometmq.store.errors import DiskFull
from cometmq.store.retention import HOUR_MS, decide

from .conftest import OpenStore
from .stores import fill, numbered, served_numbers

NOW = 1_000 * HOUR_MS
FRESH, OLD = NOW - HOUR_MS, NOW - 80 * HOUR_MS


def verdict(
    files: list[int],
    *,
    hour: int = 12,
    used: float = 10.0,
    by_hand: bool = False,
    was_full: bool = False,
) -> tuple[int, bool]:
    config = StoreConfig(root=Path("/nowhere"))
    decided = decide(config, files, NOW, hour, used, by_hand=by_hand, was_full=was_full)
    assert decided.forced == (used > config.disk_force_percent)
    return decided.files, decided.disk_full


def test_expired_files_go_at_four_in_the_morning() -> None:
    assert verdict([OLD, OLD, FRESH], hour=4) == (2, False)
    assert verdict([OLD, OLD, FRESH], hour=5) == (0, False)


def test_expired_files_go_when_asked_by_hand() -> None:
    assert verdict([OLD, FRESH, OLD], by_hand=True) == (1, False)


def test_expired_files_go_when_the_disk_is_over_75_percent() -> None:
    assert verdict([OLD, OLD, FRESH], used=76) == (2, False)
    assert verdict([FRESH, FRESH], used=84) == (0, False)


def test_files_of_any_age_go_when_the_disk_is_over_85_percent() -> None:
    assert verdict([FRESH, FRESH], used=86) == (2, False)


def test_sends_are_refused_over_90_percent_until_use_is_below_85() -> None:
    assert verdict([FRESH], used=91) == (1, True)
    assert verdict([FRESH], used=88, was_full=True) == (1, True)
    assert verdict([FRESH], used=88) == (1, False)
    assert verdict([FRESH], used=84, was_full=True) == (0, False)


def test_at_most_ten_files_go_at_a_time() -> None:
    assert verdict([OLD] * 30, by_hand=True) == (10, False)


def test_queues_and_index_follow_the_log(open_store: OpenStore) -> None:
    store = open_store(reserved_hours=0)
    fill(store, 3000, body_bytes=200)
    before = served_numbers(store)
    index_files = len(store.index or ())
    queue_files = len(list(store.config.consume_queue_dir.rglob("0000*")))
    assert store.clean() == 10
    start = store.commit_log.start_offset
    assert start == 10 * store.config.commit_log_file_bytes
    left = served_numbers(store)
    assert left == before[-len(left) :]
    assert 0 < len(left) < 3000
    assert len(store.index or ()) < index_files
    assert len(list(store.config.consume_queue_dir.rglob("0000*"))) < queue_files
    gone, kept = numbered(left[0] - 1), numbered(left[0])
    assert store.query(gone.topic, f"key-{left[0] - 1}") == []
    assert len(store.query(kept.topic, f"key-{left[0]}")) == 1
    first = store.min_offset("orders", 0)
    store.close()
    again = open_store()
    assert served_numbers(again) == left
    assert again.min_offset("orders", 0) == first > 0


def test_a_queue_whose_messages_are_all_gone_keeps_its_offsets(open_store: OpenStore) -> None:
    store = open_store(reserved_hours=0)
    for number in range(0, 120, 12):
        store.put(numbered(number))
    ended = store.max_offset("orders", 0)
    fill(store, 3000, first=100_001)
    fill_other = store.max_offset("orders", 0)
    while store.clean():
        pass
    store.close()
    again = open_store()
    assert again.max_offset("orders", 0) == fill_other >= ended
    assert again.put(numbered(0)).queue_offset == fill_other


def test_the_current_file_stays_however_old(open_store: OpenStore) -> None:
    store = open_store(reserved_hours=0)
    fill(store, 20)
    assert store.clean() == 0
    assert served_numbers(store) == list(range(20))


def test_a_disk_over_the_full_mark_refuses_sends_and_serves_reads(open_store: OpenStore) -> None:
    class FillingDisk(Disk):
        used = 10.0

        def used_percent(self, path: Path) -> float:
            return self.used

    disk = FillingDisk()
    store = open_store(disk=disk)
    fill(store, 10)
    disk.used = 95.0
    store._keeper.clean()
    with pytest.raises(DiskFull, match="over 90 % full"):
        store.append(numbered(10))
    assert served_numbers(store) == list(range(10))
    disk.used = 50.0
    store._keeper.clean()
    store.put(numbered(10))
    assert served_numbers(store) == list(range(11))


def test_the_keeper_cleans_by_itself(open_store: OpenStore) -> None:
    hours = ";".join(f"{hour:02d}" for hour in range(24))
    store = open_store(
        reserved_hours=0, delete_when=hours, clean_interval_ms=10, queue_flush_interval_ms=10
    )
    fill(store, 1500)
    deadline = time.monotonic() + 20
    while store.commit_log.start_offset == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert store.commit_log.start_offset > 0
