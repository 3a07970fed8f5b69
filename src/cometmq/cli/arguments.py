"""Values and options that several commands take, and how they are read."""

import argparse
import datetime as dt
import re
import sys
import time
from pathlib import Path
from typing import Any, Final

from .exits import WrongUse

Commands = Any  # argparse does not name the type of its sub-parsers
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
WATCH_S: Final = 2.0
DEFAULT_DATA_DIR: Final = Path("cometmq-data")
"""Of servers that are not told another one."""


def add_settings_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--config", type=Path, action="append", default=[], metavar="FILE",
        help="settings: TOML, or RocketMQ's key=value, which wins over TOML; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
        help="one setting, over files and environment; may be repeated",
    )  # fmt: skip


def add_output_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table",
        help="for people, or for programs (table)",
    )  # fmt: skip


def add_watch_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--watch", nargs="?", type=positive, const=WATCH_S, metavar="SECONDS",
        help=f"show it again and again, every {WATCH_S:g} seconds or as often as said",
    )  # fmt: skip


def add_time_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since", dest="since_ms", type=moment_ms, metavar="WHEN",
        help="messages stored from then on: a time (2026-11-16T08:00; UTC unless it says else) or "
        "how long ago (30s, 15m, 2h, 7d)",
    )  # fmt: skip
    parser.add_argument(
        "--until", dest="until_ms", type=moment_ms, metavar="WHEN",
        help="messages stored before then",
    )  # fmt: skip


def add_yes_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask whether it is meant")


def add_target_options(parser: argparse.ArgumentParser) -> None:
    """Which brokers a change is for."""
    parser.add_argument("--cluster", default="", help="needed where there are several")
    parser.add_argument(
        "--broker", action="append", default=[], metavar="NAME",
        help="only this one; may be given again",
    )  # fmt: skip


def moment_ms(text: str) -> int:
    """Milliseconds since 1970."""
    ago = _SPAN.fullmatch(text.strip())
    if ago is not None:
        return round((time.time() - float(ago[1]) * _UNITS_S[ago[2]]) * 1000)
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: 2026-11-16, 2026-11-16T08:00, or 30s, 15m, 2h, 7d ago"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return round(moment.timestamp() * 1000)


def span_s(text: str) -> float:
    """Seconds; `500ms`, `10s`, `5m`, `2h`, `1d`, or a bare number of seconds."""
    span = _SPAN.fullmatch(text.strip())
    if span is not None:
        return float(span[1]) * _UNITS_S[span[2]]
    try:
        return positive(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no span of time: 500ms, 10s, 5m, 2h, 1d"
        ) from None


def positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: a number over 0 is expected")
    return number


def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 on is expected")
    return int(text)


def pair(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark or not name:
        raise argparse.ArgumentTypeError(f"{text!r}: NAME=VALUE is expected")
    return name, value


def require_yes(options: argparse.Namespace, question: str) -> None:
    """Asks at a terminal; elsewhere nobody could answer. WrongUse when it is not meant."""
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise WrongUse(f"{question} Say so with --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise WrongUse("nothing was done")
