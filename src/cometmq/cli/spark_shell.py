"""`cometmq spark shell`: a Python prompt with a session ready."""

import argparse
import code
import contextlib

from .arguments import Commands
from .spark_session import add_session_options, prepare_session

_BANNER = """\
Spark {version} at {master}. `spark` is the session; topics are read by
    spark.read.format("rocketmq").option("namesrvAddr", "…").option("topic", "…").load()"""


def add_command(actions: Commands) -> None:
    parser = actions.add_parser(
        "shell",
        help="a Python prompt with `spark` ready",
        description="Opens a Python prompt in which `spark` is a session that knows our formats.",
    )
    add_session_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from cometmq.spark import session

    prepare_session(options)
    spark = session("cometmq spark shell", options.master)
    with contextlib.suppress(ImportError):  # Not in every Python; the prompt works without.
        import readline  # noqa: F401
    try:
        banner = _BANNER.format(version=spark.version, master=options.master)
        code.interact(banner, local={"spark": spark}, exitmsg="")
    finally:
        spark.stop()
    return 0
