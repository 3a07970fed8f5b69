"""Where Spark runs, and with which settings: options of commands that run a user's own code."""

import argparse
import contextlib
from collections.abc import Iterator, Mapping


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


def prepare_session(options: argparse.Namespace, defaults: Mapping[str, str] | None = None) -> None:
    """The sessions of this process will be as the options say. `defaults` are settings that the
    user may have set otherwise; a Spark Connect server takes none."""
    from cometmq.spark.launch import PY_FILES, prepare, settings_of
    from cometmq.spark.session import is_connect_address

    own = {} if is_connect_address(options.master) else defaults or {}
    settings = {**own, **settings_of(options.conf)}
    if options.py_files:
        settings[PY_FILES] = options.py_files
    prepare(options.master, settings)


@contextlib.contextmanager
def packages_needed() -> Iterator[None]:
    """Around imports of what needs packages of `cometmq[spark]`: NotReady names a missing one."""
    from cometmq.spark.errors import NotReady

    try:
        yield
    except ImportError as missing:
        raise NotReady(f"{missing}: pip install 'cometmq[spark]'") from missing
