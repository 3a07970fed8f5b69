"""However a store was left, it opens again with every whole record and nothing else."""

import random
import shutil
from pathlib import Path

import pytest

from cometmq.protocol.message import Message
from cometmq.store.checkpoint import Checkpoint, read_checkpoint
from cometmq.store.errors import StoreMismatch
from cometmq.store.message_store import MessageStore
from cometmq.store.recovery import RecoveryReport

from .conftest import OpenStore
from .stores import crash, files_of, fill, numbered, served, served_numbers, small_config

DERIVED = ("consumequeue", "index")


def reopen(root: Path) -> tuple[MessageStore, RecoveryReport]:
    store = MessageStore(small_config(root))
    return store, store.open()


def recovered_numbers(root: Path) -> tuple[list[int], RecoveryReport]:
    store, report = reopen(root)
    numbers = served_numbers(store)
    crash(store)
    return numbers, report


def assert_second_recovery_changes_nothing(root: Path) -> None:
    before = files_of(root, "commitlog", *DERIVED)
    crash(reopen(root)[0])
    assert files_of(root, "commitlog", *DERIVED) == before


def small_log(root: Path, count: int = 5) -> tuple[Path, list[int]]:
    """A log of a few records, crashed before any checkpoint; its file and the records' starts."""
    store = MessageStore(small_config(root, commit_log_file_bytes=4096))
    store.open()
    starts = [store.put(numbered(number)).physical_offset for number in range(count)]
    starts.append(store.appended.value)
    crash(store)
    # The first checkpoint of all: nothing is known to be durable.
    (root / "checkpoint").write_bytes(Checkpoint().encode())
    return root / "commitlog" / ("0" * 20), starts


def recover_small(root: Path) -> tuple[list[int], RecoveryReport, int]:
    store = MessageStore(small_config(root, commit_log_file_bytes=4096))
    report = store.open()
    numbers, end = served_numbers(store), store.appended.value
    crash(store)
    return numbers, report, end


def test_a_clean_stop_is_seen_as_one(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 300)
    before = served(store)
    store.close()
    root = store.config.root
    assert not (root / "abort").exists()
    again, report = reopen(root)
    assert report.clean
    assert (report.cut_bytes, report.dispatched_bytes, report.damaged) == (0, 0, [])
    assert served(again) == before
    assert again.put(numbered(300)).queue_offset == 25
    again.close()


def test_offsets_go_on_after_a_restart(open_store: OpenStore) -> None:
    store = open_store()
    placed = [store.put(Message("t", 0, b"x")).queue_offset for _ in range(3)]
    store.close()
    again = open_store()
    placed += [again.put(Message("t", 0, b"x")).queue_offset for _ in range(3)]
    assert placed == list(range(6))


def test_a_killed_process_loses_nothing(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 700)
    before = served(store)
    crash(store)
    again = open_store()
    assert served(again) == before
    assert again.query("orders", "key-3")[0].flag == 3


def test_messages_that_were_appended_but_not_dispatched_are_readable_after_a_crash(
    open_store: OpenStore,
) -> None:
    store = open_store()
    fill(store, 50)
    for number in range(50, 60):
        store.append(numbered(number))
    crash(store)
    assert served_numbers(open_store()) == list(range(60))


def test_queues_and_index_are_rebuilt_byte_for_byte(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 1200)
    store.close()
    root = store.config.root
    before = files_of(root, *DERIVED)
    assert len(before) > 30
    for directory in DERIVED:
        shutil.rmtree(root / directory)
    again, report = reopen(root)
    assert report.queues_rebuilt
    assert report.index_rebuilt
    again.close()
    assert files_of(root, *DERIVED) == before


@pytest.mark.parametrize("missing", ["consumequeue/orders/0", "consumequeue/payments", "index"])
def test_a_part_that_is_missing_is_noticed_and_rebuilt(open_store: OpenStore, missing: str) -> None:
    store = open_store()
    fill(store, 400)
    crash(store)
    root = store.config.root
    crash(reopen(root)[0])
    before = files_of(root, *DERIVED)
    shutil.rmtree(root / missing)
    crash(reopen(root)[0])
    assert files_of(root, *DERIVED) == before


def test_a_crash_at_any_point_leaves_the_same_queues_and_index_as_no_crash(
    tmp_path: Path,
) -> None:
    """Byte for byte, with crashes before, between and after the marks of the checkpoint."""
    quiet, stormy = tmp_path / "quiet", tmp_path / "stormy"
    chance = random.Random(7)

    class Clock:
        def now_ms(self) -> int:
            return 1_700_000_000_000

    for root, crashes in ((quiet, 0), (stormy, 12)):
        store = MessageStore(small_config(root), clock=Clock())
        store.open()
        stops = {chance.randrange(800) for _ in range(crashes)}
        for number in range(800):
            store.append(numbered(number))
            if chance.random() < 0.3:
                store.dispatch()
            if chance.random() < 0.05:
                store._keeper.save()
            if number in stops:
                crash(store)
                store = MessageStore(small_config(root), clock=Clock())
                store.open()
        store.close()
    assert files_of(quiet, "commitlog", *DERIVED) == files_of(stormy, "commitlog", *DERIVED)


def test_the_last_record_cut_at_every_byte(memory_path: Path) -> None:
    origin = memory_path / "origin"
    log_file, starts = small_log(origin)
    content = log_file.read_bytes()
    for cut in range(starts[-2], starts[-1]):
        for tail in (b"", bytes(4096 - cut)):
            root = memory_path / "cut"
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(origin, root)
            (root / "commitlog" / log_file.name).write_bytes(content[:cut] + tail)
            numbers, report, end = recover_small(root)
            assert (numbers, end) == (list(range(4)), starts[-2]), f"cut at {cut}"
            assert report.damaged == []


@pytest.mark.parametrize("durable", [False, True], ids=["nothing durable", "all durable"])
def test_every_byte_flipped(memory_path: Path, *, durable: bool) -> None:
    """Behind the durable point the log ends at the damage; before it, only the damaged record
    is missing, and said to be."""
    origin = memory_path / "origin"
    log_file, starts = small_log(origin)
    if durable:
        recover_small(origin)
    content = log_file.read_bytes()
    for position in range(starts[-1]):
        root = memory_path / "flipped"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(origin, root)
        damaged = bytearray(content)
        damaged[position] ^= 0x55
        (root / "commitlog" / log_file.name).write_bytes(damaged)
        record = max(n for n, start in enumerate(starts) if start <= position)
        numbers, report, end = recover_small(root)
        if durable and record < 4:
            assert numbers == [n for n in range(5) if n != record], f"byte {position}"
            assert [(d.start, d.end) for d in report.damaged] == [
                (starts[record], starts[record + 1])
            ]
            assert end == starts[-1]
        else:
            assert numbers == list(range(record)), f"byte {position}"
            assert end == starts[record]
            assert report.lost == durable
        if position % 97 == 0:
            before = files_of(root, "commitlog", *DERIVED)
            assert recover_small(root)[0] == numbers
            assert files_of(root, "commitlog", *DERIVED) == before


@pytest.mark.parametrize(
    "garbage",
    [bytes(100), b"\xff" * 100, bytes(range(256)), b"\x00\x00\x01\x41\xda\xa3\x20\xa7" + bytes(80)],
    ids=["zeros", "ones", "counting", "half a head"],
)
def test_garbage_behind_the_last_record_is_cut_off(tmp_path: Path, garbage: bytes) -> None:
    root = tmp_path / "store"
    log_file, starts = small_log(root)
    content = bytearray(log_file.read_bytes())
    content[starts[-1] : starts[-1] + len(garbage)] = garbage
    log_file.write_bytes(content)
    numbers, report, end = recover_small(root)
    assert (numbers, end) == (list(range(5)), starts[-1])
    assert report.damaged == []
    assert log_file.read_bytes()[end:] == bytes(4096 - end)


def test_an_old_record_behind_a_cut_never_comes_back(tmp_path: Path) -> None:
    """Records of one size make the trap: the one behind the cut fits right behind a new one."""
    root = tmp_path / "store"
    log_file, starts = small_log(root)
    content = bytearray(log_file.read_bytes())
    content[starts[3] + 100] ^= 1
    log_file.write_bytes(content)
    store = MessageStore(small_config(root, commit_log_file_bytes=4096))
    store.open()
    assert store.put(numbered(9)).end == starts[4]
    crash(store)
    assert recover_small(root)[0] == [0, 1, 2, 9]


def test_damage_in_the_middle_is_reported_by_reads_too(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 300)
    victim = served(store)["orders", 0, 4]
    segment = store.commit_log.segments.find(victim.physical_offset)
    assert segment is not None
    segment.view[victim.physical_offset - segment.base + 95] ^= 0xFF
    result = store.read("orders", 0, 0, count_max=10)
    assert [d.queue_offset for d in result.damaged] == [4]
    assert (result.count, result.next_offset) == (10, 11)
    assert store.message_at(victim.physical_offset) is None


def test_a_lost_record_leaves_a_hole_when_the_queues_are_rebuilt(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 300)
    messages = served(store)
    victim = messages["orders", 0, 4]
    store.close()
    root = store.config.root
    name = f"{victim.physical_offset // 65536 * 65536:020d}"
    log_file = root / "commitlog" / name
    content = bytearray(log_file.read_bytes())
    content[victim.physical_offset % 65536 + 95] ^= 0xFF
    log_file.write_bytes(content)
    shutil.rmtree(root / "consumequeue")
    again, report = reopen(root)
    assert [d.start for d in report.damaged] == [victim.physical_offset]
    del messages["orders", 0, 4]
    assert served(again) == messages
    assert [d.queue_offset for d in again.read("orders", 0, 0).damaged] == [4]
    again.close()


def test_a_damaged_end_marker_does_not_hide_the_next_file(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 600)
    store.close()
    root = store.config.root
    first = root / "commitlog" / ("0" * 20)
    content = bytearray(first.read_bytes())
    marker = content.rindex(b"\xcb\xd4\x31\x94")
    content[marker] ^= 1
    first.write_bytes(content)
    for directory in DERIVED:
        shutil.rmtree(root / directory)
    numbers, report = recovered_numbers(root)
    assert numbers == list(range(600))
    assert [(d.start, d.end) for d in report.damaged] == [(marker - 4, 65536)]


def test_a_topic_made_anew_keeps_only_its_new_messages_when_rebuilt(
    open_store: OpenStore,
) -> None:
    store = open_store()
    for body in (b"old 0", b"old 1", b"old 2"):
        store.put(Message("t", 0, body))
    store.delete_topic("t")
    store.put(Message("t", 0, b"new 0"))
    store.close()
    shutil.rmtree(store.config.root / "consumequeue")
    again = open_store()
    assert [m.body for m in served(again).values()] == [b"new 0"]


def test_a_lost_log_takes_its_queues_along(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 100)
    store.close()
    shutil.rmtree(store.config.root / "commitlog")
    again, report = reopen(store.config.root)
    assert report.lost
    assert (served(again), again.query("orders", "key-0")) == ({}, [])
    assert again.put(numbered(0)).queue_offset == 0
    again.close()


def test_another_file_size_is_an_error_that_says_so(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 600)
    store.close()
    for size in (32 * 1024, 128 * 1024):
        with pytest.raises(StoreMismatch):
            MessageStore(small_config(store.config.root, commit_log_file_bytes=size)).open()
    with pytest.raises(StoreMismatch, match="with this configuration"):
        MessageStore(small_config(store.config.root, index_items=700)).open()
    assert not (store.config.root / "abort").exists()
    assert served_numbers(open_store()) == list(range(600))


def test_a_checkpoint_from_another_broker_is_known_by_its_checksum(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 10)
    store.close()
    path = store.config.root / "checkpoint"
    content = bytearray(path.read_bytes())
    assert read_checkpoint(path).marks is not None
    content[7] ^= 1
    path.write_bytes(content)
    assert read_checkpoint(path).marks is None
    assert served_numbers(open_store()) == list(range(10))


def test_recovery_without_marks_goes_by_times_and_finds_everything(
    open_store: OpenStore,
) -> None:
    store = open_store()
    fill(store, 900)
    before = served(store)
    crash(store)
    root = store.config.root
    (root / "checkpoint").write_bytes(Checkpoint(log_timestamp=1, queue_timestamp=1).encode())
    again = open_store()
    assert served(again) == before
    assert again.query("payments", "key-1")[0].flag == 1
    crash(again)
    assert_second_recovery_changes_nothing(root)


def test_an_index_switched_on_later_covers_what_came_before(open_store: OpenStore) -> None:
    store = open_store(index_enabled=False)
    fill(store, 100)
    assert store.query("orders", "key-3") == []
    store.close()
    again = open_store()
    assert [m.flag for m in again.query("orders", "key-3")] == [3]


@pytest.mark.parametrize("directory", ["batchconsumequeue", "consumequeue_ext"])
def test_a_format_that_we_cannot_read_is_said_so(open_store: OpenStore, directory: str) -> None:
    store = open_store()
    store.close()
    foreign = store.config.root / directory / "topic" / "0" / ("0" * 20)
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"x")
    with pytest.raises(StoreMismatch, match="which CometMQ cannot read yet"):
        open_store()


@pytest.mark.parametrize("lost_below", [1, 2], ids=["the start is missing", "a gap in the middle"])
def test_an_index_with_missing_files_from_another_broker_is_completed(
    open_store: OpenStore, lost_below: int
) -> None:
    """As RocketMQ leaves it after a crash and a restart, with times but no marks to go by."""
    store = open_store()
    fill(store, 1200)
    store.close()
    root = store.config.root
    before = files_of(root, "index")
    assert len(before) > 3
    (root / sorted(before)[lost_below - 1]).unlink()
    checkpoint = read_checkpoint(root / "checkpoint")
    theirs = Checkpoint(
        log_timestamp=checkpoint.log_timestamp,
        queue_timestamp=checkpoint.queue_timestamp,
        index_timestamp=checkpoint.index_timestamp,
    )
    (root / "checkpoint").write_bytes(theirs.encode())
    open_store().close()
    assert files_of(root, "index") == before
