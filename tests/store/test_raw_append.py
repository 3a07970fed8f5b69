"""Bytes of another log, cut anywhere, become the same log, the same queues and the same index."""

import random
from pathlib import Path

import pytest

from cometmq.protocol.message import Message
from cometmq.store.errors import DiskFull, StoreMismatch
from cometmq.store.message_store import MessageStore
from tests.broker.brokers import FullDisk
from tests.store.stores import small_config

FILE_BYTES = 16 * 1024


def store_at(root: Path, **changes: object) -> MessageStore:
    settings: dict[str, object] = {"commit_log_file_bytes": FILE_BYTES, **changes}
    return MessageStore(small_config(root, **settings))


def fill(store: MessageStore, count: int) -> None:
    for number in range(count):
        body = b"." * (number * 37 % 900)
        properties = b"KEYS\x01key-%d\x02" % number
        store.append(Message("orders", number % 3, body, properties))
    store.dispatch()


def log_bytes(store: MessageStore, start: int = 0) -> bytes:
    end = store.appended.value
    parts = [bytes(segment.view) for segment in store.commit_log.segments if segment.base >= start]
    return b"".join(parts)[: end - start]


def copy(source: bytes, start: int, target: MessageStore, seed: int) -> None:
    """Append everything in pieces of any size."""
    choice, at = random.Random(seed), 0
    while at < len(source):
        size = choice.choice([1, 5, 30, 100, 1000, 30_000])
        target.append_raw(start + at, memoryview(source[at : at + size]))
        at += size
        if choice.random() < 0.3:
            target.dispatch()
    target.dispatch()


@pytest.mark.parametrize("seed", range(5))
def test_a_copy_is_the_same_however_it_was_cut(tmp_path: Path, seed: int) -> None:
    with store_at(tmp_path / "a") as first, store_at(tmp_path / "b") as second:
        fill(first, 300)
        copy(log_bytes(first), 0, second, seed)
        assert second.appended.value == second.confirmed.value == second.dispatched.value
        assert log_bytes(second) == log_bytes(first)
        for queue_id in range(3):
            ours, theirs = (s.read("orders", queue_id, 0, count_max=500) for s in (first, second))
            assert b"".join(ours.slices) == b"".join(theirs.slices) != b""
        assert [m.body for m in second.query("orders", "key-17")] == [b"." * (17 * 37 % 900)]
        assert second.last_timestamp == first.last_timestamp


def test_a_record_is_not_readable_before_all_of_it_is_there(tmp_path: Path) -> None:
    with store_at(tmp_path / "a") as first, store_at(tmp_path / "b") as second:
        fill(first, 2)
        data = log_bytes(first)
        for at in range(len(data)):
            second.append_raw(at, memoryview(data[at : at + 1]))
            second.dispatch()
            assert second.confirmed.value in (0, first.message_at(0).size, len(data))  # type: ignore[union-attr]
        assert second.confirmed.value == len(data)


def test_an_empty_log_begins_where_the_other_one_does(tmp_path: Path) -> None:
    with store_at(tmp_path / "a") as first:
        fill(first, 300)
        last = first.commit_log.segments.last
        assert last is not None
        assert last.base > 0
        with store_at(tmp_path / "b") as second:
            copy(log_bytes(first, last.base), last.base, second, seed=1)
            assert second.commit_log.start_offset == last.base
            assert second.max_offset("orders", 0) == first.max_offset("orders", 0)
            assert second.min_offset("orders", 0) > 0
        with store_at(tmp_path / "b") as again:
            assert again.appended.value == first.appended.value
            assert log_bytes(again, last.base) == log_bytes(first, last.base)


def test_a_tail_that_is_no_whole_record_is_cut_at_the_next_start(tmp_path: Path) -> None:
    with store_at(tmp_path / "a") as first:
        fill(first, 50)
        data = log_bytes(first)
    second = store_at(tmp_path / "b")
    second.open()
    second.append_raw(0, memoryview(data[:-3]))
    second.dispatch()
    whole = second.confirmed.value
    assert 0 < whole < len(data) - 3
    second.close()
    with store_at(tmp_path / "b") as again:
        assert again.appended.value == whole
        again.append_raw(whole, memoryview(data[whole:]))
        again.dispatch()
        assert log_bytes(again) == data


def test_bytes_for_another_place_are_refused(tmp_path: Path) -> None:
    with store_at(tmp_path / "a") as first, store_at(tmp_path / "b") as second:
        fill(first, 10)
        data = log_bytes(first)
        second.append_raw(0, memoryview(data[:500]))
        with pytest.raises(StoreMismatch, match="the log ends at 500"):
            second.append_raw(400, memoryview(data[400:]))


@pytest.mark.parametrize("other_bytes", [FILE_BYTES // 2, FILE_BYTES * 2])
def test_a_log_with_files_of_another_size_is_refused(tmp_path: Path, other_bytes: int) -> None:
    with (
        store_at(tmp_path / "a") as first,
        store_at(tmp_path / "b", commit_log_file_bytes=other_bytes) as second,
    ):
        fill(first, 300)
        with pytest.raises(StoreMismatch, match="mappedFileSizeCommitLog"):
            copy(log_bytes(first), 0, second, seed=1)


def test_a_log_cannot_begin_in_the_middle_of_a_file(tmp_path: Path) -> None:
    with (
        store_at(tmp_path / "b") as second,
        pytest.raises(StoreMismatch, match="mappedFileSizeCommitLog"),
    ):
        second.append_raw(FILE_BYTES // 2, memoryview(bytes(100)))


def test_damage_of_the_other_log_is_copied_and_never_served(tmp_path: Path) -> None:
    with store_at(tmp_path / "a") as first, store_at(tmp_path / "b") as second:
        fill(first, 30)
        data = bytearray(log_bytes(first))
        hurt = first.queues.get(b"orders" + (1).to_bytes(4, "big")).entry(2)  # type: ignore[union-attr]
        assert hurt is not None
        data[hurt.physical_offset + 4 : hurt.physical_offset + 8] = b"DUST"
        copy(bytes(data), 0, second, seed=3)
        assert log_bytes(second) == bytes(data)
        assert second.max_offset("orders", 1) == first.max_offset("orders", 1)
        assert second.message_at(hurt.physical_offset) is None


def test_a_full_disk_is_an_error_and_the_copy_goes_on_when_there_is_space(tmp_path: Path) -> None:
    with store_at(tmp_path / "a") as first:
        fill(first, 100)
        data = log_bytes(first)
    disk = FullDisk()
    config = small_config(tmp_path / "b", commit_log_file_bytes=FILE_BYTES)
    store = MessageStore(config, disk=disk)
    store.open()
    try:
        store.append_raw(0, memoryview(data[:FILE_BYTES]))
        disk.full = True
        with pytest.raises(DiskFull):
            store.append_raw(FILE_BYTES, memoryview(data[FILE_BYTES : 2 * FILE_BYTES]))
        disk.full = False
        store._space_checked_ms = 0
        end = store.appended.value
        store.append_raw(end, memoryview(data[end:]))
        assert log_bytes(store) == data
    finally:
        store.close()
