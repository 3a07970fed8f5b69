"""Compaction of a lake, without Spark and brokers: rows stay as they are, replaced files go."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cometmq.cli.main import main
from cometmq.spark.errors import BadOption
from cometmq.spark.pipelines.compaction import Compacted, compact
from cometmq.spark.pipelines.lake.lake import Lake
from cometmq.spark.pipelines.lake.lock import sole_compaction
from cometmq.spark.pipelines.lake.place import Place

from .lake_batches import COLUMNS, entry, offsets_in, on_disk, record

__all__ = ["on_disk"]
BATCHES = 4
EIGHT_DAYS_S = 8 * 86_400


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """With some batches in it."""
    made = Lake(str(tmp_path), "delta", COLUMNS)
    for batch in range(BATCHES):
        made.commit(record(tmp_path, "delta", batch))
    return made


def files_in(lake: Path) -> set[Path]:
    return {*lake.glob("topic=*/date=*/*.parquet")}


# -- one at a time -------------------------------------------------------------------------------


@pytest.mark.usefixtures("lake")
def test_a_second_compaction_is_refused_while_one_is_at_work(tmp_path: Path) -> None:
    with (
        sole_compaction(Place(str(tmp_path))),
        pytest.raises(BadOption, match="another compaction is at work"),
    ):
        compact(str(tmp_path))
    assert compact(str(tmp_path)).files_after == 2


@pytest.mark.usefixtures("lake")
def test_compactions_at_the_same_time_leave_every_row_once(tmp_path: Path) -> None:
    """Delta's log takes the same files as replaced by both, and would have their rows twice."""

    def compacted(_: int) -> Compacted | BadOption:
        try:
            return compact(str(tmp_path))
        except BadOption as refused:
            return refused

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(compacted, range(4)))
    assert any(isinstance(one, Compacted) for one in told)
    assert offsets_in(tmp_path, "delta") == list(range(BATCHES * 10))


# -- what was replaced ---------------------------------------------------------------------------


def grow_old(lake: Path) -> None:
    """As if all that was done with a lake had been done eight days ago."""
    long_ago_s = time.time() - EIGHT_DAYS_S
    for log in (lake / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] = round(long_ago_s * 1000)
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    for path in lake.rglob("*"):
        os.utime(path, (long_ago_s, long_ago_s))


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_replaced_files_go_after_a_week_also_when_deltas_log_has_forgotten_them(
    tmp_path: Path, lake: Lake, is_forgotten: bool
) -> None:
    of_others = tmp_path / "my-checkpoint" / "offsets" / "0"
    of_others.parent.mkdir(parents=True)
    of_others.write_text("{}")
    small = files_in(tmp_path)
    assert compact(str(tmp_path)).files_deleted == 0
    large = files_in(tmp_path) - small
    grow_old(tmp_path)
    if is_forgotten:
        DeltaTable(tmp_path).create_checkpoint()
    lake.commit(record(tmp_path, "delta", BATCHES))
    assert compact(str(tmp_path)).files_deleted == len(small)
    assert not files_in(tmp_path) & small
    assert large < files_in(tmp_path), "they were replaced only now"
    assert of_others.exists()
    assert offsets_in(tmp_path, "delta") == list(range(BATCHES * 10 + 10))


# -- power cuts ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("lake")
def test_what_a_compaction_made_is_on_disk_before_the_entry_that_names_it(
    tmp_path: Path, on_disk: list[str]
) -> None:
    small = files_in(tmp_path)
    compact(str(tmp_path))
    made = [str(path.relative_to(tmp_path)) for path in files_in(tmp_path) - small]
    assert {*made} < {*on_disk}
    assert max(map(on_disk.index, made)) < on_disk.index(entry(BATCHES + 1))


def test_an_archive_syncs_what_a_compaction_that_was_killed_left_to_the_kernel(
    tmp_path: Path, lake: Lake, on_disk: list[str]
) -> None:
    """Its entry is on disk with the archive's own next one, and so must be what it names."""
    small = files_in(tmp_path)
    DeltaTable(tmp_path).optimize.compact()
    made = {str(path.relative_to(tmp_path)) for path in files_in(tmp_path) - small}
    on_disk.clear()
    lake.commit(record(tmp_path, "delta", BATCHES))
    assert made
    assert made < {*on_disk}


# -- what is wrong -------------------------------------------------------------------------------


def test_what_is_wrong_with_a_table_is_told_in_a_line(
    tmp_path: Path, lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    files_in(tmp_path).pop().unlink()
    assert main(["spark", "compact", "--lake", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert str(tmp_path) in told
    assert "Traceback" not in told
    for log in (tmp_path / "_delta_log").iterdir():
        log.unlink()
    assert main(["spark", "compact", "--lake", str(tmp_path)]) == 1
    assert "Traceback" not in capsys.readouterr().err
