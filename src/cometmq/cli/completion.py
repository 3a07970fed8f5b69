"""`cometmq completion`: scripts that complete commands, options and their values.

A script holds all words, so that completing starts no Python; make it anew after an upgrade.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Final

from .tree import Node, command_tree

_HOW: Final = {
    "bash": 'eval "$(cometmq completion bash)", as in ~/.bashrc',
    "zsh": 'eval "$(cometmq completion zsh)", as in ~/.zshrc behind compinit',
    "fish": "cometmq completion fish > ~/.config/fish/completions/cometmq.fish",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Prints a script. " + "; ".join(
        f"{shell}: {how}" for shell, how in _HOW.items()
    )
    parser.add_argument("shell", choices=tuple(_HOW))
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    writers: Mapping[str, Callable[[Node], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
    sys.stdout.write(writers[options.shell](command_tree()))
    return 0


def _words(node: Node) -> dict[str, str]:
    """What can follow a command, and what it is for."""
    words = {child.path[-1]: child.purpose for child in node.children}
    for argument in node.arguments:
        if argument.names:
            words |= dict.fromkeys(argument.names, argument.purpose)
        else:
            words |= dict.fromkeys(argument.choices, argument.purpose)
    return words


def _values(tree: Node) -> dict[str, list[str]]:
    """Values of options that take a few; an option means the same everywhere."""
    values: dict[str, list[str]] = {}
    for node in tree.walk():
        for option in node.options:
            for name in option.names if option.choices else ():
                known = values.setdefault(name, [])
                known += [choice for choice in option.choices if choice not in known]
    return dict(sorted(values.items()))


def _place(node: Node) -> str:
    return " ".join(node.path)


def bash(tree: Node) -> str:
    places = "|".join(f'"{_place(node)}"' for node in tree.walk() if node.path)
    values = "".join(f'        {n}) words="{" ".join(v)}" ;;\n' for n, v in _values(tree).items())
    words = "".join(
        f'            "{_place(node)}") words="{" ".join(_words(node))}" ;;\n'
        for node in tree.walk()
    )
    return f"""\
_cometmq() {{
    local here="" word words="" current="${{COMP_WORDS[COMP_CWORD]}}"
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "${{here:+$here }}$word" in
            {places}) here="${{here:+$here }}$word" ;;
        esac
    done
    case "${{COMP_WORDS[COMP_CWORD-1]}}" in
{values}        *) case "$here" in
{words}        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _cometmq cometmq
"""


def zsh(tree: Node) -> str:
    places = "|".join(f'"{_place(node)}"' for node in tree.walk() if node.path)
    values = "".join(
        f"        {name}) compadd -- {' '.join(choices)}; return ;;\n"
        for name, choices in _values(tree).items()
    )
    words = "".join(
        f'        "{_place(node)}") found=({" ".join(_described(node))}) ;;\n'
        for node in tree.walk()
    )
    return f"""\
#compdef cometmq
_cometmq() {{
    local here="" word
    local -a found
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        case "${{here:+$here }}$word" in
            {places}) here="${{here:+$here }}$word" ;;
        esac
    done
    case "${{words[CURRENT-1]}}" in
{values}    esac
    case "$here" in
{words}    esac
    _describe cometmq found || _files
}}
compdef _cometmq cometmq
"""


def _described(node: Node) -> list[str]:
    return [_quoted(f"{w.replace(':', chr(92) + ':')}:{p}") for w, p in _words(node).items()]


def fish(tree: Node) -> str:
    places = " ".join(f"'{_place(node)}'" for node in tree.walk() if node.path)
    lines = [
        f"complete -c cometmq -n '__cometmq_at {_place(node)}' {_fish_word(word)} "
        f"-d {_quoted(purpose)}"
        for node in tree.walk()
        for word, purpose in _words(node).items()
    ]
    lines += [
        f"complete -c cometmq {_fish_word(name)} -x -a {_quoted(' '.join(choices))}"
        for name, choices in _values(tree).items()
    ]
    return f"""\
function __cometmq_at
    set -l here
    for word in (commandline -opc)[2..-1]
        if contains -- (string join -- ' ' $here $word) {places}
            set here $here $word
        end
    end
    test "$here" = "$argv"
end
{chr(10).join(lines)}
"""


def _fish_word(word: str) -> str:
    if word.startswith("--"):
        return f"-l {word[2:]}"
    return f"-s {word[1:]}" if word.startswith("-") else f"-f -a {word}"


def _quoted(text: str) -> str:
    """As one word of a shell."""
    return "'" + text.replace("'", "’") + "'"
