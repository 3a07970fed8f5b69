"""`cometmq spark submit`: a user's PySpark script with everything set that our formats need."""

import argparse
from pathlib import Path

from .arguments import Commands
from .spark_session import add_session_options, prepare_session


def add_command(actions: Commands) -> None:
    parser = actions.add_parser(
        "submit",
        help="run a PySpark script in which our formats are there",
        description="Finds Java, gives workers this Python and makes rocketmq and rocketmq-log "
        "known to every session that the script makes. The script runs here, as the driver.",
    )
    add_session_options(parser)
    parser.add_argument("script", type=Path, metavar="SCRIPT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script is given")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from cometmq.spark.launch import run_script

    prepare_session(options)
    return run_script(options.script, options.arguments)
