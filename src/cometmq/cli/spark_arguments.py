"""What the commands for pipelines have in common: times, options of the source, a quiet session."""

import argparse
import datetime as dt
import re
import sys
import time
from typing import TYPE_CHECKING, Final

from .spark_session import add_session_options, prepare_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_AGO: Final = re.compile(r"(\d+)([smhd])")


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


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Those that every pipeline ends with."""
    parser.add_argument(
        "--option", action="append", default=[], type=_pair, metavar="NAME=VALUE",
        help="how to reach the cluster, as in tls=true or accessKey=…; may be given again",
    )  # fmt: skip
    add_session_options(parser)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")


def moment_ms(text: str) -> int:
    """Milliseconds since 1970."""
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return round(time.time() * 1000) - int(ago[1]) * _UNITS_S[ago[2]] * 1000
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: 2026-11-16, 2026-11-16T08:00, or 30s, 15m, 2h, 7d ago"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return round(moment.timestamp() * 1000)


def quiet_session(options: argparse.Namespace, name: str) -> "SparkSession":
    """As the options say. What a pipeline tells of its progress is not lost among Spark's lines."""
    from cometmq.spark.session import is_connect, session

    prepare_session(options)
    spark = session(name)
    if not is_connect(spark):
        spark.sparkContext.setLogLevel("ERROR")
    return spark


def say(text: str) -> None:
    """Progress, beside the result."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _pair(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark or not name:
        raise argparse.ArgumentTypeError(f"{text!r}: NAME=VALUE is expected")
    return name, value
