"""Writes the reference in docs/cli.md out of the parsers of the commands.

Everything behind the marker is made here; what stands before it is written by hand. Run it after a
change of a command: `python -m tools.cli_reference`; a test compares.
"""

from pathlib import Path

from cometmq.cli.exits import MEANINGS
from cometmq.cli.tree import Argument, Node, command_tree

TARGET = Path(__file__).parents[1] / "docs" / "cli.md"
MARK = "<!-- made by tools/cli_reference.py: change the commands, not this -->\n"
COMMON = "which cluster"
"""Options that most commands have: told once."""
_HELP = "--help"


def document() -> str:
    """The page as it should be."""
    return TARGET.read_text().partition(MARK)[0] + MARK + reference()


def reference() -> str:
    tree = command_tree()
    leaves = [node for node in tree.walk() if node.path]
    shared = next(node for node in leaves if node.path == ("topic", "list"))
    common = [option for option in shared.options if option.group == COMMON]
    parts = [
        "\n## Exit codes\n\n| code | says |\n|---|---|\n",
        *(f"| {int(code)} | {_escaped(meaning)} |\n" for code, meaning in MEANINGS.items()),
        "\n## Which cluster\n\nOptions of every command that talks to one, but for "
        "`cometmq spark`, which has `-n` and `--option tls=true` …, and without `-n` takes the "
        "context with its TLS and keys:\n\n",
        _table(common),
        *(_section(node) for node in leaves),
    ]
    return "".join(parts)


def _section(node: Node) -> str:
    level = "##" if len(node.path) == 1 else "###"
    told = ". ".join(filter(None, [_capital(node.purpose), node.description])).rstrip(".")
    # A line for each pair of choices depends on the version of Python; the names do not.
    values = " ".join(_positional(one) for one in node.arguments if not one.names)
    command = " ".join(filter(None, ["cometmq", *node.path, values]))
    own = [one for one in node.arguments if one.group != COMMON and _is_told(one)]
    reaches = any(one.group == COMMON for one in node.arguments)
    note = "\nAnd those of [which cluster](#which-cluster).\n" if reaches else ""
    table = f"\n{_table(own)}" if own else ""
    return f"\n{level} `{command}`\n\n{told}.\n{table}{note}"


def _is_told(argument: Argument) -> bool:
    return bool(argument.names or argument.purpose) and _HELP not in argument.names


def _positional(argument: Argument) -> str:
    return argument.value if argument.value.isupper() else argument.value.upper()


def _table(arguments: list[Argument]) -> str:
    rows = "".join(f"| {_name(one)} | {_escaped(one.purpose)} |\n" for one in arguments)
    return f"| | |\n|---|---|\n{rows}"


def _name(argument: Argument) -> str:
    value = f" {argument.value}" if argument.value else ""
    named = f"{', '.join(argument.names)}{value}" if argument.names else _positional(argument)
    return f"`{_escaped(named)}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    TARGET.write_text(document())
