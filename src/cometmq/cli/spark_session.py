"""Where Spark runs, and with which settings: options of commands that run a user's own code."""

import argparse


def add_session_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--master",
        default="local[*]",
        metavar="URL",
        help="local[N], spark://HOST:PORT, sc://HOST:PORT (Spark Connect) …; default: %(default)s",
    )
    parser.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE",
        help="a setting of Spark; can be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--py-files", default="", metavar="FILES",
        help="Python files and zips that workers get, with commas between",
    )  # fmt: skip


def prepare_session(options: argparse.Namespace) -> None:
    """The sessions of this process will be as the options say."""
    from cometmq.spark.launch import PY_FILES, prepare, settings_of

    settings = settings_of(options.conf)
    if options.py_files:
        settings[PY_FILES] = options.py_files
    prepare(options.master, settings)
