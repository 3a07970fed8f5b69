"""`cometmq spark compact`: few large files in a lake instead of many small ones."""

import argparse
import sys

import msgspec

from .arguments import Commands, add_output_option
from .spark_session import packages_needed


def add_command(actions: Commands) -> None:
    parser = actions.add_parser(
        "compact",
        help="put the small files of a lake together",
        description="For lakes with the format delta. Readers and an archive that runs are not "
        "disturbed; files that were replaced are deleted when nobody can be reading them.",
    )
    parser.add_argument("--lake", required=True, metavar="PATH", help="directory or URL")
    parser.add_argument(
        "--retention", default="7d", metavar="TIME", help="of replaced files, 7d at least (7d)"
    )
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    with packages_needed():
        from cometmq.spark.pipelines.compaction import compact
    from cometmq.spark.option_values import duration_s

    retention_s = duration_s({"retention": options.retention}, "retention", 0.0)
    told = compact(options.lake, retention_hours=int(retention_s // 3600))
    if options.output == "json":
        sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
    else:
        sys.stdout.write(
            f"files before {told.files_before:,}, now {told.files_after:,}; "
            f"of earlier times deleted {told.files_deleted:,}\n"
        )
    return 0
