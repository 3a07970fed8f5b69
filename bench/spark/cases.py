"""What is compared: a run of ours, and the run of Spark's Kafka source or sink that does the same.

Ratios with an aim are of the columns that both have: topic, queue or partition, offset, time, key
and value. Beside them stand the value alone, and all columns that each gives without being asked.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from cometmq.spark.schema import COLUMNS

from ..child import Task
from .fill import BODY_SQL, KEY_SQL, QUEUE_SQL
from .runs import Run

TRIGGER_ROWS: Final = 500_000
Columns = tuple[str, ...]


class Place(NamedTuple):
    """Where the messages are."""

    namesrv: str
    store: str
    kafka: str
    few: str
    """A store of its own with the topic for plain Python, whose log has nothing else."""


class Side(NamedTuple):
    """Kind and format of a run, the columns that are read or written, and where rows go."""

    kind: str
    format: str
    columns: Columns = ()
    to: str = "noop"
    limit: int = TRIGGER_ROWS
    """Rows a trigger of a stream; 0: what its own defaults make."""
    more: Mapping[str, str] = {}
    """Options that are not the defaults."""
    settings: Mapping[str, str] = {}
    """Spark's, where they are not the defaults."""

    def run(self, place: Place, topic: str, rows: int) -> Run:
        options, select = self._options(place, topic), self.columns
        if select and self.format != "kafka" and self.kind in ("batch", "stream"):
            # Ours reads what it is asked for; Kafka's reads all, and leaves out.
            options, select = {**options, "columns": ",".join(select)}, ()
        return Run(
            kind=self.kind, format=self.format, rows=rows, options=options, select=select,
            to=self.to, settings=self.settings,
        )  # fmt: skip

    def check(self, place: Place, topic: str, rows: int) -> Run:
        """Counts what a sink has written."""
        body = "value" if self.format == "kafka" else "body"
        return Side("count", self.format, (body,)).run(place, topic, rows)

    def _options(self, place: Place, topic: str) -> dict[str, str]:
        if self.format == "rocketmq-log":
            return {"path": place.store, "topic": topic}
        if self.format == "kafka":
            name = "topic" if self.kind == "sink" else "subscribe"
            return {"kafka.bootstrap.servers": place.kafka, name: topic, **self._limits()}
        return {"namesrvAddr": place.namesrv, "topic": topic, **self._limits(), **self.more}

    def _limits(self) -> dict[str, str]:
        if self.kind not in ("stream", "archive"):
            return {}
        limit = {"maxOffsetsPerTrigger": str(self.limit)} if self.limit else {}
        return {"startingOffsets": "earliest", **limit}


class Case(NamedTuple):
    ours: Side
    kafka: Side
    aim: float | None = None
    """Rows a second, in Kafka's."""


_COMPARED: Final = ("topic", "queueId", "queueOffset", "storeTimestamp", "keys", "body")
_KAFKA_COMPARED: Final = ("topic", "partition", "offset", "timestamp", "key", "value")
_ARCHIVED: Final = ("brokerName", *_COMPARED)
"""The archive tells two brokers' queues apart: one column more than Kafka's."""
_STANDARD: Final = tuple(name for name in COLUMNS if name != "brokerName")
_SENT: Final = (f"{KEY_SQL} as keys", f"{BODY_SQL} as body", f"{QUEUE_SQL} as queueId")
_KAFKA_SENT: Final = (f"{KEY_SQL} as key", f"{BODY_SQL} as value", f"{QUEUE_SQL} as partition")
_KAFKA_NOOP: Final = Side("batch", "kafka", _KAFKA_COMPARED)
_KAFKA_BODY: Final = Side("batch", "kafka", ("value",))
_KAFKA_ALL: Final = Side("batch", "kafka")
_KAFKA_PARQUET: Final = Side("batch", "kafka", _KAFKA_COMPARED, "parquet")
KAFKA_SINK: Final = Side("sink", "kafka", _KAFKA_SENT)
_BY_ROWS: Final = {"spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1)}
"""Spark does not ask after every row how large its batch is: for who knows that rows are small.
Kafka's sink has no such batches."""

CASES: Final = {
    "topic_noop": Case(Side("batch", "rocketmq", _COMPARED), _KAFKA_NOOP, 1.3),
    "topic_noop_body": Case(Side("batch", "rocketmq", ("body",)), _KAFKA_BODY),
    "topic_noop_all": Case(Side("batch", "rocketmq"), _KAFKA_ALL),
    "topic_parquet": Case(Side("batch", "rocketmq", _COMPARED, "parquet"), _KAFKA_PARQUET),
    "log_noop": Case(Side("batch", "rocketmq-log", _COMPARED), _KAFKA_NOOP, 1.8),
    "log_noop_body": Case(Side("batch", "rocketmq-log", ("body",)), _KAFKA_BODY),
    "log_noop_all": Case(Side("batch", "rocketmq-log"), _KAFKA_ALL),
    "log_parquet": Case(Side("batch", "rocketmq-log", _COMPARED, "parquet"), _KAFKA_PARQUET, 1.5),
    "stream_noop": Case(
        Side("stream", "rocketmq", _COMPARED), Side("stream", "kafka", _KAFKA_COMPARED), 1.0
    ),
    "stream_parquet": Case(
        Side("stream", "rocketmq", _COMPARED, "parquet"),
        Side("stream", "kafka", _KAFKA_COMPARED, "parquet"),
    ),
    "archive": Case(
        Side("archive", "rocketmq", _ARCHIVED, limit=0),
        Side("stream", "kafka", _KAFKA_COMPARED, "parquet", limit=0),
        3.0,
    ),
    "archive_pulls": Case(
        Side("archive", "rocketmq", _ARCHIVED, limit=0, more={"localFiles": "false"}),
        Side("stream", "kafka", _KAFKA_COMPARED, "parquet", limit=0),
    ),
    "archive_all": Case(
        Side("archive", "rocketmq", limit=0), Side("stream", "kafka", (), "parquet", limit=0)
    ),
    "sink": Case(Side("sink", "rocketmq", _SENT), KAFKA_SINK, 1.3),
    "sink_by_rows": Case(Side("sink", "rocketmq", _SENT, settings=_BY_ROWS), KAFKA_SINK),
}

DECODED: Final[dict[str, Task]] = {
    "decoder": {"columns": ",".join(_COMPARED), "log": False},
    "decoder_all": {"columns": ",".join(_STANDARD), "log": False},
    "decoder_log": {"columns": ",".join(_COMPARED), "log": True},
}
