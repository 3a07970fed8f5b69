"""`cometmq completion`: shells complete by their scripts, which know all commands."""

import shutil
import subprocess
from collections.abc import Callable

import pytest

from cometmq.cli.completion import bash, fish, zsh
from cometmq.cli.tree import command_tree

from .program import Program


def said(script: str, *shell: str) -> set[str]:
    """The first word of every line that a shell prints; it complains about nothing."""
    ran = subprocess.run([*shell, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    return {line.split()[0] for line in ran.stdout.splitlines() if line}


def quoted(words: tuple[str, ...]) -> str:
    return " ".join(f"'{word}'" for word in words)


def by_bash(script: str, *words: str) -> set[str]:
    asked = f"COMP_WORDS=({quoted(words)}); COMP_CWORD={len(words) - 1}; _cometmq\n"
    return said(f'{script}\n{asked}printf "%s\\n" "${{COMPREPLY[@]}}"', "bash")


def by_zsh(script: str, *words: str) -> set[str]:
    """What the script hands over to zsh's own functions, which only a terminal has; all words of a
    place, since it is zsh that leaves out those which do not fit."""
    own = (
        'compdef() {}; compadd() { print -l -- "${@:2}" }; _describe() { print -l -- ${(P)2%%:*} }'
    )
    asked = f"words=({quoted(words)}); CURRENT={len(words)}; _cometmq"
    found = said(f"{own}\n{script}\n{asked}", "zsh", "-f")
    return {word for word in found if word.startswith(words[-1])}


def by_fish(script: str, *words: str) -> set[str]:
    return said(f"{script}\ncomplete -C {quoted((' '.join(words),))}", "fish", "--no-config")


@pytest.mark.parametrize("by", [by_bash, by_zsh, by_fish])
def test_shells_complete_commands_actions_options_and_values(
    by: Callable[..., set[str]], lonely: Program
) -> None:
    shell = by.__name__.removeprefix("by_")
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    script = lonely("completion", shell).out

    def completed(*words: str) -> set[str]:
        """What is offered for the last word."""
        return by(script, "cometmq", *words)

    assert completed("to") == {"topic"}
    assert {"list", "show", "create"} <= completed("topic", "")
    assert completed("topic", "cr") == {"create"}
    assert completed("topic", "create", "x", "--qu") == {"--queues"}
    assert completed("topic", "list", "-n", "mq:9876", "--timeout", "3", "--wa") == {"--watch"}
    assert completed("topic", "list", "-o", "") == {"table", "json"}
    assert completed("broker", "config", "g") == {"get"}
    assert completed("completion", "z") == {"zsh"}
    assert completed("spark", "red") == {"redrive"}


@pytest.mark.parametrize("write", [bash, zsh, fish])
def test_all_scripts_know_all_commands(write: object) -> None:
    tree = command_tree()
    script = write(tree)  # type: ignore[operator]
    for node in tree.walk():
        assert " ".join(node.path) in script
        for option in node.options:
            assert all(name.lstrip("-") in script for name in option.names)
