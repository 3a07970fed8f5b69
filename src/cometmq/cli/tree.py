"""The commands as a tree of names, purposes and options, as docs and completion need them. Pure."""

import argparse
import dataclasses
from collections.abc import Iterator
from typing import Any

from .commands import COMMANDS, build_parser


@dataclasses.dataclass(frozen=True)
class Argument:
    names: tuple[str, ...]
    """Of an option; a positional argument has none."""
    value: str
    """What stands for its value; empty when it takes none."""
    purpose: str
    choices: tuple[str, ...] = ()
    group: str = ""


@dataclasses.dataclass(frozen=True)
class Node:
    path: tuple[str, ...]
    purpose: str
    description: str
    usage: str
    arguments: tuple[Argument, ...]
    children: tuple["Node", ...]

    @property
    def options(self) -> list[Argument]:
        return [argument for argument in self.arguments if argument.names]

    def walk(self) -> Iterator["Node"]:
        yield self
        for child in self.children:
            yield from child.walk()


def command_tree() -> Node:
    """All commands; every module is imported for it."""
    return _node(build_parser(*COMMANDS), (), "")


def _node(parser: argparse.ArgumentParser, path: tuple[str, ...], purpose: str) -> Node:
    arguments: list[Argument] = []
    children: list[Node] = []
    for group in parser._action_groups:  # noqa: SLF001 - argparse shows them nowhere else
        for action in group._group_actions:  # noqa: SLF001
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                children = _children(action, path)
            elif action.help != argparse.SUPPRESS:
                arguments.append(_argument(action, group.title or ""))
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    description = parser.description or ""
    return Node(path, purpose, description, usage, tuple(arguments), tuple(children))


def _children(action: Any, path: tuple[str, ...]) -> list[Node]:
    """Without the other names of the same."""
    return [
        _node(action.choices[choice.dest], (*path, choice.dest), choice.help)
        for choice in action._choices_actions  # noqa: SLF001 - has the purposes
    ]


def _argument(action: argparse.Action, group: str) -> Argument:
    value = ""
    if action.nargs != 0:
        named = action.metavar if isinstance(action.metavar, str) else None
        listed = "|".join(map(str, action.choices)) if action.choices else None
        value = named or listed or (action.dest.upper() if action.option_strings else action.dest)
    choices = tuple(map(str, action.choices or ()))
    purpose = (action.help or "") % vars(action)  # As argparse shows it.
    return Argument(tuple(action.option_strings), value, purpose, choices, group)
