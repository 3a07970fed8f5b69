"""`cometmq spark redrive`: dead letters of a group back to their topics, each once."""

import argparse
import signal
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from .spark_arguments import add_common_options, add_time_options, quiet_session, say
from .spark_session import Commands

if TYPE_CHECKING:
    from cometmq.spark.pipelines.redrive import Redriven


def add_command(actions: Commands) -> None:
    parser = actions.add_parser(
        "redrive",
        help="send dead letters to their topics again, each once",
        description="Can be stopped or killed at any time and run again, also with another choice: "
        "a letter that is in its topic already is not sent once more. Body, tags, keys and the "
        "sender's properties stay; the property REDRIVEN_FROM tells where the letter is. All "
        "groups that read the topic get the message, not only the one that failed at it.",
    )
    parser.add_argument("--namesrv", required=True, metavar="ADDRESS", help="the NameServer")
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
    parser.add_argument("--limit", type=int, metavar="N", help="at most so many letters")
    parser.add_argument("--rate", type=float, metavar="N", help="at most so many a second")
    parser.add_argument(
        "--dry-run", action="store_true", help="tell what would be sent, and send nothing"
    )
    add_common_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from cometmq.spark.pipelines.redrive import Choice, redrive

    signal.signal(signal.SIGTERM, _leave)
    spark = quiet_session(options, "cometmq-redrive")
    told = redrive(
        options.namesrv,
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
        options=dict(options.option),
        spark=spark,
        on_progress=lambda told: say(_progress(told)),
        on_wait=lambda: say("another redrive holds these letters: waiting for its end …"),
    )
    if options.output == "json":
        sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
    else:
        sys.stdout.write(_table(told))
    return 1 if told.refused else 0


def _leave(number: int, _: Any) -> None:
    """In order: who is killed keeps its locks for a minute."""
    raise SystemExit(128 + number)


def _progress(told: "Redriven") -> str:
    doing = "would be sent" if told.dry_run else "sent"
    return (
        f"{told.letters:,} letters, {told.sent:,} {doing}, {told.found:,} there already, "
        f"{told.refused:,} refused"
    )


def _table(told: "Redriven") -> str:
    from cometmq.spark.pipelines.report_page import moment

    lines = [_progress(told)]
    lines += [f"  {topic:<40} {count:>12,}" for topic, count in sorted(told.by_topic.items())]
    lines += [f"  refused {count:,}: {reason}" for reason, count in told.reasons.items()]
    if told.dry_run and told.samples:
        lines += ["", f"{'STORED (UTC)':<19}  {'TO':<24} {'TAGS':<12} {'KEYS':<20} ID"]
        lines += [
            f"{moment(s.stored_ms)}  {s.topic:<24} {s.tags:<12} {s.keys:<20} {s.message_id}"
            for s in told.samples
        ]
    return "\n".join(lines) + "\n"
