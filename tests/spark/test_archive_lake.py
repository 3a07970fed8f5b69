"""Lakes without Spark and brokers: files, batches that come again, and death at every step."""

import errno
import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable
from pyspark import SparkContext

from cometmq.protocol.message_queue import MessageQueue
from cometmq.spark.errors import BadOption, ClusterAway, NotReady, SparkError
from cometmq.spark.pipelines.archive_bundles import BUNDLE_ROWS_MIN, bundled
from cometmq.spark.pipelines.failures import plain
from cometmq.spark.pipelines.lake import iceberg
from cometmq.spark.pipelines.lake.errors import LakeError
from cometmq.spark.pipelines.lake.lake import Lake
from cometmq.spark.pipelines.lake.lock import sole_writer
from cometmq.spark.pipelines.lake.place import Place
from cometmq.spark.pipelines.lake.records import BatchRecord, LakeFacts, Records
from cometmq.spark.topic.offsets import QueueRange

from .lake_batches import (
    COLUMNS,
    QUERY,
    TOPIC,
    batch_of,
    entry,
    offsets_in,
    on_disk,
    record,
    staged,
)
from .lakes import left_over, rows_in

__all__ = ["on_disk"]

NO_ICEBERG = importlib.util.find_spec("pyiceberg") is None
WITH_ICEBERG = pytest.mark.skipif(NO_ICEBERG, reason="no pyiceberg")
TABLES = ["delta", pytest.param("iceberg", marks=WITH_ICEBERG)]
FORMATS = ["parquet", *TABLES]
# -- files ---------------------------------------------------------------------------------------


def test_a_task_writes_a_file_for_each_day_and_says_what_is_in_it(tmp_path: Path) -> None:
    mixed = pa.Table.from_batches([batch_of(range(3)), batch_of(range(3, 5), day=20_001)])
    [rows] = mixed.combine_chunks().to_batches()
    files = staged(tmp_path, "parquet", 0, rows, batch_of(range(5, 7), day=20_001))
    assert [(file.date, file.rows) for file in files] == [("2024-10-04", 3), ("2024-10-05", 4)]
    for file in files:
        assert file.path.startswith(f"topic=%25RETRY%25orders/date={file.date}/part-0-")
        assert file.bytes == (tmp_path / file.staged).stat().st_size
        assert not file.staged.endswith("parquet")
    found = pyarrow.parquet.read_table(pa.BufferReader((tmp_path / files[1].staged).read_bytes()))
    assert found.column("queueOffset").to_pylist() == [3, 4, 5, 6]
    assert '"maxValues":{"queueId":0,"queueOffset":6' in files[1].stats


def test_a_task_that_meets_many_days_does_not_keep_all_files_open(tmp_path: Path) -> None:
    days = [*range(20_000, 20_010), 20_000]
    batches = [batch_of(range(n, n + 1), day=day) for n, day in enumerate(days)]
    files = staged(tmp_path, "parquet", 0, *batches)
    assert len(files) == 11, "the first day was closed, and began again"
    assert sum(file.rows for file in files) == 11
    assert len({file.path for file in files}) == 11


def test_a_batch_of_which_nothing_is_left_makes_no_file(tmp_path: Path) -> None:
    files = staged(tmp_path, "parquet", 0, batch_of(range(0)), batch_of(range(3)))
    assert [file.rows for file in files] == [3]
    assert staged(tmp_path, "parquet", 1, batch_of(range(0))) == []


def test_a_file_that_grows_large_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cometmq.spark.pipelines.archive_files.ROW_GROUP_ROWS_MAX", 10)
    monkeypatch.setattr("cometmq.spark.pipelines.archive_files.FILE_BYTES_MAX", 100)
    files = staged(tmp_path, "parquet", 0, *(batch_of(range(n, n + 10)) for n in (0, 10, 20)))
    assert [file.rows for file in files] == [10, 10, 10]


def test_small_ranges_of_a_topic_are_read_together_and_large_ones_alone() -> None:
    def part(topic: str, queue: int, size: int) -> QueueRange:
        return QueueRange(MessageQueue(topic, "broker-a", queue), 0, size)

    large = BUNDLE_ROWS_MIN
    ranges = [part("a", 0, 10), part("a", 1, large), part("a", 2, 5), part("b", 0, 1)]
    assert bundled(ranges) == [ranges[:2], ranges[2:3], ranges[3:]]
    assert bundled([]) == []


# -- batches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_batch_that_comes_again_changes_nothing(tmp_path: Path, format_name: str) -> None:
    lake = Lake(str(tmp_path), format_name, COLUMNS)
    for batch in range(3):
        lake.commit(record(tmp_path, format_name, batch))
    Lake(str(tmp_path), format_name, COLUMNS).commit(record(tmp_path, format_name, 2))
    assert offsets_in(tmp_path, format_name) == list(range(30))
    assert set(rows_in(tmp_path, format_name).column("topic").to_pylist()) == {TOPIC}
    assert not left_over(tmp_path)


class Died(Exception):
    pass


class Mortal:
    """Dies before or after its nth change to the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lake: Lake, step: int, *, after: bool):
        self._step, self._after = step, after
        self.is_dead = False
        for name in ("write", "move", "sync_directories", "remove"):
            monkeypatch.setattr(lake.place, name, self._counted(getattr(lake.place, name)))
        monkeypatch.setattr(lake._table, "add", self._counted(lake._table.add))

    def _counted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any) -> Any:
            self._step -= 1
            self.is_dead |= self._step < 0
            if self.is_dead and not (self._after and self._step == -1):
                raise Died
            done = change(*given)
            if self.is_dead:
                raise Died
            return done

        return counted


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("format_name", FORMATS)
def test_a_driver_may_die_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_name: str, after: bool
) -> None:
    for step in range(100):
        root = tmp_path / str(step)
        Lake(str(root), format_name, COLUMNS).commit(record(root, format_name, 0))
        lake = Lake(str(root), format_name, COLUMNS)
        with monkeypatch.context() as patched:
            mortal = Mortal(patched, lake, step, after=after)
            try:
                lake.commit(record(root, format_name, 1))
            except Died:
                pass
            else:
                break
        seen = offsets_in(root, format_name)
        assert len(seen) == len(set(seen)), "nothing is there twice, not even for a moment"
        Lake(str(root), format_name, COLUMNS).commit(record(root, format_name, 1))
        assert offsets_in(root, format_name) == list(range(20)), f"died at step {step}"
        assert not left_over(root)
    assert step >= 6, "it died less often than it has steps"
    assert not mortal.is_dead


@pytest.mark.parametrize("format_name", FORMATS)
def test_how_far_a_lake_is_tells_the_last_batch_that_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_name: str
) -> None:
    lake = Lake(str(tmp_path), format_name, COLUMNS)
    assert lake.reached("checkpoint") == {}
    lake.commit(record(tmp_path, format_name, 0))
    with monkeypatch.context() as patched:
        patched.setattr(lake, "_move", _fails)
        with pytest.raises(OSError, match="not empty"):
            lake.commit(record(tmp_path, format_name, 1))
    reached = 20 if format_name == "parquet" else 10
    assert lake.reached("checkpoint") == {TOPIC: {"broker-a:0": reached}}
    assert lake.reached("another") == {}
    others = {"others": {"broker-a:0": 1}}
    lake.commit(BatchRecord("a query anew", 0, "checkpoint", others, []))
    assert lake.reached("checkpoint") == {TOPIC: {"broker-a:0": reached}, **others}


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_batch_that_now_ends_elsewhere_is_refused(tmp_path: Path, format_name: str) -> None:
    lake = Lake(str(tmp_path), format_name, COLUMNS)
    lake.commit(record(tmp_path, format_name, 0))
    with pytest.raises(LakeError, match="the checkpoint has lost entries"):
        lake.commit(record(tmp_path, format_name, 0, end=9))
    lake.commit(record(tmp_path, format_name, 1))
    with pytest.raises(LakeError, match="older than the lake"):
        lake.commit(record(tmp_path, format_name, 0))
    assert offsets_in(tmp_path, format_name) == list(range(20))


def test_a_topic_is_archived_with_one_checkpoint_only(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path), "parquet", COLUMNS)
    lake.commit(record(tmp_path, "parquet", 0), [TOPIC])
    lake.commit(record(tmp_path, "parquet", 1), [TOPIC])
    another = BatchRecord("another query", 0, "elsewhere", {"others": {"broker-a:0": 1}}, [])
    lake.commit(another, ["others"])
    with pytest.raises(BadOption, match=r"orders is archived in .* with the checkpoint checkpoint"):
        lake.commit(msgspec.structs.replace(another, batch=1), ["others", TOPIC])
    anew = msgspec.structs.replace(record(tmp_path, "parquet", 0), query="a query anew")
    with pytest.raises(BadOption, match="in the checkpoint checkpoint before it was emptied"):
        lake.commit(anew, [TOPIC])


def test_of_two_archives_that_begin_with_a_topic_at_once_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakes = [Lake(str(tmp_path), "parquet", COLUMNS) for _ in range(2)]
    looked, write = threading.Semaphore(0), Records.write

    def slow_write(records: Records, one: BatchRecord) -> None:
        looked.release()
        looked.acquire(timeout=0.5)  # The other one would look now, if it could.
        write(records, one)

    def commit(number: int) -> BaseException | None:
        ends = {TOPIC: {"broker-a:0": 10}}
        one = BatchRecord(f"query {number}", 0, f"checkpoint {number}", ends, [])
        try:
            lakes[number].commit(one, [TOPIC])
        except BadOption as error:
            return error
        return None

    monkeypatch.setattr(Records, "write", slow_write)
    with ThreadPoolExecutor() as threads:
        refused = [error for error in threads.map(commit, range(2)) if error is not None]
    assert len(refused) == 1
    assert "is archived in" in str(refused[0])


def test_a_lake_has_no_format_before_it_has_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog.sql", None)
    with pytest.raises(NotReady, match="pip install 'pyiceberg"):
        Lake(str(tmp_path), "iceberg", COLUMNS)
    Lake(str(tmp_path), "delta", COLUMNS)


def test_a_lake_keeps_its_format_and_its_columns(tmp_path: Path) -> None:
    Lake(str(tmp_path), "parquet", COLUMNS)
    with pytest.raises(BadOption, match="has the format parquet, not delta"):
        Lake(str(tmp_path), "delta", COLUMNS)
    with pytest.raises(BadOption, match="has the columns topic, brokerName"):
        Lake(str(tmp_path), "parquet", COLUMNS[:-1])
    with pytest.raises(BadOption, match="queueOffset is not there"):
        Lake(str(tmp_path), "parquet", ("brokerName", "queueId", "storeTimestamp"))
    with pytest.raises(BadOption, match="'orc' is unknown; there are delta, iceberg, parquet"):
        Lake(str(tmp_path), "orc", COLUMNS)


def test_files_that_somebody_removed_are_missed(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path), "parquet", COLUMNS)
    first = record(tmp_path, "parquet", 0)
    lake.commit(first)
    (tmp_path / first.files[0].path).unlink()
    with pytest.raises(LakeError, match="is gone"):
        lake.commit(record(tmp_path, "parquet", 0))


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_checkpoint_that_goes_on_behind_the_lakes_end_is_refused(
    tmp_path: Path, format_name: str
) -> None:
    """As with a lake that was emptied, or put back from an older copy."""
    lake = Lake(str(tmp_path), format_name, COLUMNS)
    with pytest.raises(LakeError, match=r"batches 0 to 1 .* are not in .*: put the lake back"):
        lake.commit(record(tmp_path, format_name, 2))
    lake.commit(record(tmp_path, format_name, 0))
    with pytest.raises(LakeError, match="batches 1 to 1"):
        lake.commit(record(tmp_path, format_name, 2))
    lake.commit(record(tmp_path, format_name, 1))
    assert offsets_in(tmp_path, format_name) == list(range(20))


def test_a_batch_that_a_table_has_may_have_lost_its_files_to_compaction(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path), "delta", COLUMNS)
    first = record(tmp_path, "delta", 0)
    lake.commit(first)
    for file in first.files:
        (tmp_path / file.path).unlink()
    assert lake.commit(record(tmp_path, "delta", 0)) == first
    assert not left_over(tmp_path)


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_batch_is_in_the_lake_once_it_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_name: str
) -> None:
    lake = Lake(str(tmp_path), format_name, COLUMNS)
    assert not lake.has(QUERY, 0)
    empty = BatchRecord(QUERY, 0, "checkpoint", {TOPIC: {"broker-a:0": 0}}, [])
    lake.commit(empty)
    assert lake.has(QUERY, 0), "that there is nothing in it is told by its record"
    with monkeypatch.context() as patched:
        patched.setattr(lake, "_move", _fails)
        with pytest.raises(OSError, match="not empty"):
            lake.commit(record(tmp_path, format_name, 1))
    assert lake.has(QUERY, 1) == (format_name == "parquet")
    lake.commit(record(tmp_path, format_name, 1))
    assert lake.has(QUERY, 1)
    assert not lake.has(QUERY, 2)


@pytest.mark.parametrize("format_name", TABLES)
def test_a_second_driver_does_not_enter_a_batch_that_the_table_has(
    tmp_path: Path, format_name: str
) -> None:
    one, other = (Lake(str(tmp_path), format_name, COLUMNS) for _ in range(2))
    one.commit(record(tmp_path, format_name, 0))
    with pytest.raises(LakeError, match="has batch 0 of this query already: another archive"):
        other._enter(record(tmp_path, format_name, 0))  # It looked before the first one was done.
    assert offsets_in(tmp_path, format_name) == list(range(10))


@pytest.mark.parametrize("format_name", FORMATS)
def test_archives_of_different_topics_enter_their_batches_at_once(
    tmp_path: Path, format_name: str
) -> None:
    def commit(number: int) -> None:
        lake = Lake(str(tmp_path), format_name, COLUMNS)
        for batch in range(4):
            one = record(tmp_path, format_name, batch)
            query = {"query": f"query-{number}", "checkpoint": f"checkpoint {number}"}
            lake.commit(msgspec.structs.replace(one, **query))

    with ThreadPoolExecutor() as threads:
        list(threads.map(commit, range(2)))
    assert offsets_in(tmp_path, format_name) == sorted([*range(40)] * 2)


@WITH_ICEBERG
def test_an_entry_is_on_disk_also_if_another_one_was_made_behind_it(
    tmp_path: Path, on_disk: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (Lake(str(tmp_path), "iceberg", COLUMNS) for _ in range(2))
    with monkeypatch.context() as killed:
        killed.setattr(other._table, "_sync", lambda: None)
        other.commit(msgspec.structs.replace(record(tmp_path, "iceberg", 0), query="other"))
    on_disk.clear()
    one.commit(record(tmp_path, "iceberg", 0))
    manifests = {str(path.relative_to(tmp_path)) for path in tmp_path.glob("metadata/*-m*.avro")}
    assert len(manifests) == 2
    assert manifests <= set(on_disk)


@pytest.mark.parametrize("format_name", FORMATS)
def test_what_killed_attempts_left_makes_room_for_the_next_one(
    tmp_path: Path, format_name: str
) -> None:
    """Or the batch for which there is no room would take more at every start."""
    for _ in range(3):
        lake = Lake(str(tmp_path), format_name, COLUMNS)
        lake.tidy(QUERY, 0)
        killed = record(tmp_path, format_name, 0)
        assert len(left_over(tmp_path)) == len(killed.files)
    lake.commit(killed)
    assert offsets_in(tmp_path, format_name) == list(range(10))


def test_of_two_formats_that_begin_at_once_a_lake_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, write = threading.Semaphore(0), Records.write_facts

    def slow_write(records: Records, facts: LakeFacts) -> None:
        looked.release()
        looked.acquire(timeout=0.5)  # The other one would look now, if it could.
        write(records, facts)

    def begin(format_name: str) -> BaseException | None:
        try:
            Lake(str(tmp_path), format_name, COLUMNS)
        except BadOption as error:
            return error
        return None

    monkeypatch.setattr(Records, "write_facts", slow_write)
    with ThreadPoolExecutor() as threads:
        (refused,) = filter(None, threads.map(begin, ["delta", "parquet"]))
    assert "has the format" in str(refused)


@pytest.mark.parametrize(
    ("format_name", "odd", "sign"),
    [
        ("delta", "a%20b", "%20"),
        *(
            pytest.param("iceberg", f"a{sign}b", sign, marks=WITH_ICEBERG)
            for sign in ("?", "#", "%")
        ),
    ],
)
def test_a_path_that_a_table_would_take_for_another_is_refused(
    tmp_path: Path, format_name: str, odd: str, sign: str
) -> None:
    with pytest.raises(BadOption, match=f"'{re.escape(sign)}' cannot be in the path"):
        Lake(str(tmp_path / odd), format_name, COLUMNS)


def test_a_batch_is_in_the_lake_though_it_cannot_be_tidied_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A task's attempt that nobody waits for may write on while its directory is taken away."""
    lake = Lake(str(tmp_path), "delta", COLUMNS)
    with monkeypatch.context() as patched:
        patched.setattr(lake.place, "remove", _fails)
        lake.commit(record(tmp_path, "delta", 0))
    assert "not empty" in caplog.text
    lake.commit(record(tmp_path, "delta", 1))
    assert offsets_in(tmp_path, "delta") == list(range(20))
    assert not left_over(tmp_path), "it was made good with the next batch"


def _fails(*_: object) -> None:
    raise OSError(errno.ENOTEMPTY, "the directory is not empty")


def test_a_log_of_delta_that_cannot_be_read_is_told_as_such(tmp_path: Path) -> None:
    Lake(str(tmp_path), "delta", COLUMNS)
    (entry,) = (tmp_path / "_delta_log").glob("*.json")
    for damaged in (b"", b"{garb\n", entry.read_bytes()[:-20]):
        entry.write_bytes(damaged)
        with pytest.raises(LakeError, match=str(tmp_path)):
            Lake(str(tmp_path), "delta", COLUMNS)


def test_a_checkpoint_is_the_same_however_it_is_written(tmp_path: Path) -> None:
    records = Records(Place(str(tmp_path)))
    records.write(BatchRecord("query", 0, f"{tmp_path}/checkpoint", {}, []))
    for same in ("/checkpoint", "/checkpoint/", "/x/../checkpoint"):
        assert records.with_checkpoint(f"{tmp_path}{same}")
        assert records.with_checkpoint(f"file:{tmp_path}{same}")
    assert not records.with_checkpoint(f"{tmp_path}/other")


def test_only_the_last_records_are_kept(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path), "parquet", COLUMNS)
    for batch in range(12):
        lake.commit(record(tmp_path, "parquet", batch))
    assert [one.batch for one in Records(Place(str(tmp_path))).of(QUERY)] == [11, 10]


# -- power cuts ----------------------------------------------------------------------------------


def test_an_entry_of_deltas_log_is_on_disk_before_anybody_hears_of_it(
    tmp_path: Path, on_disk: list[str]
) -> None:
    lake = Lake(str(tmp_path), "delta", COLUMNS)
    assert entry(0) in on_disk
    lake.commit(record(tmp_path, "delta", 0))
    # From the first checkpoint on, there are names that sort behind those of entries.
    DeltaTable(tmp_path).create_checkpoint()
    on_disk.clear()
    lake.commit(record(tmp_path, "delta", 1))
    assert entry(2) in on_disk
    assert on_disk.index(entry(2)) < on_disk.index("_delta_log"), "the entry, and then its name"
    assert entry(1) not in on_disk, "nothing is synced twice"


def test_entries_of_others_and_checkpoints_of_the_log_are_on_disk_too(
    tmp_path: Path, on_disk: list[str]
) -> None:
    """Or the log would have a gap, and a log with a gap cannot be read."""
    lake = Lake(str(tmp_path), "delta", COLUMNS)
    properties = {"delta.checkpointInterval": "2"}
    DeltaTable(tmp_path).alter.set_table_properties(properties)
    on_disk.clear()
    lake.commit(record(tmp_path, "delta", 0))
    lake.commit(record(tmp_path, "delta", 1))
    made = [path for path in on_disk if path.endswith(".json")]
    assert made == [entry(1), entry(2), entry(3)]
    assert {entry(3, "checkpoint.parquet"), "_delta_log/_last_checkpoint"} <= set(on_disk)


def test_a_driver_may_die_before_deltas_log_has_a_hint_at_its_new_checkpoint(
    tmp_path: Path,
) -> None:
    """Delta writes the one and then the other."""
    Lake(str(tmp_path), "delta", COLUMNS).commit(record(tmp_path, "delta", 0))
    DeltaTable(tmp_path).create_checkpoint()
    (tmp_path / "_delta_log" / "_last_checkpoint").unlink()
    Lake(str(tmp_path), "delta", COLUMNS).commit(record(tmp_path, "delta", 1))
    assert offsets_in(tmp_path, "delta") == list(range(20))


@WITH_ICEBERG
def test_what_an_entry_of_iceberg_made_is_on_disk_also_after_a_kill(
    tmp_path: Path, on_disk: list[str]
) -> None:
    lake = Lake(str(tmp_path), "iceberg", COLUMNS)
    before = {*tmp_path.glob("metadata/*")}
    lake.commit(record(tmp_path, "iceberg", 0))
    made = {str(path.relative_to(tmp_path)) for path in {*tmp_path.glob("metadata/*")} - before}
    assert made
    assert made <= set(on_disk)
    on_disk.clear()
    Lake(str(tmp_path), "iceberg", COLUMNS)
    assert made <= set(on_disk)


@WITH_ICEBERG
def test_an_entry_of_iceberg_costs_the_same_however_many_were_made_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(iceberg, "ENTRIES_KEPT", 3)
    lake, place = Lake(str(tmp_path), "iceberg", COLUMNS), Place(str(tmp_path))
    lake.commit(record(tmp_path, "iceberg", 0))
    held = iceberg.iceberg_table(place)
    for batch in range(1, 8):
        lake.commit(record(tmp_path, "iceberg", batch))
    assert len(iceberg.iceberg_table(place).snapshots()) == 3
    assert offsets_in(tmp_path, "iceberg") == list(range(80))
    assert held.scan().to_arrow().num_rows == 10, "who reads an older entry still can"
    assert not caplog.records, "there is nothing that a user could act on"


def test_an_entry_that_a_dead_driver_left_to_the_kernel_is_synced_at_the_next_start(
    tmp_path: Path, on_disk: list[str]
) -> None:
    lake = Lake(str(tmp_path), "delta", COLUMNS)
    lake.commit(record(tmp_path, "delta", 0))
    on_disk.clear()
    Lake(str(tmp_path), "delta", COLUMNS)
    assert entry(1) in on_disk


def test_staged_files_have_their_names_on_disk_before_a_record_decides_on_them(
    tmp_path: Path, on_disk: list[str]
) -> None:
    lake = Lake(str(tmp_path), "parquet", COLUMNS)
    on_disk.clear()
    lake.commit(record(tmp_path, "parquet", 0))
    assert on_disk.index(f"_staging/{QUERY}/0") < on_disk.index(f"_archive/{QUERY}")


# -- one archive at a time -----------------------------------------------------------------------


def test_one_archive_at_a_time_writes_with_a_checkpoint(tmp_path: Path) -> None:
    place, checkpoint = Place(str(tmp_path / "lake")), str(tmp_path / "checkpoint")
    with sole_writer(place, checkpoint):
        for same in (checkpoint, f"{checkpoint}/", f"file:{checkpoint}", f"file://{checkpoint}"):
            with pytest.raises(BadOption, match="another archive writes this lake"):
                sole_writer(place, same).__enter__()
        with sole_writer(place, str(tmp_path / "another")):
            pass
    with sole_writer(place, checkpoint):
        pass


def test_who_shares_a_lake_may_lock_it(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        with sole_writer(Place(str(tmp_path)), "checkpoint"):
            (file,) = (tmp_path / "_locks").iterdir()
            assert file.stat().st_mode & 0o777 == 0o664
    finally:
        os.umask(before)


def test_what_a_dead_archive_had_started_keeps_nobody_from_the_lake(tmp_path: Path) -> None:
    program = (
        "import subprocess, sys, time\n"
        "from cometmq.spark.pipelines.lake.lock import sole_writer\n"
        "from cometmq.spark.pipelines.lake.place import Place\n"
        "with sole_writer(Place(sys.argv[1]), 'c'):\n"
        "    child = subprocess.Popen(['sleep', '600'], stdout=2, close_fds=False)\n"
        "    print(child.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            with pytest.raises(BadOption, match="another archive"):
                sole_writer(Place(str(tmp_path)), str(tmp_path / "c")).__enter__()
            process.kill()
            process.wait()
            with sole_writer(Place(str(tmp_path)), str(tmp_path / "c")):
                os.kill(child, 0)  # It lives.
        finally:
            process.kill()
            os.kill(child, signal.SIGKILL)


def test_where_files_cannot_be_locked_an_archive_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    with sole_writer(Place(str(tmp_path)), "checkpoint"):
        assert "no locks available" in caplog.text


# -- places --------------------------------------------------------------------------------------


@pytest.fixture
def places(tmp_path: Path) -> list[Place]:
    return [Place(str(tmp_path)), Place(f"file://{tmp_path}")]


def test_a_lake_is_a_path_or_a_url(places: list[Place]) -> None:
    for place in places:
        place.write("a/b.json", place.url.encode())
        assert place.read("a/b.json") == place.url.encode()
        assert place.listed("a") == ["b.json"]
        assert place.listed("nothing") == []
        assert place.read("nothing") is None
        place.remove("nothing")
    with pytest.raises(BadOption, match="nowhere://x cannot be opened"):
        Place("nowhere://x")


def test_without_pyiceberg_the_format_says_what_to_install(tmp_path: Path) -> None:
    if not NO_ICEBERG:
        pytest.skip("pyiceberg is here")
    with pytest.raises(SparkError, match=r"not available because .*pip install 'pyiceberg"):
        Lake(str(tmp_path), "iceberg", COLUMNS)


def test_that_java_has_ended_is_told_whatever_failed_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = SimpleNamespace(proc=SimpleNamespace(poll=lambda: -9))
    monkeypatch.setattr(SparkContext, "_gateway", ended)
    assert "Java has ended" in str(plain(ConnectionRefusedError(111, "Connection refused")))
    assert str(plain(BadOption("x"))) == "x"


def test_a_failure_is_told_in_the_words_of_who_failed() -> None:
    trace = "Job aborted\n  File x\ncometmq.spark.errors.ClusterAway: no answer\n\n\tat java"
    told = plain(RuntimeError(trace))
    assert isinstance(told, ClusterAway)
    assert str(told) == "no answer"
    assert str(plain(RuntimeError("first\nsecond"))) == "RuntimeError: first"
