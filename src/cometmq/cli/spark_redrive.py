"""`cometmq spark redrive`: dead letters of a group back to their topics, each once."""

import argparse
from typing import TYPE_CHECKING

from .arguments import Commands, add_time_options, positive
from .redriven import progress, tell
from .spark_arguments import (
    add_common_options,
    add_namesrv_option,
    cluster_options,
    say,
)
from .spark_quiet import quiet_session
from .spark_session import packages_needed
from .spark_signals import told_when_stopped

if TYPE_CHECKING:
    from cometmq.spark.dead_letters.redriving import Redriven


def add_command(actions: Commands) -> None:
    parser = actions.add_parser(
        "redrive",
        help="send dead letters to their topics again, each once",
        description="Can be stopped or killed at any time and run again, also with another choice: "
        "a letter that is in its topic already is not sent once more. Body, tags, keys and the "
        "sender's properties stay; the property REDRIVEN_FROM tells where the letter is. All "
        "groups that read the topic get the message, not only the one that failed at it.",
    )
    add_namesrv_option(parser)
    parser.add_argument("--group", required=True, help="the consumer group whose dead letters")
    parser.add_argument("--to", default="", metavar="TOPIC", help="instead of the first topics")
    parser.add_argument(
        "--tag", action="append", default=[], help="only with this; several possible"
    )
    parser.add_argument(
        "--key", action="append", default=[], help="only with this; several possible"
    )
    add_time_options(parser)
    parser.add_argument(
        "--where", default="", metavar="SQL",
        help="only those: SQL over the columns of the source, as in \"reconsumeTimes > 3\"",
    )  # fmt: skip
    parser.add_argument(
        "--limit", type=int, metavar="N", help="at most so many that are not there yet"
    )
    parser.add_argument("--rate", type=positive, metavar="N", help="at most so many a second")
    parser.add_argument(
        "--dry-run", action="store_true", help="tell what would be sent, and send nothing"
    )
    add_common_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    with told_when_stopped(lambda: "redrive: stopped; the same command goes on from here"):
        told = _redriven(options)
    return tell(told, options)


def _redriven(options: argparse.Namespace) -> "Redriven":
    with packages_needed():
        from cometmq.spark.pipelines.redrive import Choice, redrive

    namesrv, how = cluster_options(options)
    return redrive(
        namesrv,
        options.group,
        to=options.to,
        choice=Choice(
            tags=options.tag,
            keys=options.key,
            since_ms=options.since_ms,
            until_ms=options.until_ms,
            where=options.where,
            limit=options.limit,
        ),
        rate=options.rate,
        dry_run=options.dry_run,
        options=how,
        spark=quiet_session(options, "cometmq-redrive"),
        on_progress=lambda told: say(progress(told)),
        on_wait=lambda: say("another redrive holds these letters: waiting for its end …"),
    )
