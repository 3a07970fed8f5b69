"""The wheel, its log and its checkpoint to the byte, against what a RocketMQ 5.5.0 has written."""

import errno
import random
import struct
from pathlib import Path

import msgspec
import pytest

from cometmq.broker.timers.checkpoint import Checkpoint, Progress
from cometmq.broker.timers.due_slot import DueSlot
from cometmq.broker.timers.files import TimerFiles
from cometmq.broker.timers.marks import Marks
from cometmq.broker.timers.timed import due_time
from cometmq.broker.timers.timer_log import (
    MESSAGE,
    RECALL,
    DamagedTimers,
    Entry,
    TimerLog,
)
from cometmq.broker.timers.wheel import FILE_BYTES, SLOTS, Slot, Wheel
from cometmq.protocol.data_version import DataVersion
from cometmq.protocol.host import Host
from cometmq.protocol.java import string_hash
from cometmq.protocol.message import StoredMessage
from cometmq.protocol.properties import encode_properties
from cometmq.store.disk import Disk
from cometmq.store.errors import StoreMismatch

# Of a RocketMQ 5.5.0 with ten messages in two seconds, and one recalled.
THEIR_ENTRY = bytes.fromhex(
    "00000034 0000000000000000 00000001 000001a1e3f9c780 000003e8 0000000000000126 00000126"
    "06940737 0000000000000000"
)
THEIR_RECALL = bytes.fromhex(
    "00000034 00000000000002a4 00000005 000001a1e3f9c780 000061a8 0000000000002e0e 00000169"
    "06940737 0000000000000000"
)
THEIR_SLOT = bytes.fromhex("000000006afadfb2 0000000000000104 00000000000001d4 00000005 00000000")
THEIR_SLOT_NUMBER = 989_362
THEIR_CHECKPOINT = bytes.fromhex(
    "000001a1e3fa09e8 0000000000000854 0000000000000029 0000000000000029 0000000000000000"
    "000001a1e3fa0d48 000000000000000e"
)


def message(size: int = 294, offset: int = 0, **known: int) -> StoredMessage:
    texts = {name: str(value) for name, value in known.items()}
    properties = encode_properties({"REAL_TOPIC": "timed", **texts})
    return StoredMessage(
        topic="rmq_sys_wheel_timer", queue_id=0, queue_offset=0, physical_offset=offset, size=size,
        body=b"", properties=properties, flag=0, sys_flag=0, body_crc=0, born_timestamp=0,
        born_host=Host("127.0.0.1", 1), store_timestamp=1_700_000_000_400,
        store_host=Host("127.0.0.1", 1), reconsume_times=0, prepared_transaction_offset=0,
    )  # fmt: skip


def opened(root: Path, file_bytes: int = 1024) -> TimerFiles:
    files = TimerFiles(root, file_bytes, Disk())
    files.create()
    return files


# -- the log -------------------------------------------------------------------------------------


def test_an_entry_is_rocketmqs_with_a_checksum_in_its_reserved_field(tmp_path: Path) -> None:
    log = TimerLog(tmp_path, 4096, Disk())
    first = Entry(-1, MESSAGE, 1794826160000, 1000, 0, 294, string_hash("timed"))
    second = Entry(0, MESSAGE, 1794826160000, 1000, 294, 294, string_hash("timed"))
    assert [log.append(first), log.append(second)] == [0, 52]
    content = (tmp_path / f"{0:020d}").read_bytes()
    assert content[52 : 52 + 44] == THEIR_ENTRY[:44]
    assert content[52 + 44 : 104] != bytes(8)
    assert not any(content[104:])
    assert log.entry(52) == second
    assert second.due_ms == 1794826161000


def test_entries_of_rocketmq_are_read_when_they_are_expected(tmp_path: Path) -> None:
    first = THEIR_ENTRY[:4] + b"\xff" * 8 + THEIR_ENTRY[12:]
    recall_of_first = THEIR_RECALL[:4] + bytes(8) + THEIR_RECALL[12:]
    (tmp_path / f"{0:020d}").write_bytes((first + recall_of_first).ljust(4096, b"\0"))
    log = TimerLog(tmp_path, 4096, Disk())
    log.load()
    (_, entry), (_, recall) = log.scan(0, 4096, foreign=True)
    assert (entry.due_ms, entry.offset, entry.size, entry.kind) == (1794826161000, 294, 294, 1)
    assert (recall.due_ms, recall.kind) == (1794826185000, MESSAGE | RECALL)
    assert list(log.scan(0, 4096)) == []


def test_a_log_goes_on_in_the_next_file_as_rocketmqs_does(tmp_path: Path) -> None:
    log = TimerLog(tmp_path, 1024, Disk())
    entry = Entry(-1, MESSAGE, 1000, 50, 7, 100, 3)
    positions = [log.append(entry) for _ in range(45)]
    # 19 entries and the 16 bytes of the mark fit into a file.
    assert positions[18:20] == [18 * 52, 1024]
    assert positions[38] == 2048
    mark = (tmp_path / f"{0:020d}").read_bytes()[19 * 52 : 19 * 52 + 16]
    assert mark == struct.pack(">iqi", 1024 - 19 * 52, 0, (0xBBCCDDEE ^ 1880681594) - 2**32)
    again = TimerLog(tmp_path, 1024, Disk())
    again.load()
    assert [position for position, _ in again.scan(0, 1 << 40)] == positions
    assert again.reaches(log.end)
    assert not again.reaches(4097)


def test_a_log_cut_off_goes_on_at_the_cut(tmp_path: Path) -> None:
    log = TimerLog(tmp_path, 1024, Disk())
    for n in range(45):
        log.append(Entry(-1, MESSAGE, 1000, n, 7, 100, 3))
    log.cut(20 * 52)  # Behind the mark of the first file.
    log.cut(5 * 52)
    assert log.append(Entry(-1, MESSAGE, 1000, 99, 7, 100, 3)) == 5 * 52
    delays = [entry.delay_ms for _, entry in log.scan(0, 1 << 40)]
    assert delays == [0, 1, 2, 3, 4, 99]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{0:020d}"]


@pytest.mark.parametrize("at", [0, 5, 13, 20, 30, 37, 41, 44, 51])
def test_a_damaged_entry_is_noticed_whichever_byte_it_is(tmp_path: Path, at: int) -> None:
    log = TimerLog(tmp_path, 1024, Disk())
    for n in range(3):
        log.append(Entry(n * 52 - 52 if n else -1, MESSAGE, 1000, n, 7, 100, 3))
    with (tmp_path / f"{0:020d}").open("r+b") as file:
        file.seek(52 + at)
        (byte,) = file.read(1)
        file.seek(52 + at)
        file.write(bytes([byte ^ 0x40]))
    with pytest.raises(DamagedTimers):
        log.entry(52)
    assert [position for position, _ in log.scan(0, 1 << 40)] == [0]
    assert log.entry(104) is not None


def test_files_go_when_the_log_has_deleted_their_messages(tmp_path: Path) -> None:
    log = TimerLog(tmp_path, 1024, Disk())
    for n in range(45):
        log.append(Entry(-1, MESSAGE, 1000, 50, n * 100, 100, 3))
    assert log.expire(1800) == 0
    assert log.expire(1801) == 1
    assert log.start == 1024
    assert log.entry(52) is None
    assert log.entry(1024) is not None
    assert log.expire(1 << 40) == 1  # The last one is written to.
    with pytest.raises(DamagedTimers):
        log.entry(1 << 40)


# -- the wheel -----------------------------------------------------------------------------------


def test_a_slot_stands_where_rocketmq_looks_for_it(tmp_path: Path) -> None:
    files = opened(tmp_path)
    for n in range(10):
        files.add(message(offset=n * 294), MESSAGE, 1794826161000 + n // 5 * 1000, 1794826160000)
    files.wheel.freeze()
    files.wheel.write()
    files.wheel.thaw(written=True)
    content = (tmp_path / "timerwheel").read_bytes()
    assert len(content) == FILE_BYTES == 38_707_200
    assert content[THEIR_SLOT_NUMBER * 32 :][:32] == THEIR_SLOT
    assert 1794826162 % SLOTS == THEIR_SLOT_NUMBER
    # Almost all of it is a hole.
    assert (tmp_path / "timerwheel").stat().st_blocks * 512 <= 256 * 1024


def test_recalls_count_against_messages(tmp_path: Path) -> None:
    files = opened(tmp_path)
    for kind in (MESSAGE, MESSAGE, MESSAGE | RECALL):
        files.add(message(), kind, 5000, 1000)
    slot = files.wheel.slot(5)
    assert slot == Slot(5, 0, 104, 1, 1)
    assert slot.entries == 3
    assert files.wheel.entries_from(5) == 3
    assert files.wheel.entries_from(6) == 0


def test_slots_are_in_memory_until_they_are_written(tmp_path: Path) -> None:
    files = opened(tmp_path)
    wheel = files.wheel
    files.add(message(), MESSAGE, 5000, 1000)
    wheel.freeze()
    files.add(message(), MESSAGE, 5000, 1000)
    files.add(message(), MESSAGE, 7000, 1000)
    assert wheel.changes == 3
    assert wheel.slot(5) == Slot(5, 0, 52, 2, 0)
    assert wheel.entries_from(0) == 3
    wheel.write()
    wheel.thaw(written=True)
    assert wheel.changes == 2
    assert wheel.entries_from(0) == 3
    wheel.freeze()
    wheel.thaw(written=False)
    assert wheel.changes == 2
    wheel.freeze()
    wheel.write()
    wheel.thaw(written=True)
    again = Wheel(tmp_path / "timerwheel", Disk())
    again.open()
    assert (again.slot(5), again.slot(7)) == (Slot(5, 0, 52, 2, 0), Slot(7, 104, 104, 1, 0))
    assert again.slot(5 + SLOTS) is None
    assert again.slot(6) is None
    assert [again.next_used(second, 9) for second in (1, 5, 6, 8)] == [5, 5, 7, 9]


def test_a_wheel_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "timerwheel").write_bytes(bytes(100))
    with pytest.raises(StoreMismatch):
        Wheel(tmp_path / "timerwheel", Disk()).open()
    with pytest.raises(FileNotFoundError):
        Wheel(tmp_path / "elsewhere", Disk()).open()


def test_blocks_are_asked_for_before_a_slot_is_written(tmp_path: Path) -> None:
    class NoBlocks(Disk):
        def reserve(self, fd: int, start: int, size: int) -> None:
            raise OSError(errno.ENOSPC, "no space")

    wheel = Wheel(tmp_path / "timerwheel", NoBlocks())
    wheel.create()
    wheel.put(Slot(5, 0, 0, 1, 0))
    wheel.freeze()
    with pytest.raises(OSError, match="no space"):
        wheel.write()
    wheel.thaw(written=False)
    assert wheel.slot(5) == Slot(5, 0, 0, 1, 0)
    assert not any((tmp_path / "timerwheel").read_bytes())


# -- the checkpoint ------------------------------------------------------------------------------


OURS = Checkpoint(
    second_ms=1794826177000, timer_log_end=2132, queue_offset=41,
    version=DataVersion(0, 1794826177864, 14), progress=Progress(1794826177123, 9000, 40),
    entries=17,
)  # fmt: skip


def test_a_checkpoint_begins_as_rocketmqs() -> None:
    content = OURS.encode()
    assert len(content) == 4096
    assert content[:56] == THEIR_CHECKPOINT
    assert Checkpoint.decode(content) == OURS


def test_a_checkpoint_of_rocketmq_is_known_as_such() -> None:
    for content in (THEIR_CHECKPOINT, THEIR_CHECKPOINT.ljust(4096, b"\0")):
        found = Checkpoint.decode(content)
        assert found is not None
        assert found.progress is None
        assert (found.second_ms, found.timer_log_end, found.queue_offset) == (
            1794826177000,
            2132,
            41,
        )


def test_a_checkpoint_that_rocketmq_has_moved_on_is_known_as_such() -> None:
    content = bytearray(OURS.encode())
    struct.pack_into(">7q", content, 0, 1794826200000, 5200, 60, 60, 0, 1794826200500, 20)
    found = Checkpoint.decode(bytes(content))
    assert found is not None
    assert (found.progress, found.queue_offset) == (None, 60)


def test_a_damaged_checkpoint_is_none_whichever_byte_it_is() -> None:
    content = OURS.encode()
    for at in (*range(48), *range(64, 112)):
        damaged = bytearray(content)
        damaged[at] ^= 1
        assert Checkpoint.decode(bytes(damaged)) is None, at
    for short in (b"", b"x", bytes(56), bytes(4096)):
        assert Checkpoint.decode(short) is None


# -- memory --------------------------------------------------------------------------------------


def test_a_second_hands_out_by_millisecond_and_position() -> None:
    slot = DueSlot(1, 400)
    for position, millisecond in ((400, 5), (300, 9), (200, 5), (100, 0)):
        slot.add_older(millisecond, position)
    slot.add_newer(5, 500)
    found = []
    while (head := slot.head()) is not None:
        found.append(head)
        slot.pop()
        if head == (5, 400):
            slot.add_newer(5, 600)
    assert found == [(0, 100), (5, 200), (5, 400), (5, 500), (5, 600), (9, 300)]
    assert len(slot) == 0
    assert slot.rest(0) is None


@pytest.mark.parametrize("kinds", [1, 3, 1000])
def test_a_second_too_large_for_memory_is_handed_out_part_by_part(
    monkeypatch: pytest.MonkeyPatch, kinds: int
) -> None:
    monkeypatch.setattr("cometmq.broker.timers.due_slot.ENTRIES_MAX", 10)
    chance = random.Random(kinds)
    entries = [(chance.randrange(kinds), position) for position in range(0, 10_000, 52)]
    found, slot = [], DueSlot(1, 0)
    while True:
        for millisecond, position in reversed(entries):
            slot.add_older(millisecond, position)
            assert len(slot) < 20
        while (head := slot.head()) is not None:
            found.append(head)
            slot.pop()
        rest = slot.rest(0)
        if rest is None:
            break
        slot = rest
    assert found == sorted(entries)


def test_what_joins_a_second_that_is_read_in_parts_comes_in_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cometmq.broker.timers.due_slot.ENTRIES_MAX", 2)
    slot = DueSlot(1, 0)
    for position, millisecond in ((400, 900), (300, 800), (200, 700), (100, 600)):
        slot.add_older(millisecond, position)
    for _ in range(2):
        slot.pop()
        slot.head()
    assert slot.head() is None
    rest = slot.rest(400)
    assert rest is not None
    rest.add_newer(750, 500)  # Before what is yet to be read.
    rest.add_older(900, 400)
    rest.add_older(800, 300)
    rest.add_older(700, 200)  # Delivered already.
    found = []
    while (head := rest.head()) is not None:
        found.append(head)
        rest.pop()
    assert found == [(750, 500), (800, 300), (900, 400)]


def test_marks_are_of_their_queue_only() -> None:
    marks = Marks(100, 120)
    assert [marks.add(offset) for offset in (100, 119, 119, 99, 120)] == [True, True, *[False] * 3]
    assert [offset for offset in range(90, 130) if offset in marks] == [100, 119]
    assert marks.count == 2
    assert 5 not in Marks(0, 0)


# -- times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "due_ms"),
    [
        # Ours: the last millisecond before.
        ({"TIMER_OUT_MS": 1_700_000_004_999, "TIMER_DELIVER_MS": 1_700_000_005_000}, 5000),
        ({"TIMER_OUT_MS": 1_700_000_005_299, "TIMER_DELAY_MS": 4900}, 5300),
        ({"TIMER_OUT_MS": 1_700_000_005_000, "TIMER_DELIVER_MS": 1_700_000_005_001}, 5001),
        # RocketMQ's: the last second before; it took the message at ..000.350.
        ({"TIMER_OUT_MS": 1_700_000_004_000, "TIMER_DELIVER_MS": 1_700_000_005_000}, 5000),
        ({"TIMER_OUT_MS": 1_700_000_005_000, "TIMER_DELIVER_MS": 1_700_000_005_300}, 5300),
        ({"TIMER_OUT_MS": 1_700_000_005_000, "TIMER_DELAY_SEC": 5}, 5400),
        ({"TIMER_OUT_MS": 1_700_000_005_000, "TIMER_DELAY_MS": 4999}, 5399),
        ({"TIMER_OUT_MS": 1_700_000_005_000, "TIMER_DELAY_MS": 999_999}, 6000),
        ({"TIMER_OUT_MS": 1_700_000_005_000}, 5001),
    ],
)
def test_nothing_is_due_before_its_sender_wanted(properties: dict[str, int], due_ms: int) -> None:
    assert due_time(message(**properties)) == 1_700_000_000_000 + due_ms


@pytest.mark.parametrize("text", ["", "x", "1e9", "9" * 20])
def test_a_time_that_cannot_be_read_is_none(text: str) -> None:
    properties = b"TIMER_OUT_MS\x01" + text.encode() + b"\x02"
    assert due_time(msgspec.structs.replace(message(), properties=properties)) is None
