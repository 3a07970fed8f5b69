"""Topics to a lake, exactly once: `archive("127.0.0.1:9876", "/data/lake", topics=["orders"])`.

A stream of Spark plans the batches and keeps its checkpoint; its tasks write the Parquet files, and
the driver enters them into the lake. After each batch the consumer group is where the lake is.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from ..errors import BadOption
from ..option_values import canonical
from ..schema import COLUMNS, ON_REQUEST
from ..session import is_connect
from ..topic.options import KNOWN, STARTING, read_options
from ..topic.overview import Overview
from .archive_group import ArchiveGroup
from .archive_progress import Archived, BatchDone
from .failures import plainly
from .lake.lake import Lake, check_request
from .lake.lock import one_name, sole_writer
from .lake.place import Place
from .lake.records import Records
from .sessions import when_needed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .sessions import Given

GROUP: Final = "cometmq-archive"
"""What brokers with `archive.requiredBeforeDelete` look at, unless they are told otherwise."""
ALL_COLUMNS: Final = (*COLUMNS, *ON_REQUEST)
"""With these a message can be sent again as it was."""
DEFAULTS: Final = {
    "startingOffsets": "earliest",
    "maxOffsetsPerTrigger": "4000000",
    "maxBytesPerTrigger": str(2 << 30),
    "maxRecordsPerPartition": "1000000",
    "localFiles": "true",
}
"""Options of the source, where they differ from its own defaults."""
OURS: Final = (
    "namesrvAddr", "topic", "subscribe", "subscribePattern", "assign", "columns",
    "includeProperties", "consumerGroup", "commitGroupOffsets",
)  # fmt: skip
"""Options of the source that the archive sets itself."""


def archive(
    namesrv: str,
    lake: str,
    *,
    topics: Collection[str] = (),
    pattern: str = "",
    format: str = "delta",  # noqa: A002 - as Spark calls it
    once: bool = False,
    interval_s: float = 30.0,
    group: str = GROUP,
    checkpoint: str = "",
    columns: Sequence[str] = ALL_COLUMNS,
    options: Mapping[str, str] | None = None,
    spark: "Given" = None,
    on_batch: Callable[[BatchDone], None] | None = None,
    stop: threading.Event | None = None,
) -> Archived:
    """Archive until `stop` is set, or `once` what is there now.

    `lake` is a path that driver and executors share, or a URL; the checkpoint is in it unless one
    is given. `options` are those of the source, as `startingOffsets` or `failOnDataLoss`. Errors
    are those of `cometmq.spark.errors`; BadOption also while another archive has the checkpoint.
    """
    given = _source_options(namesrv, topics, pattern, group, columns, options or {})
    check_request(format, columns)
    told = Archived(lake, format)

    def tell(done: BatchDone) -> None:
        told.add(done)
        if on_batch is not None:
            on_batch(done)

    place = Place(lake)
    checkpoint = checkpoint or _default_checkpoint(place)
    _check_checkpoint(place, checkpoint)
    source = read_options(given, streaming=True)
    with (
        plainly(),
        Overview(source) as overview,
        ArchiveGroup(source.cluster, group) as archive_group,
    ):
        if not Records(place).with_checkpoint(checkpoint):
            overview.queues()  # What is not there is best told now, and plainly.
        with sole_writer(place, checkpoint):
            target = Lake(lake, format, columns)
            running = _driver(when_needed(spark, "cometmq-archive")())
            # Behind the session, which says it with advice if Spark is missing.
            from .archive_batches import Batches
            from .archive_query import ArchiveQuery

            given |= {"lake": place.shown(), "lakeFormat": format}
            trigger = {"availableNow": True} if once else _every(interval_s)
            ArchiveQuery(running, given, checkpoint, trigger).run(
                lambda: Batches(target, overview, archive_group, checkpoint, tell),
                stop or threading.Event(),
            )
    return told


def _every(interval_s: float) -> dict[str, Any]:
    return {"processingTime": f"{round(interval_s * 1000)} milliseconds"}


# -- options -------------------------------------------------------------------------------------


def _source_options(
    namesrv: str,
    topics: Collection[str],
    pattern: str,
    group: str,
    columns: Sequence[str],
    more: Mapping[str, str],
) -> dict[str, str]:
    if bool(topics) == bool(pattern):
        raise BadOption("name topics, or a pattern for them")
    if not group:
        raise BadOption("group is empty: the consumer group that says how far the archive is")
    more = canonical(more, KNOWN)
    if wrong := [name for name in more if name in OURS]:
        raise BadOption(f"{wrong[0]} is set by the archive itself")
    where = {"topic": ",".join(topics)} if topics else {"subscribePattern": pattern}
    given = {"namesrvAddr": namesrv, **where, "columns": ",".join(columns)}
    given |= {name: value for name, value in DEFAULTS.items() if not _overruled(name, more)}
    given |= more
    if more.get("startingOffsets") == "group":
        given["consumerGroup"] = group
    read_options(given, streaming=True)
    return given


def _overruled(name: str, more: Mapping[str, str]) -> bool:
    """A user who says where to begin, in whichever way, has said it."""
    ways = STARTING if name in STARTING else (name,)
    return any(way in more for way in ways)


def _default_checkpoint(place: Place) -> str:
    if not place.is_local:
        raise BadOption(
            f"{place.url} is not a path: name a checkpoint that Spark can write to, as in s3a://…"
        )
    return place.shown("_checkpoint")


def _check_checkpoint(place: Place, checkpoint: str) -> None:
    """Readers take for the table's what lies in its directory, and other programs' clean-ups delete
    there what the table does not know; names that begin so are left alone by all."""
    root, path = (PurePath(one_name(url)) for url in (place.shown(), checkpoint))
    if path.is_relative_to(root) and not str(path.relative_to(root)).startswith("_"):
        raise BadOption(
            f"checkpoint {checkpoint} lies among the files of the lake: begin its name there with _"
            f", as in {place.shown('_checkpoint-payments')}"
        )


def _driver(spark: "SparkSession") -> "SparkSession":
    if is_connect(spark):
        raise BadOption(
            "an archive's driver enters files into the lake, and a client of Spark Connect is none:"
            " run it where Spark's driver is, with a master of local[*] or spark://…"
        )
    return spark
