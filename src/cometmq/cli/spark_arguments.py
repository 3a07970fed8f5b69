"""What the commands for pipelines have in common: the cluster, options of the source, progress."""

import argparse
import sys
from typing import Any

from .arguments import add_output_option, pair
from .connection import DEFAULT_NAMESRV, NAMESRV_VARIABLE, chosen_context
from .spark_session import add_session_options


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Those that every pipeline ends with."""
    parser.add_argument(
        "--option", action="append", default=[], type=pair, metavar="NAME=VALUE",
        help="how to reach the cluster, as in tls=true or accessKey=…; may be given again",
    )  # fmt: skip
    add_session_options(parser)
    add_output_option(parser)


def add_namesrv_option(parser: Any, purpose: str = "of the cluster") -> None:
    parser.add_argument(
        "-n", "--namesrv", default="", metavar="ADDRESS",
        help=f"{purpose} (that of the context, then {NAMESRV_VARIABLE}, then {DEFAULT_NAMESRV})",
    )  # fmt: skip


def cluster_options(options: argparse.Namespace) -> tuple[str, dict[str, str]]:
    """The NameServer, and options of the source that say how to reach the cluster."""
    given = dict(options.option)
    if options.namesrv:
        return options.namesrv, given
    context = chosen_context()
    told = {
        "tls": "true" if context.tls else "",
        "tlsCaFile": context.tls_ca,
        "accessKey": context.access_key,
        "secretKey": context.secret_key,
        "securityToken": context.security_token,
    }
    return context.namesrv, {name: value for name, value in told.items() if value} | given


def say(text: str) -> None:
    """Progress, beside the result."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
