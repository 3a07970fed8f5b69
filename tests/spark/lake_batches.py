"""Batches of a lake as tasks and drivers make them, without Spark and brokers."""

from pathlib import Path

import pyarrow as pa
import pytest

from cometmq.spark.pipelines.archive_files import Naming, TopicFiles
from cometmq.spark.pipelines.lake.place import Place
from cometmq.spark.pipelines.lake.records import BatchRecord, LakeFile
from cometmq.spark.pipelines.lake.staging import staged_path
from cometmq.spark.pipelines.lake.tables import file_schema

from .lakes import rows_in

COLUMNS = ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp", "body")
QUERY = "11111111-query"
DAY_US = 86_400_000_000
TOPIC = "%RETRY%orders"


def batch_of(offsets: range, *, day: int = 20_000, queue: int = 0) -> pa.RecordBatch:
    count = len(offsets)
    return pa.RecordBatch.from_pydict(
        {
            "brokerName": ["broker-a"] * count,
            "queueId": [queue] * count,
            "queueOffset": list(offsets),
            "storeTimestamp": [day * DAY_US + offset for offset in offsets],
            "body": [b"message %d" % offset for offset in offsets],
        },
        schema=file_schema(COLUMNS, "parquet"),
    )


def staged(lake: Path, format_name: str, batch: int, *batches: pa.RecordBatch) -> list[LakeFile]:
    """What a task does."""
    naming = Naming(TOPIC, lambda: staged_path(QUERY, str(batch)), f"part-{batch}")
    files = TopicFiles(Place(str(lake)), naming, file_schema(COLUMNS, format_name))
    for rows in batches:
        files.add(rows)
    return files.close()


def record(lake: Path, format_name: str, batch: int, end: int = 10) -> BatchRecord:
    """A batch of ten messages on two days, in two files."""
    first = range(batch * 10, batch * 10 + 5)
    second = range(batch * 10 + 5, batch * 10 + 10)
    files = staged(lake, format_name, batch, batch_of(first), batch_of(second, day=20_001))
    ends = {TOPIC: {"broker-a:0": batch * 10 + end}}
    return BatchRecord(QUERY, batch, "checkpoint", ends, files)


def offsets_in(lake: Path, format_name: str) -> list[int]:
    return sorted(rows_in(lake, format_name).column("queueOffset").to_pylist())


@pytest.fixture
def on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was synced, in order, by its path in the lake."""
    synced: list[str] = []

    def sync(path: str) -> None:
        assert Path(path).exists()
        synced.append(str(Path(path).relative_to(tmp_path)))

    monkeypatch.setattr("cometmq.spark.pipelines.lake.place._sync", sync)
    return synced


def entry(version: int, kind: str = "json") -> str:
    return f"_delta_log/{version:020d}.{kind}"
