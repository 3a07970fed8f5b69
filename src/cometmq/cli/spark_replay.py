"""`cometmq spark replay`: messages of a lake, a store's files or a topic, sent again."""

import argparse
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from .arguments import Commands, add_time_options, moment_ms, positive
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
    from cometmq.spark.pipelines.replay_run import Replayed


class _Moment(NamedTuple):
    typed: str
    """By which a checkpoint knows it: what `2h` means is another time in each run."""
    ms: int


def add_command(actions: Commands) -> None:
    parser = actions.add_parser(
        "replay",
        help="send messages of a lake, a store or a topic again",
        description="From each source queue to one queue, in order. Body, tags, keys and the "
        "sender's properties stay; the property REPLAYED_FROM tells where a message comes from. "
        "With a checkpoint it can be killed at any time and run again, and sends every message "
        "once; when an answer is lost on its way, a message may come twice, with the same id.",
    )
    add_namesrv_option(parser, "where messages go")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--from", dest="lake", default="", metavar="PATH",
        help="a lake of `cometmq spark archive`, or a directory of Parquet with such columns",
    )  # fmt: skip
    source.add_argument(
        "--from-log", dest="store", default="", metavar="STORE", help="a broker's store directory"
    )
    source.add_argument(
        "--from-topics", action="store_true", help="the topics named by --topic, of a cluster"
    )
    parser.add_argument(
        "--from-namesrv", default="", metavar="ADDRESS", help="of another cluster (--from-topics)"
    )
    parser.add_argument(
        "--topic", action="append", default=[], help="of the source; several possible"
    )
    parser.add_argument("--to", default="", metavar="TOPIC", help="instead of the same names")
    add_time_options(parser)
    parser.register("type", moment_ms, _moment)
    parser.add_argument(
        "--offsets", type=_range, default=(None, None), metavar="FIRST:END",
        help="of every queue, END not with it; one side may be missing, as in 100:",
    )  # fmt: skip
    parser.add_argument(
        "--where", default="", metavar="SQL",
        help="only those: SQL over the source's columns, as in \"tags = 'paid' and queueId < 2\"",
    )  # fmt: skip
    parser.add_argument(
        "--keep-queues", action="store_true", help="to the queue of the same number"
    )
    parser.add_argument("--rate", type=positive, metavar="N", help="at most so many a second")
    parser.add_argument(
        "--checkpoint", default="", metavar="DIR", help="keep how far it is, to go on from there"
    )
    parser.add_argument("--dry-run", action="store_true", help="count, show some, and send nothing")
    add_common_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    with told_when_stopped(lambda: _goes_on(options)):
        told = _replayed(options)
    if options.output == "json":
        sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
    else:
        sys.stdout.write(_table(told))
    return 0


def _replayed(options: argparse.Namespace) -> "Replayed":
    with packages_needed():
        from cometmq.spark.pipelines.replay import replay
        from cometmq.spark.pipelines.replay_sources import Choice

    namesrv, how = cluster_options(options)
    first, end = options.offsets
    since, until = options.since_ms, options.until_ms
    return replay(
        namesrv,
        lake=options.lake,
        store=options.store,
        source_namesrv=options.from_namesrv,
        to=options.to,
        choice=Choice(
            topics=tuple(options.topic),
            since_ms=since.ms if since else None,
            until_ms=until.ms if until else None,
            times_typed=tuple(when.typed if when else "" for when in (since, until)),
            first_offset=first,
            end_offset=end,
            where=options.where,
        ),
        keep_queues=options.keep_queues,
        rate=options.rate,
        checkpoint=options.checkpoint,
        dry_run=options.dry_run,
        options=how,
        spark=quiet_session(options, "cometmq-replay"),
        on_progress=_progress(time.monotonic()),
    )


def _goes_on(options: argparse.Namespace) -> str:
    if options.dry_run:
        return "replay: stopped; nothing was sent"
    if options.checkpoint:
        return "replay: stopped; the same command goes on from here"
    return "replay: stopped; without a checkpoint the same command sends everything again"


def _moment(text: str) -> _Moment:
    return _Moment(text.strip(), moment_ms(text))


def _range(text: str) -> tuple[int | None, int | None]:
    first, mark, end = text.partition(":")
    if not mark or not (first + end).isdigit():
        raise argparse.ArgumentTypeError(f"{text!r}: FIRST:END is expected, as in 100:200 or 100:")
    return int(first) if first else None, int(end) if end else None


def _progress(begun: float) -> "Callable[[Replayed], None]":
    def tell(told: "Replayed") -> None:
        seconds = max(time.monotonic() - begun, 0.001)
        say(
            f"step {told.steps_done} of {told.steps}: {told.sent + told.found:,} of "
            f"{told.messages:,} messages, {told.sent / seconds:,.0f}/s"
        )

    return tell


def _table(told: "Replayed") -> str:
    from cometmq.spark.pipelines.readable import counted, moment, size

    doing = "would be sent" if told.dry_run else "to be sent"
    lines = [f"{counted(told.messages, 'message')} ({size(told.bytes)}) of {told.source} {doing}"]
    if not told.dry_run:
        lines.append(f"{told.sent:,} sent now, {told.found:,} by earlier runs")
    lines += [f"  {topic:<40} {count:>14,}" for topic, count in sorted(told.by_topic.items())]
    lines += [f"  {queue} → {to}" for queue, to in told.queues.items() if told.dry_run]
    if told.samples:
        lines += ["", f"{'STORED (UTC)':<19}  {'FROM':<40} {'TAGS':<12} {'BYTES':>8}  KEYS"]
    lines += [
        f"{moment(one.stored_ms)}  {one.place:<40} {one.tags:<12} {one.bytes:>8,}  {one.keys}"
        for one in told.samples
    ]
    return "\n".join(lines) + "\n"
