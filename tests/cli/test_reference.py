"""docs/cli.md is what the commands say, and its examples are commands."""

import re
import shlex

import pytest
from tools import cli_reference

from cometmq.cli.commands import build_parser, chosen_in

PAGE = cli_reference.TARGET.read_text()
EXAMPLES = [
    command.replace("\\|", "|")
    for command in re.findall(
        r"(?:^\$ |`|\"\$\()(cometmq [a-z]+ [^`\n]*?)(?:&?\n|`|\)\")",
        PAGE.partition(cli_reference.MARK)[0], re.MULTILINE,
    )
]  # fmt: skip


def test_the_reference_is_what_the_commands_say() -> None:
    assert cli_reference.document() == PAGE, "run `python -m tools.cli_reference`"


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 15


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_can_be_read(example: str) -> None:
    words = shlex.split(example)[1:]
    if words[-1] in {"redrive"}:  # Named, not shown.
        return
    assert build_parser(chosen_in(words)).parse_args(words).run is not None
