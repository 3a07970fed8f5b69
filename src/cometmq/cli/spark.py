"""`cometmq spark`: what has to do with Spark. Nothing of it is imported before a command runs."""

import argparse
import sys
from typing import TYPE_CHECKING

import msgspec

from . import (
    spark_archive,
    spark_compact,
    spark_redrive,
    spark_replay,
    spark_report,
    spark_shell,
    spark_submit,
)
from .spark_session import add_session_options, prepare_session

if TYPE_CHECKING:
    from cometmq.spark.doctor import Finding


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    doctor = actions.add_parser(
        "doctor",
        help="say what is missing for Spark, and what to do about it",
        description="Looks at Python, packages, Java, memory and disk, and runs a small query; "
        "with the master of a cluster, looks at the workers there.",
    )
    doctor.add_argument(
        "-n", "--namesrv", default="", metavar="ADDRESS", help="ask a NameServer, too"
    )
    doctor.add_argument("--no-query", action="store_true", help="do not start Spark")
    add_session_options(doctor)
    doctor.add_argument("-o", "--output", choices=("table", "json"), default="table")
    doctor.set_defaults(run=run_doctor)
    spark_archive.add_command(actions)
    spark_compact.add_command(actions)
    spark_redrive.add_command(actions)
    spark_replay.add_command(actions)
    spark_report.add_command(actions)
    spark_submit.add_command(actions)
    spark_shell.add_command(actions)


def run_doctor(options: argparse.Namespace) -> int:
    from cometmq.spark.doctor import examine

    if not options.master.startswith("local"):
        prepare_session(options)
    findings = []
    for finding in examine(
        options.namesrv, query=not options.no_query, master=options.master,
        quiet=not options.verbose,
    ):  # fmt: skip
        findings.append(finding)
        if options.output == "table":
            sys.stdout.write(as_line(finding))
            sys.stdout.flush()
    if options.output == "json":
        told = [{"ok": finding.is_well, **finding._asdict()} for finding in findings]
        sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
    return 0 if all(finding.is_well for finding in findings) else 1


def as_line(finding: "Finding") -> str:
    line = f"{'ok' if finding.is_well else 'PROBLEM':<8} {finding.what}: {finding.found}\n"
    return line if finding.is_well else f"{line}{'':<9}→ {finding.advice}\n"
