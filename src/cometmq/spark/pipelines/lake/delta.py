"""A lake as a Delta table, kept without Java by the package `deltalake`.

Each batch is one entry of the table's log, with the query's id and the batch's number: Delta's
own means against entering something twice.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...errors import NotReady
from .place import Place
from .records import BatchRecord

if TYPE_CHECKING:
    from deltalake import DeltaTable


class DeltaLog:
    def __init__(self, place: Place, schema: pa.Schema, partitions: Sequence[str]) -> None:
        self._place = place
        self._partitions = list(partitions)
        deltalake().DeltaTable.create(
            place.shown(), schema, mode="ignore", partition_by=self._partitions
        )

    def has(self, record: BatchRecord) -> bool:
        reached = delta_table(self._place).transaction_version(record.query)
        return reached is not None and reached >= record.batch

    def add(self, record: BatchRecord) -> None:
        # The table as it is now: an old view of it would collide with its own last entry.
        table, now_ms = delta_table(self._place), round(time.time() * 1000)
        entered = deltalake().Transaction(record.query, record.batch, now_ms)
        table.create_write_transaction(
            _actions(record, now_ms), "append", table.schema(), self._partitions,
            commit_properties=deltalake().CommitProperties(app_transactions=[entered]),
        )  # fmt: skip
        for name in self._place.listed("_delta_log")[-1:]:
            self._place.sync_file(f"_delta_log/{name}")


def delta_table(place: Place) -> "DeltaTable":
    table: DeltaTable = deltalake().DeltaTable(place.shown())
    return table


def deltalake() -> Any:
    try:
        import deltalake
    except ImportError as missing:
        raise NotReady(f"{missing}: pip install 'cometmq[spark]'") from missing
    return deltalake


def _actions(record: BatchRecord, now_ms: int) -> list[Any]:
    from deltalake.transaction import AddAction

    return [
        AddAction(
            path=file.path,
            size=file.bytes,
            partition_values={"topic": file.topic, "date": file.date},
            modification_time=now_ms,
            data_change=True,
            stats=file.stats,
        )
        for file in record.files
    ]
