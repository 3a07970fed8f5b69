"""All commands by name, and the parser that knows them.

Each command is a module of the same name with `add_arguments(parser)`. It is imported when it is
chosen, so that nobody waits for what another command needs.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any, Final

COMMANDS: Final = {
    "standalone": "run a NameServer and brokers with one command",
    "namesrv": "run a NameServer",
    "broker": "run a broker; list, look at and configure running ones",
    "config": "settings of servers: values, origins, meaning",
    "cluster": "list clusters",
    "topic": "list, look at, create, change and delete topics",
    "group": "list, look at, create and delete consumer groups",
    "offset": "where groups are in their topics, and moving them",
    "message": "find messages by id, key, place or time; their traces",
    "dlq": "dead letters: list, look at, send again",
    "send": "send messages",
    "consume": "read messages as a member of a group",
    "tail": "read a topic's newest messages, without a group",
    "bench": "put a load on a cluster and measure it",
    "doctor": "find what usually goes wrong, and say what to do about it",
    "context": "names for clusters, so that commands need no address",
    "store": "look after the files of a stopped broker",
    "spark": "data pipelines on Apache Spark",
    "completion": "a script that completes commands in bash, zsh or fish",
}


def chosen_in(arguments: Sequence[str]) -> str:
    """The command among the arguments; options that stand before it have no values."""
    return next((word for word in arguments if not word.startswith("-")), "")


def build_parser(*filled: str) -> argparse.ArgumentParser:
    """All commands by name and purpose; those that are named here with their arguments, too."""
    parser = argparse.ArgumentParser(
        prog="cometmq",
        description="RocketMQ's messaging system in Python.",
        epilog="`cometmq COMMAND --help` tells more of a command.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell what is going on")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, purpose in COMMANDS.items():
        command = commands.add_parser(name, help=purpose)
        if name in filled:
            importlib.import_module(f".{name}", __package__).add_arguments(command)
    return parser


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from cometmq import __version__
        from cometmq.protocol import hot

        codec = "compiled codec" if hot.COMPILED else "plain Python codec"
        sys.stdout.write(f"cometmq {__version__} ({codec})\n")
        parser.exit(0)
