"""What became of dead letters, as both commands that redrive them tell it."""

import argparse
import sys
from typing import Any

from cometmq.spark.dead_letters.redriving import Redriven

from .view import as_json, moment


def leave(number: int, _: Any) -> None:
    """In order: who is killed keeps its locks for a minute."""
    raise SystemExit(128 + number)


def tell(told: Redriven, options: argparse.Namespace) -> int:
    """The result, and the exit code that it stands for."""
    sys.stdout.write(as_json(told) if options.output == "json" else _table(told))
    return 1 if told.refused else 0


def progress(told: Redriven) -> str:
    doing = "would be sent" if told.dry_run else "sent"
    return (
        f"{told.letters:,} letters, {told.sent:,} {doing}, {told.found:,} there already, "
        f"{told.refused:,} refused"
    )


def _table(told: Redriven) -> str:
    lines = [progress(told)]
    lines += [f"  {topic:<40} {count:>12,}" for topic, count in sorted(told.by_topic.items())]
    lines += [f"  refused {count:,}: {reason}" for reason, count in told.reasons.items()]
    if told.dry_run and told.samples:
        lines += ["", f"{'STORED (UTC)':<23}  {'TO':<24} {'TAGS':<12} {'KEYS':<20} ID"]
        lines += [
            f"{moment(s.stored_ms)}  {s.topic:<24} {s.tags:<12} {s.keys:<20} {s.message_id}"
            for s in told.samples
        ]
    return "\n".join(lines) + "\n"
