"""Where a report's messages and offsets come from: a running cluster, or one broker's files."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

from cometmq.client.blocking import Admin
from cometmq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX

from ..connection import cluster_of
from ..errors import NotThere
from ..log.files import files_at, log_segments
from .report_figures import GroupFigures
from .report_groups import Ends, QueueEnd, groups_in_files, groups_online

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from .sessions import Sessions

INTERNAL_PREFIXES: Final = (
    RETRY_PREFIX, DEAD_LETTER_PREFIX, "RMQ_SYS_", "rmq_sys_", "SCHEDULE_TOPIC_XXXX", "%",
)  # fmt: skip
"""How topics begin that nobody means who asks for all."""
_TOLERANT: Final = {"failOnDataLoss": "false"}
"""What is gone or damaged is told in the log, and the rest is counted."""


class Source(Protocol):
    shown: str
    """As a reader of the report knows it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def topics(self, chosen: Sequence[str]) -> list[str]:
        """The chosen ones, or all but the system's own. NotThere when one is missing."""
        ...

    def has(self, topic: str) -> bool: ...

    def messages(self, topics: Sequence[str], columns: Sequence[str]) -> "DataFrame": ...

    def groups(self, topics: Sequence[str], chosen: Sequence[str]) -> list[GroupFigures]: ...


class ClusterSource:
    def __init__(
        self,
        sessions: "Sessions",
        options: Mapping[str, str],
        since_ms: int | None,
        until_ms: int | None,
    ) -> None:
        """`options` are the source's own that say where the cluster is."""
        self.shown = options["namesrvAddr"]
        self._sessions = sessions
        self._options = {**options, **_TOLERANT, **_times(since_ms, until_ms)}
        if since_ms is not None:
            self._options["startingOffsetsByTimestampStrategy"] = "latest"
        self._admin = Admin(cluster_of(options))
        self._known: list[str] = []

    def __enter__(self) -> Self:
        self._admin.start()
        self._known = self._admin.topics.names(internal=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._admin.stop()

    def topics(self, chosen: Sequence[str]) -> list[str]:
        users = _users(self._admin.topics.names())
        return _checked(chosen, self._known, users) or users

    def has(self, topic: str) -> bool:
        return topic in self._known

    def messages(self, topics: Sequence[str], columns: Sequence[str]) -> "DataFrame":
        reader = self._sessions().read.format("rocketmq").options(**self._options)
        return (
            reader.option("subscribe", ",".join(topics)).option("columns", _listed(columns)).load()
        )

    def groups(self, topics: Sequence[str], chosen: Sequence[str]) -> list[GroupFigures]:
        return groups_online(self._admin, topics, chosen)


class StoreSource:
    def __init__(
        self, sessions: "Sessions", path: str, since_ms: int | None, until_ms: int | None
    ) -> None:
        self.shown = path
        self._sessions = sessions
        self._path = path
        self._times = _times(since_ms, until_ms)
        self._ends: Ends = {}

    def __enter__(self) -> Self:
        """Where queues end is told by all of the log, whatever time is asked for."""
        log_segments(files_at(self._path))  # No store is best told before Spark starts.
        from pyspark.sql import functions as f

        columns = _listed(("topic", "queueId", "queueOffset"))
        ends = (
            self._read(columns=columns)
            .groupBy("topic", "queueId")
            .agg((f.max("queueOffset") + 1).alias("end"), f.count("*").alias("messages"))
        )
        self._ends = {
            (row.topic, row.queueId): QueueEnd(row.end, row.messages) for row in ends.collect()
        }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is held."""

    def topics(self, chosen: Sequence[str]) -> list[str]:
        known = sorted({topic for topic, _ in self._ends})
        return _checked(chosen, known, _users(known)) or _users(known)

    def has(self, topic: str) -> bool:
        return any(topic == known for known, _ in self._ends)

    def messages(self, topics: Sequence[str], columns: Sequence[str]) -> "DataFrame":
        return self._read(topics=",".join(topics), columns=_listed(columns), **self._times)

    def _read(self, **options: str) -> "DataFrame":
        reader = self._sessions().read.format("rocketmq-log").options(**_TOLERANT, **options)
        return reader.option("tolerateDamage", "true").load(self._path)

    def groups(self, topics: Sequence[str], chosen: Sequence[str]) -> list[GroupFigures]:
        return groups_in_files(files_at(self._path), self._ends, topics, chosen)


def _times(since_ms: int | None, until_ms: int | None) -> dict[str, str]:
    times = {"startingTimestamp": since_ms, "endingTimestamp": until_ms}
    return {name: str(moment) for name, moment in times.items() if moment is not None}


def _listed(columns: Sequence[str]) -> str:
    return ",".join(columns)


def _users(topics: Sequence[str]) -> list[str]:
    return [topic for topic in topics if not topic.startswith(INTERNAL_PREFIXES)]


def _checked(chosen: Sequence[str], known: Sequence[str], users: Sequence[str]) -> list[str]:
    missing = [topic for topic in chosen if topic not in known]
    if missing:
        raise NotThere(f"there is no topic {missing[0]}; there are {', '.join(users) or 'none'}")
    return list(chosen)
