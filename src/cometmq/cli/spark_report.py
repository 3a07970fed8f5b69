"""`cometmq spark report`: throughput, lag and latency of topics and groups, in one HTML page."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .arguments import Commands, add_time_options
from .serving import complain
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
    from cometmq.spark.pipelines.report_figures import Report


def add_command(actions: Commands) -> None:
    parser = actions.add_parser(
        "report",
        help="throughput, lag and latency in one HTML page",
        description="Counts messages of topics, offsets of groups and, where clients trace, their "
        "reports. From a running cluster, or from a broker's files alone. Reads only.",
    )
    source = parser.add_mutually_exclusive_group()
    add_namesrv_option(source)
    source.add_argument(
        "--store", default="", metavar="PATH", help="a broker's store: no broker needs to run"
    )
    parser.add_argument("--topic", action="append", default=[], help="only this; several possible")
    parser.add_argument("--group", action="append", default=[], help="only this; several possible")
    add_time_options(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page, as in report.html")
    add_common_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from cometmq.spark.pipelines.report_page import as_page

    if problem := _problem(options):
        complain(f"report: {problem}")
        return 2
    with told_when_stopped(lambda: "report: stopped; nothing was written"):
        made = _made(options)
    if options.out is not None:
        options.out.write_text(as_page(made), encoding="utf-8")
    if options.output == "json":
        sys.stdout.write(msgspec.json.encode(made).decode() + "\n")
    else:
        sys.stdout.write(_summary(made, options.out))
    return 0


def _made(options: argparse.Namespace) -> "Report":
    with packages_needed():
        from cometmq.spark.pipelines.report import report

    namesrv, how = ("", {}) if options.store else cluster_options(options)
    return report(
        namesrv,
        store=options.store,
        topics=options.topic,
        groups=options.group,
        since_ms=options.since_ms,
        until_ms=options.until_ms,
        options=how,
        spark=quiet_session(options, "cometmq-report"),
        tell=lambda doing: say(f"{doing} …"),
    )


def _problem(options: argparse.Namespace) -> str:
    """What would be in vain; better said before than after the counting."""
    if options.out is None and options.output == "table":
        return "say where the page goes (--out report.html), or print all figures (-o json)"
    if options.store and options.option:
        return f"--option {options.option[0][0]} is for a cluster, and --store reads files alone"
    if options.out is not None and not options.out.resolve().parent.is_dir():
        return f"there is no directory {options.out.resolve().parent}"
    if options.out is not None and options.out.is_dir():
        return f"{options.out} is a directory: name a file, as in {options.out / 'report.html'}"
    return ""


def _summary(made: "Report", out: Path) -> str:
    from cometmq.spark.pipelines.readable import counted, number, size, span

    lines = [f"{'TOPIC':<40} {'MESSAGES':>14} {'BYTES':>10} {'STORED AFTER, 99 %':>19}"]
    lines += [
        f"{t.topic:<40} {number(t.messages):>14} {size(t.bytes):>10} "
        f"{span(t.stored_after_ms.p99):>19}"
        for t in made.topics
    ]
    if made.groups:
        lines += ["", f"{'GROUP':<40} {'LAG':>14} {'QUEUES':>10} {'DEAD LETTERS':>19}"]
    lines += [
        f"{g.group:<40} {number(g.lag):>14} {len(g.queues):>10} {number(g.dead_letters or 0):>19}"
        for g in made.groups
    ]
    lines += [
        "",
        f"{counted(made.messages, 'message')} in {counted(len(made.topics), 'topic')}: {out}",
        "",
    ]
    return "\n".join(lines)
