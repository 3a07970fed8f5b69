"""`format("rocketmq-log")`: a store's files as rows, whatever its broker does meanwhile."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.client.blocking import Admin, Producer
from cometmq.client.names import Message as SentMessage
from cometmq.protocol.compression import UNPACKED_BYTES_MAX, compress
from cometmq.protocol.flags import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    INNER_BATCH,
    NEED_UNWRAP,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from cometmq.protocol.host import Host, pack_host
from cometmq.protocol.layout import ENTRY_BYTES
from cometmq.protocol.message import Message, StoredMessage
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.names import HALF_TOPIC
from cometmq.spark.arrow import ROWS_MAX
from cometmq.spark.errors import BadOption, DataLost, NotReady, Unreadable
from cometmq.spark.log.files import LocalFile, files_at
from cometmq.spark.log.options import read_log_options
from cometmq.spark.log.reading import read_part
from cometmq.store.message_store import MessageStore
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker, MovableClock
from tests.protocol.records import encoded, end_marker, simple
from tests.protocol.rocketmq_bytes import SEALED_RECORDS
from tests.store.stores import fill, numbered, small_config

from .log_stores import (
    ALL_COLUMNS,
    as_row,
    filled,
    log_files,
    planned,
    rows,
    rows_of,
    stored,
    values_of,
    with_messages,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_BYTES = 64 * 1024


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed: 1000 messages in a few files."""
    return filled(tmp_path_factory.mktemp("log") / "store")


def offsets(found: list[dict[str, Any]]) -> list[int]:
    return [row["physicalOffset"] for row in found]


def bodies(found: list[dict[str, Any]]) -> list[bytes | None]:
    return [row["body"] for row in found]


# -- what is read --------------------------------------------------------------------------------


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "unsealed"])
def test_every_message_of_a_store_is_a_row(tmp_path: Path, sealed: bool) -> None:
    root = filled(tmp_path, 700, seal_records=sealed)
    assert len(log_files(root)) > 2
    expected = [as_row(message, "b") for message in stored(root)]
    assert len(expected) == 700
    assert rows(root, brokerName="b") == expected


def test_the_logs_own_directory_will_do(store: Path) -> None:
    assert rows(store / "commitlog") == rows(store)


def test_an_empty_store_has_no_rows(tmp_path: Path) -> None:
    assert rows(filled(tmp_path, 0)) == []


def test_packed_bodies_are_unpacked_and_addresses_are_texts(tmp_path: Path) -> None:
    kinds = (COMPRESSION_ZLIB, COMPRESSION_LZ4, COMPRESSION_ZSTD)
    packed = [compress(b"body %d " % kind * 50, kind) for kind in kinds]
    host = pack_host("2001:db8::1", 4001)
    messages = [Message("orders", 0, body, sys_flag=flag, born_host=host) for body, flag in packed]
    with MessageStore(small_config(tmp_path), host=Host("fd00::7", 10911)) as writer:
        writer.append_all([*messages, Message("orders", 0, b"plain")])
    found = rows(tmp_path)
    assert bodies(found) == [*(b"body %d " % kind * 50 for kind in kinds), b"plain"]
    assert [row["bornHost"] for row in found] == [*["[2001:db8::1]:4001"] * 3, "127.0.0.1:0"]
    assert {row["storeHost"] for row in found} == {"[fd00::7]:10911"}
    assert found == [as_row(message) for message in stored(tmp_path)]


def test_a_record_may_be_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    long = [os.urandom(size) for size in (3 << 20, 1, 1 << 20, (256 << 10) - 1)]
    root = with_messages(
        tmp_path,
        *(Message("orders", 0, body) for body in long),
        commit_log_file_bytes=8 << 20,
    )
    assert bodies(rows(root)) == long
    assert bodies(rows(root, maxBytesPerPartition=1)) == long


def test_many_small_records_make_several_batches(tmp_path: Path) -> None:
    many = [Message("orders", 0, b"%d" % number) for number in range(2 * ROWS_MAX)]
    root = with_messages(tmp_path, *many, commit_log_file_bytes=64 << 20)
    options = read_log_options({"path": str(root)})
    (part,) = planned(root)
    sizes = [batch.num_rows for batch in read_part(options, part, ["body"])]
    assert sum(sizes) == len(many)
    assert all(size >= ROWS_MAX for size in sizes[:-1])


def test_files_of_rocketmq_are_read(tmp_path: Path) -> None:
    """Made ahead in full length, filled up with a marker behind which anything may stand."""
    first, second = tmp_path / "commitlog" / ("0" * 20), tmp_path / "commitlog" / f"{1 << 30:020d}"
    first.parent.mkdir()
    for path in (first, second):
        path.touch()
        os.truncate(path, 1 << 30)
    with first.open("r+b") as file:
        file.write(b"".join(SEALED_RECORDS) + end_marker((1 << 30) - 1500) + b"\xda\xa3\x20\xa7")
    found = rows(tmp_path, includeUncommitted="true")
    assert [len(row["body"]) for row in found] == [
        int.from_bytes(record[offset : offset + 4], "big")
        for record in SEALED_RECORDS
        for offset in [84 + 12 * (record[39] >> 4 & 1) + 12 * (record[39] >> 5 & 1)]
    ]
    assert found[0]["body"] == b"hello sealed"
    assert (found[0]["keys"], found[0]["tags"]) == ("k1 k2", "TagA")
    assert found[1]["bornHost"] == "[2001:db8::1]:40001"


# -- ranges --------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    partition_bytes=st.one_of(st.integers(1, 2000), st.integers(2000, 400_000)),
    start=st.one_of(st.none(), st.integers(0, 5 * FILE_BYTES)),
    end=st.one_of(st.none(), st.integers(0, 5 * FILE_BYTES)),
    has_queues=st.booleans(),
)
def test_every_record_is_in_exactly_one_range(
    store: Path,
    without_queues: Path,
    messages: list[StoredMessage],
    partition_bytes: int,
    start: int | None,
    end: int | None,
    has_queues: bool,
) -> None:
    given_ones = {"startingOffset": start, "endingOffset": end}
    options = {name: value for name, value in given_ones.items() if value is not None}
    options["maxBytesPerPartition"] = partition_bytes
    root = store if has_queues else without_queues
    parts = planned(root, **options)
    expected = [
        message.physical_offset
        for message in messages
        if (start or 0) <= message.physical_offset < (2**63 if end is None else end)
    ]
    assert values_of(root, parts, "physicalOffset", **options) == expected
    ranges = [one for part in parts for one in part]
    assert [(one.start, one.end) for one in ranges] == sorted((r.start, r.end) for r in ranges)


@pytest.fixture(scope="module")
def messages(store: Path) -> list[StoredMessage]:
    return list(stored(store))


@pytest.fixture(scope="module")
def without_queues(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("log") / "without-queues"
    shutil.copytree(store / "commitlog", root / "commitlog")
    return root


def test_a_large_file_is_read_in_parts_of_about_the_size_that_is_asked_for(store: Path) -> None:
    whole = planned(store)
    parts = planned(store, maxBytesPerPartition=10_000)
    assert len(whole) == 1
    assert 15 < len(parts) < 60
    assert all(sum(one.size for one in part) < 14_000 for part in parts)


def test_offsets_and_times_choose_rows(tmp_path: Path) -> None:
    clock = MovableClock()
    with MessageStore(small_config(tmp_path), clock=clock) as writer:
        for hour in range(6):
            fill(writer, 200, first=200 * hour)
            clock.advance(3_600_000)
    everything = rows(tmp_path)
    times = [int(row["storeTimestamp"].timestamp() * 1000) for row in everything]
    begin, end = times[400], times[800]
    chosen = rows(tmp_path, startingTimestamp=begin, endingTimestamp=end)
    assert bodies(chosen) == [b"message %d " % number for number in range(400, 800)]
    files = {one.segment for part in planned(tmp_path, startingTimestamp=begin) for one in part}
    assert 0 < len(files) < len([path for path in log_files(tmp_path) if any(path.read_bytes())])


# -- topics and queues ---------------------------------------------------------------------------


def of_topics(root: Path, *topics: str) -> list[dict[str, Any]]:
    return [as_row(message) for message in stored(root) if message.topic in topics]


def test_topics_and_queues_choose_rows(store: Path, without_queues: Path) -> None:
    for root in (store, without_queues):
        assert rows(root, topic="orders") == of_topics(root, "orders")
        both = rows(root, topics="orders, %RETRY%billing")
        assert both == of_topics(root, "orders", "%RETRY%billing")
        assert rows(root, topic="nothing") == []
        one_queue = [row for row in of_topics(root, "orders") if row["queueId"] in (1, 3)]
        assert rows(root, topic="orders", queues="1,3") == one_queue


def with_a_rare_topic(root: Path) -> Path:
    """Four messages of it, far apart among many others."""
    with MessageStore(small_config(root, commit_log_file_bytes=4 << 20)) as writer:
        for number in range(8):
            writer.append(Message("rare", number % 2, b"rare %d" % number))
            writer.append_all([Message("often", 0, bytes(5000)) for _ in range(300)])
            writer.dispatch()
    return root


def test_of_a_rare_topic_only_the_needed_parts_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cometmq.spark.log.ranges.ENTRIES_LATE_MS", 0)  # As if stored long ago.
    root = with_a_rare_topic(tmp_path)
    assert bodies(rows(root, topic="rare")) == [b"rare %d" % number for number in range(8)]
    *_, tail = planned(root)[-1]
    earlier = [
        one
        for part in planned(root, topic="rare")
        for one in part
        if one.segment.base < tail.segment.base
    ]
    # Of each other file a record or a few, of which each has its neighbours left out.
    assert earlier
    assert sum(one.size for one in earlier) < 5000
    one_queue = planned(root, topic="rare", queues="1")
    assert bodies(rows_of(root, one_queue, topic="rare", queues="1")) == [
        b"rare 1", b"rare 3", b"rare 5", b"rare 7",
    ]  # fmt: skip


def test_entries_that_a_power_cut_took_from_one_queue_and_not_from_others_are_not_missed(
    tmp_path: Path,
) -> None:
    root = with_a_rare_topic(tmp_path)
    (entries,) = (root / "consumequeue" / "rare" / "0").iterdir()
    with entries.open("r+b") as file:
        file.seek(2 * ENTRY_BYTES)
        file.write(bytes(entries.stat().st_size - 2 * ENTRY_BYTES))
    assert bodies(rows(root, topic="rare")) == [b"rare %d" % number for number in range(8)]


def test_messages_of_a_deleted_topic_are_still_read(tmp_path: Path) -> None:
    root = with_a_rare_topic(tmp_path)
    with MessageStore(small_config(root, commit_log_file_bytes=4 << 20)) as writer:
        writer.delete_topic("rare")
    expected = [b"rare %d" % number for number in range(8)]
    assert bodies(rows(root, topic="rare")) == expected
    with MessageStore(small_config(root, commit_log_file_bytes=4 << 20)) as writer:
        writer.append(Message("rare", 0, b"made anew"))
        writer.append_all([Message("often", 0, bytes(5000)) for _ in range(2000)])
        writer.dispatch()
    assert bodies(rows(root, topic="rare")) == [*expected, b"made anew"]


def test_what_is_not_committed_is_left_out_unless_it_is_asked_for(tmp_path: Path) -> None:
    flags = (0, TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK)
    root = with_messages(
        tmp_path,
        *(Message("orders", 0, b"flag %d" % flag, sys_flag=flag) for flag in flags),
        Message(HALF_TOPIC, 0, b"half"),
    )
    committed = [b"flag 0", b"flag 8"]
    assert bodies(rows(root)) == committed
    assert bodies(rows(root, topic="orders")) == committed
    everything = [b"flag 0", b"flag 4", b"flag 8", b"flag 12", b"half"]
    assert bodies(rows(root, includeUncommitted="true")) == everything
    assert bodies(rows(root, topic=HALF_TOPIC)) == [b"half"]


# -- while a broker writes -----------------------------------------------------------------------


def test_only_whole_records_are_read_at_the_logs_end(tmp_path: Path) -> None:
    root = filled(tmp_path, 10)
    (path,) = log_files(root)[:1]
    end = end_of(root)
    record = encoded(simple(properties=b"TAGS\x01new\x02"), physical_offset=end)
    for written in (*range(0, len(record), 7), len(record) - 1):
        with path.open("r+b") as file:
            file.seek(end)
            file.write(record[:written].ljust(len(record), b"\0"))
        assert len(rows(root)) == 10
    with path.open("r+b") as file:
        file.seek(end)
        file.write(record)
    assert [row["tags"] for row in rows(root)][10:] == ["new"]


def test_a_record_that_is_completed_after_planning_belongs_to_the_next_read(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path)) as writer:
        fill(writer, 300)
        before = planned(tmp_path)
        fill(writer, 300, first=300)
        assert len(rows_of(tmp_path, before)) == 300
        assert len(rows(tmp_path)) == 600


def end_of(root: Path) -> int:
    return max(message.physical_offset + message.size for message in stored(root))


@pytest.mark.parametrize("there", [4, 40, 100], ids=["size", "head", "nearly all"])
@pytest.mark.parametrize("has_queues", [True, False], ids=["with queues", "without"])
def test_a_record_that_was_half_written_when_a_read_was_planned_is_never_part_of_it(
    tmp_path: Path, there: int, has_queues: bool
) -> None:
    root = filled(tmp_path, 10)
    path, end = log_files(root)[0], end_of(root)
    if not has_queues:
        shutil.rmtree(root / "consumequeue")
    first = encoded(simple(), physical_offset=end)
    second = encoded(simple(), physical_offset=end + len(first))
    damage(path, end, first[:there])
    before = planned(root)
    assert len(rows_of(root, before)) == 10
    damage(path, end, first + second)
    assert len(rows_of(root, before)) == 10
    assert len(rows(root)) == 12


@pytest.fixture
def writing(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that fills a store as fast as it can."""
    command = [sys.executable, "-m", "tests.store.writer", str(tmp_path / "store"), "async"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate(timeout=30)


@pytest.mark.timeout(120)
def test_each_read_beside_a_writer_sees_the_log_up_to_a_moment(
    tmp_path: Path, writing: "subprocess.Popen[str]"
) -> None:
    assert writing.stdout is not None
    chance = random.Random(1)
    for _ in range(20):
        for _ in range(chance.randrange(8, 200)):
            acknowledged = int(writing.stdout.readline())
        parts = planned(tmp_path / "store", maxBytesPerPartition=chance.randrange(1000, 100_000))
        found = values_of(tmp_path / "store", parts, "body")
        assert len(found) > acknowledged
        assert found == [numbered(number).body for number in range(len(found))]


# -- while files go away -------------------------------------------------------------------------


def test_a_file_deleted_before_it_is_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    root = filled(tmp_path, 1000)
    parts = planned(root, maxBytesPerPartition=1)
    first, second, *_ = log_files(root)
    first.unlink()
    with pytest.raises(DataLost, match=f"{first} was deleted before offsets 0 to .*failOnDataLoss"):
        rows_of(root, parts)
    left = rows_of(root, parts, failOnDataLoss="false")
    assert left == [as_row(message) for message in stored(root)]
    assert left[0]["physicalOffset"] == FILE_BYTES
    assert second.exists()


def test_a_file_deleted_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    root = with_messages(
        tmp_path,
        *(Message("orders", 0, bytes(10_000) + b"%d" % number) for number in range(8000)),
        commit_log_file_bytes=128 << 20,
    )
    options = read_log_options({"path": str(root)})
    (part,) = planned(root)
    batches = read_part(options, part, ["body"])
    first = next(batches).num_rows
    for path in log_files(root):
        path.unlink()
    assert 0 < first < 8000
    assert first + sum(batch.num_rows for batch in batches) == 8000


def test_a_log_with_a_gap_or_without_its_beginning_is_told(tmp_path: Path) -> None:
    root = filled(tmp_path, 1000)
    first, second, *_ = log_files(root)
    second.unlink()
    with pytest.raises(DataLost, match=f"no file for offsets {FILE_BYTES} to {2 * FILE_BYTES}"):
        rows(root)
    left = rows(root, failOnDataLoss="false")
    assert left == [as_row(message) for message in stored(root)]
    first.unlink()
    # What retention took before is no loss, unless it is asked for.
    assert offsets(rows(root))[0] == 2 * FILE_BYTES
    with pytest.raises(DataLost, match=f"no file for offsets 5 to {2 * FILE_BYTES}"):
        rows(root, startingOffset=5)


# -- damage --------------------------------------------------------------------------------------


def damage(path: Path, at: int, new: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(new)


@pytest.mark.parametrize(
    ("at", "new"),
    [(100, b"\xff"), (0, b"\x7f"), (4, b"\0\0\0\0"), (28, b"\xff"), (0, bytes(120))],
    ids=["content", "size", "magic", "offset", "zeros"],
)
@pytest.mark.parametrize("file_number", [0, -1], ids=["earlier file", "last file"])
@pytest.mark.parametrize("has_queues", [True, False], ids=["with queues", "without"])
def test_a_damaged_record_is_an_error_or_left_out(
    tmp_path: Path, at: int, new: bytes, file_number: int, has_queues: bool
) -> None:
    root = filled(tmp_path, 600)
    written = [path for path in log_files(root) if any(path.read_bytes()[:8])]
    path = written[file_number]
    expected = [as_row(message) for message in stored(root)]
    base = int(path.name)
    victim = [row for row in expected if row["physicalOffset"] >= base][3]
    offset = victim["physicalOffset"]
    damage(path, offset - base + at, new)
    if not has_queues:
        shutil.rmtree(root / "consumequeue")
    with pytest.raises(Unreadable, match=f"{path}: no whole record at physical offset {offset}: "):
        rows(root)
    kept = [row for row in expected if row["physicalOffset"] != offset]
    assert rows(root, tolerateDamage="true") == kept
    assert rows(root, tolerateDamage="true", maxBytesPerPartition=2000) == kept


@pytest.mark.parametrize("has_queues", [True, False], ids=["with queues", "without"])
def test_a_last_file_that_begins_with_zeros_is_damaged_when_records_follow(
    tmp_path: Path, has_queues: bool
) -> None:
    root = filled(tmp_path, 600)
    path = [path for path in log_files(root) if any(path.read_bytes()[:8])][-1]
    expected = [as_row(message) for message in stored(root)]
    lost = [row for row in expected if row["physicalOffset"] >= int(path.name)][:2]
    end = lost[-1]["physicalOffset"] + 50
    damage(path, 0, bytes(end - int(path.name)))
    if not has_queues:
        shutil.rmtree(root / "consumequeue")
    with pytest.raises(Unreadable, match=f"{path}: no whole record at physical offset "):
        rows(root)
    assert rows(root, tolerateDamage="true") == [row for row in expected if row not in lost]


@pytest.mark.parametrize("has_queues", [True, False], ids=["with queues", "without"])
def test_a_damaged_record_may_be_longer_than_a_read_looks_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_queues: bool
) -> None:
    """Its queue has no entry for it, nor for the one behind it."""
    monkeypatch.setattr("cometmq.spark.log.ranges.LOOK_BYTES", 1000)
    root = filled(tmp_path, 10)
    path, end = log_files(root)[0], end_of(root)
    large = encoded(Message("orders", 0, bytes(5000)), physical_offset=end)
    behind = encoded(simple(properties=b"TAGS\x01behind\x02"), physical_offset=end + len(large))
    damage(path, end - int(path.name), large + behind)
    damage(path, end - int(path.name) + 3000, b"\xff")
    if not has_queues:
        shutil.rmtree(root / "consumequeue")
    with pytest.raises(Unreadable, match=f"no whole record at physical offset {end}: "):
        rows(root)
    assert [row["tags"] for row in rows(root, tolerateDamage="true")][10:] == ["behind"]


def test_what_is_cut_off_between_plan_and_read_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = filled(tmp_path, 10)
    parts, expected = planned(root), rows(root)
    last, end = expected[-1]["physicalOffset"], end_of(root)
    damage(log_files(root)[0], last, bytes(end - last))
    assert rows_of(root, parts) == expected[:-1]
    assert f"offsets {last} to {end} is not there any more" in caplog.text


@pytest.mark.parametrize("has_queues", [True, False], ids=["with queues", "without"])
def test_a_read_may_begin_behind_zeros(tmp_path: Path, has_queues: bool) -> None:
    root = filled(tmp_path, 100)
    expected = [as_row(message) for message in stored(root)]
    damage(log_files(root)[0], expected[20]["physicalOffset"], bytes(200))
    if not has_queues:
        shutil.rmtree(root / "consumequeue")
    assert rows(root, startingOffset=expected[50]["physicalOffset"]) == expected[50:]
    assert rows(root, endingOffset=expected[20]["physicalOffset"]) == expected[:20]


class FewBytes:
    """How much of local files is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read = 0
        read_into = LocalFile.read_into

        def counted(file: LocalFile, position: int, buffer: memoryview) -> int:
            got = read_into(file, position, buffer)
            self.read += got
            return got

        monkeypatch.setattr(LocalFile, "read_into", counted)


@pytest.mark.parametrize("torn", [b"", b"\x00\x00\x01\x00torn"], ids=["whole", "torn"])
@pytest.mark.parametrize("has_queues", [True, False], ids=["with queues", "without"])
def test_what_nobody_wrote_yet_of_a_file_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: bytes, has_queues: bool
) -> None:
    root = filled(tmp_path, 100, commit_log_file_bytes=1 << 30)
    # Not `end_of`, which reads the whole file: pages in memory count as data.
    damage(log_files(root)[0], planned(root)[-1][-1].end, torn)
    if has_queues:  # Without holes: as a copy has it.
        monkeypatch.setattr(LocalFile, "data_ranges", lambda _, start, end: [(start, end)])
    else:
        shutil.rmtree(root / "consumequeue")
    reads = FewBytes(monkeypatch)
    assert len(rows(root)) == 100
    assert reads.read < 64 << 20


def test_the_last_record_before_an_ending_offset_is_not_taken_for_an_unfinished_one(
    tmp_path: Path,
) -> None:
    root = filled(tmp_path, 20)
    victim, following = list(stored(root))[10:12]
    damage(log_files(root)[0], victim.physical_offset + 100, b"\xff")
    with pytest.raises(Unreadable, match=f"physical offset {victim.physical_offset}: "):
        rows(root, endingOffset=following.physical_offset)
    assert len(rows(root, endingOffset=victim.physical_offset)) == 10


def test_a_file_that_was_cut_off_is_damaged(tmp_path: Path) -> None:
    root = filled(tmp_path, 1000)
    left = [
        as_row(message)
        for message in stored(root)
        if not 30_000 < message.physical_offset + message.size <= FILE_BYTES
    ]
    os.truncate(log_files(root)[0], 30_000)
    with pytest.raises(DataLost, match="no file for offsets 30000"):
        rows(root)
    with pytest.raises(Unreadable, match="its size field reaches beyond the data"):
        rows(root, failOnDataLoss="false")
    assert rows(root, failOnDataLoss="false", tolerateDamage="true") == left


# -- messages that are whole but cannot be read ----------------------------------------------------


@pytest.mark.parametrize(
    ("body", "flag"),
    [
        (b"no zlib", COMPRESSED),
        (b"no lz4", COMPRESSED | COMPRESSION_LZ4),
        (b"no zstd", COMPRESSED | COMPRESSION_ZSTD),
        (b"of a kind that nobody knows", COMPRESSED | 0x700),
        (compress(bytes(UNPACKED_BYTES_MAX + 1))[0], COMPRESSED),
    ],
    ids=["zlib", "lz4", "zstd", "unknown", "too large"],
)
def test_a_body_that_cannot_be_unpacked_is_an_error_or_null(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, body: bytes, flag: int
) -> None:
    plain = [Message("orders", 3, b"%d" % number) for number in range(5)]
    odd = Message("orders", 3, body, sys_flag=flag)
    root = with_messages(tmp_path, *plain, odd, *plain, commit_log_file_bytes=1 << 20)
    place = "topic orders, queue 3, offset 5, physical offset "
    with pytest.raises(Unreadable, match=f"{root}: {place}.*compress.*; tolerateDamage=true has"):
        rows(root)
    sent: list[bytes | None] = [one.body for one in plain]
    assert bodies(rows(root, tolerateDamage="true")) == [*sent, None, *sent]
    assert place in caplog.text
    assert "its body is null" in caplog.text
    assert len(values_of(root, planned(root), "queueOffset")) == 11


def test_a_record_that_is_a_whole_batch_is_an_error_or_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = Message("orders", 0, b"plain")
    odd = Message("orders", 0, b"many", sys_flag=INNER_BATCH | NEED_UNWRAP | COMPRESSED)
    root = with_messages(tmp_path, plain, odd, plain)
    with pytest.raises(Unreadable, match=r"offset 1, .* a whole batch .*; tolerateDamage=true"):
        rows(root)
    with pytest.raises(Unreadable, match=r"physical offset \d+: .* a whole batch"):
        values_of(root, planned(root), "queueOffset")
    assert [row["queueOffset"] for row in rows(root, tolerateDamage="true")] == [0, 2]
    assert "it is left out" in caplog.text


# -- places and options --------------------------------------------------------------------------


def test_a_store_may_lie_behind_a_url(store: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.put(str(store), "/brokers/a", recursive=True)
    for options in ({}, {"topic": "orders"}, {"startingOffset": 70_000}):
        expected = rows(store, **options)
        assert rows("memory://brokers/a", **options) == expected
        assert rows(f"file://{store}", **options) == expected
        assert rows(f"file:{store}", **options) == expected, "as Hadoop writes it"
    parts = planned("memory://brokers/a")
    memory.rm("/brokers/a/commitlog", recursive=True)
    with pytest.raises(DataLost, match=r"memory://brokers/a/commitlog/0{20} was deleted"):
        rows_of("memory://brokers/a", parts)


def test_a_url_needs_fsspec_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(NotReady, match=r"s3://bucket/store needs fsspec .*pip install fsspec"):
        files_at("s3://bucket/store")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "path is missing"),
        ({"path": "x", "startingTimestmp": "1"}, "did you mean startingTimestamp"),
        ({"path": "x", "topic": "a", "topics": "b"}, "topic and topics are both set"),
        ({"path": "x", "topic": " "}, "topic is empty"),
        ({"path": "x", "topic": "../etc"}, "only letters, digits"),
        ({"path": "x", "queues": "broker-a:0"}, "queues is a whole number"),
        ({"path": "x", "queues": ","}, "queues is empty"),
        ({"path": "x", "startingOffset": "-1"}, "startingOffset: physical offsets count from 0"),
        ({"path": "x", "maxBytesPerPartition": "0"}, "maxBytesPerPartition: 1 or more"),
        ({"path": "x", "tolerateDamage": "yes"}, "tolerateDamage is true or false"),
        ({"path": "x", "columns": "topic,size"}, "no column size"),
        ({"path": "x", "namesrvAddr": "127.0.0.1:9876"}, "unknown option namesrvAddr"),
    ],
)
def test_options_are_refused_by_name(options: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        read_log_options(options)


def test_a_directory_that_is_no_store_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=f"{tmp_path} is no store"):
        planned(tmp_path)


# -- with Spark ----------------------------------------------------------------------------------


def read(spark: "SparkSession", path: Path, **options: Any) -> "DataFrame":
    return spark.read.format("rocketmq-log").options(path=str(path), **options).load()


@pytest.fixture
def own_broker() -> Iterator[BlockingEmbeddedBroker]:
    """The log of the shared one has what all other tests sent: thousands of small partitions."""
    with EmbeddedBroker() as broker:
        yield broker


def test_spark_reads_what_a_broker_wrote_as_the_topic_source_does(
    spark: "SparkSession", own_broker: BlockingEmbeddedBroker
) -> None:
    broker = own_broker
    broker.create_topic("both-ways", 4)
    messages = []
    for number in range(300):
        message = SentMessage(
            "both-ways", b"%d " % number * (1 + number % 9 * 200), tags=f"tag-{number % 3}",
            keys=[f"key-{number}"], properties={"Größe": str(number)},
        )  # fmt: skip
        messages.append((message, MessageQueue("both-ways", "broker-a", number % 4)))
    with Producer(broker.namesrv, group="both-ways") as producer:
        for message, queue in messages:
            producer.send(message, queue=queue)
    columns = ",".join(ALL_COLUMNS)
    by_topic = (
        spark.read.format("rocketmq")
        .options(namesrvAddr=broker.namesrv, topic="both-ways", columns=columns)
        .load()
    )
    by_log = read(
        spark, broker.directory / "broker-a", topic="both-ways", columns=columns,
        brokerName="broker-a", maxBytesPerPartition=50_000,
    )  # fmt: skip
    assert by_log.rdd.getNumPartitions() > 1
    order = ["queueId", "queueOffset"]
    assert by_log.orderBy(order).collect() == by_topic.orderBy(order).collect()
    assert by_log.count() == 300


def test_the_rows_are_what_the_admin_sees(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, producer: Producer
) -> None:
    broker.create_topic("seen", 1)
    for number in range(20):
        producer.send(SentMessage("seen", b"%d" % number, keys=[f"key-{number}"]))
    by_log = read(spark, broker.directory / "broker-a", topic="seen").orderBy("queueOffset")
    with Admin(broker.namesrv) as admin:
        for row in by_log.collect():
            (viewed,) = admin.messages.by_key("seen", row["keys"])
            assert (viewed.message_id, viewed.body) == (row.msgId, bytes(row.body))
            assert viewed.queue_offset == row.queueOffset


def test_a_frame_can_be_used_again_and_again(spark: "SparkSession", store: Path) -> None:
    frame = read(spark, store, maxBytesPerPartition=20_000)
    assert frame.count() == 1000
    assert frame.where("topic = 'orders'").count() == 334
    assert frame.union(frame).count() == 2000
    joined = frame.alias("a").join(frame.alias("b"), ["topic", "queueId", "queueOffset"])
    assert joined.count() == 1000
    frame.createOrReplaceTempView("log_rows")
    (row,) = spark.sql(
        "select max(cast(split(string(body), ' ')[1] as int)) m from log_rows"
    ).collect()
    assert row.m == 999


def test_a_schema_of_some_columns_in_any_order_will_do(spark: "SparkSession", store: Path) -> None:
    frame = (
        spark.read.format("rocketmq-log")
        .schema("body binary, queueOffset bigint not null")
        .load(str(store))
    )
    assert frame.columns == ["body", "queueOffset"]
    assert sorted(bytes(row.body) for row in frame.collect())[0] == b"message 0 "
    with pytest.raises(Exception, match="no column size"):
        spark.read.format("rocketmq-log").schema("size int").load(str(store)).collect()


def test_an_empty_store_is_an_empty_frame(spark: "SparkSession", tmp_path: Path) -> None:
    frame = read(spark, filled(tmp_path, 0))
    assert frame.collect() == []


def test_a_file_deleted_under_a_frame_is_an_error_that_names_it(
    spark: "SparkSession", tmp_path: Path
) -> None:
    root = filled(tmp_path, 1000)
    parts = read(spark, root, maxBytesPerPartition=50_000)
    parts.rdd  # noqa: B018 - plans it
    log_files(root)[1].unlink()
    with pytest.raises(Exception, match="failOnDataLoss=false reads what is left"):
        parts.collect()
