"""`cometmq spark archive`: topics to a lake. Ctrl-C and SIGTERM end it behind the current batch."""

import argparse
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .arguments import Commands, add_output_option, pair
from .serving import complain
from .spark_arguments import add_namesrv_option, cluster_options, say
from .spark_quiet import quiet_session
from .spark_session import add_session_options, packages_needed
from .spark_signals import handled

if TYPE_CHECKING:
    from cometmq.spark.pipelines.archive_progress import Archived


def add_command(actions: Commands) -> None:
    parser = actions.add_parser(
        "archive",
        help="keep topics in a lake of Parquet files, each message once",
        description="Every message a row, partitioned by topic and date. Run it again to go on. "
        "The consumer group is where the lake is, so brokers with archive.requiredBeforeDelete "
        "keep what is not in the lake yet.",
    )
    add_namesrv_option(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--topic", action="append", default=[], metavar="NAME", help="may be given again"
    )
    where.add_argument("--pattern", default="", metavar="REGEX", help="topics with such names")
    parser.add_argument("--lake", required=True, metavar="PATH", help="directory or URL")
    parser.add_argument(
        "--format", choices=("delta", "iceberg", "parquet"), default="delta", help="(delta)"
    )
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument("--once", action="store_true", help="end when what is there now is archived")
    pace.add_argument("--interval", default="30s", metavar="TIME", help="between two batches (30s)")
    parser.add_argument(
        "--group", default="cometmq-archive", metavar="NAME",
        help="consumer group that says how far the lake is (cometmq-archive)",
    )  # fmt: skip
    parser.add_argument(
        "--checkpoint",
        default="",
        metavar="PATH",
        help="where Spark notes how far it is (_checkpoint in the lake)",
    )
    parser.add_argument("--columns", default="", metavar="A,B", help="fewer than all, for good")
    parser.add_argument(
        "--option", action="append", default=[], type=pair, metavar="NAME=VALUE",
        help="of the source, as in failOnDataLoss=false; may be given again",
    )  # fmt: skip
    add_session_options(parser)
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    signals: list[int] = []
    told = _archived(options, signals)
    sys.stdout.write(_as_json(told) if options.output == "json" else _as_table(told))
    return 128 + signals[0] if signals and options.once else 0


def _archived(options: argparse.Namespace, signals: list[int]) -> "Archived":
    """Adds the signal that ended it, if one did."""
    with packages_needed():
        from cometmq.spark.pipelines.archive import ALL_COLUMNS, archive
    from cometmq.spark.option_values import duration_s, listed

    namesrv, more = cluster_options(options)
    interval_s = duration_s({"interval": options.interval}, "interval", 0.0)
    stop = threading.Event()

    def heard(number: int, _: Any) -> None:
        signals.append(number)
        stop.set()
        complain("archive: ending behind this batch; once more ends it now")

    with handled(heard):
        return archive(
            namesrv,
            options.lake,
            topics=options.topic,
            pattern=options.pattern,
            format=options.format,
            once=options.once,
            interval_s=interval_s,
            group=options.group,
            checkpoint=options.checkpoint,
            columns=listed(options.columns) or ALL_COLUMNS,
            options=more,
            spark=quiet_session(options, "cometmq-archive"),
            on_batch=lambda done: say(str(done)),
            stop=stop,
        )


def _as_json(told: "Archived") -> str:
    return msgspec.json.encode(told).decode() + "\n"


def _as_table(told: "Archived") -> str:
    from cometmq.spark.pipelines.readable import counted, size

    rate = told.rows / told.seconds if told.seconds else 0.0
    batches, files = counted(told.batches, "batch"), counted(told.files, "file")
    lines: Sequence[str] = (
        f"lake      {told.lake} ({told.format})",
        f"messages  {told.rows:,} in {batches} and {files}",
        f"size      {size(told.bytes)}",
        f"rate      {rate:,.0f} messages a second",
        f"to go     {sum(told.lag.values()):,}",
    )
    return "\n".join(lines) + "\n"
