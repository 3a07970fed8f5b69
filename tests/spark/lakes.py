"""Lakes of the tests, read without Spark: what is in them, by where the messages were kept."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
from deltalake import DeltaTable

from .sending import Sent


def rows_in(lake: Path, format_name: str) -> pa.Table:
    """All rows, as a reader that knows the format has them."""
    if format_name == "delta":
        return DeltaTable(lake).to_pyarrow_table()
    if format_name == "iceberg":
        from cometmq.spark.pipelines.lake.iceberg import iceberg_table
        from cometmq.spark.pipelines.lake.place import Place

        return iceberg_table(Place(str(lake))).scan().to_arrow()
    if not list(lake.glob("topic=*")):
        return pa.table({"queueOffset": pa.array([], pa.int64())})
    return pyarrow.dataset.dataset(lake, format="parquet", partitioning="hive").to_table()


def sent_in(lake: Path, format_name: str) -> Sent:
    return sent_of(rows_in(lake, format_name))


def sent_of(rows: pa.Table) -> Sent:
    """Rows by where their messages were kept; none may be there twice."""
    places = zip(*(rows.column(name).to_pylist() for name in PLACE), strict=True)
    found: dict[Any, bytes] = dict(zip(places, rows.column("body").to_pylist(), strict=True))
    assert len(found) == rows.num_rows, "a message is in the lake twice"
    return found


PLACE = ("brokerName", "queueId", "queueOffset")


def left_over(lake: Path) -> list[Path]:
    """Staged files that nobody took away."""
    return [path for path in (lake / "_staging").rglob("*") if path.is_file()]
