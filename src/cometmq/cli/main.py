"""The command line: finds the command, runs it, and tells errors in a line and by an exit code."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .commands import build_parser, chosen_in

if TYPE_CHECKING:
    import argparse


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = build_parser(chosen_in(given)).parse_args(given)
    _log(verbose=options.verbose)
    try:
        return _run(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _forget_output()
        return 141


def _run(options: "argparse.Namespace") -> int:
    try:
        code = int(options.run(options))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except Exception as error:
        from .failures import told

        failure = told(error)
        if failure is None:
            raise
        sys.stderr.write(f"cometmq: {failure[1]}\n")
        return int(failure[0])
    return code


def _log(*, verbose: bool) -> None:
    import logging

    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _forget_output() -> None:
    """Nobody reads it any more; what is still in our buffers must not be written at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
