"""The command line: one parser, one module for each group of commands."""

import argparse
import logging
import sys
from collections.abc import Sequence

from cometmq import __version__
from cometmq.protocol import hot
from cometmq.spark.errors import SparkError
from cometmq.store.errors import StoreError

from . import broker, namesrv, spark, standalone, store


def main(arguments: Sequence[str] | None = None) -> int:
    parser = build_parser()
    options = parser.parse_args(arguments)
    level = logging.INFO if options.verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return int(options.run(options))
    except (SparkError, StoreError, OSError) as error:
        sys.stderr.write(f"cometmq: {error}\n")
        return 1


def build_parser() -> argparse.ArgumentParser:
    codec = "compiled codec" if hot.COMPILED else "plain Python codec"
    parser = argparse.ArgumentParser(
        prog="cometmq", description="RocketMQ's messaging system in Python."
    )
    parser.add_argument("--version", action="version", version=f"cometmq {__version__} ({codec})")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell what is going on")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    standalone.add_commands(commands)
    namesrv.add_commands(commands)
    broker.add_commands(commands)
    store.add_commands(commands)
    spark.add_commands(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
