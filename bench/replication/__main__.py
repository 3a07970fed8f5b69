"""Benchmark of replication beside Apache RocketMQ's: `python -m bench.replication`.

Groups of brokers serve one after the other, in rounds that alternate, driven by the same unmodified
Java client; figures are medians of the rounds. CPU time is the sum of all brokers of a group. A
bold ratio in the table misses its aim.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from interop.rocketmq import RocketMQError
from interop.toolchain import ToolchainError

from .. import ending
from ..broker.cases import CASES
from ..broker.runs import RUNS, Place
from ..child import ChildFailed
from ..report import Figures, print_lines, progress, told
from .comparisons import lines, markdown
from .setups import SETUPS, serving

BY_JAVA: Final = ("async_512", "sync_64")
DRIVEN_BY: Final = (*BY_JAVA, "raw")
"""Those of `bench.broker`'s cases that a group can be measured with."""
QUICK_SHARE: Final = 0.1

Gathered = dict[str, dict[str, list[Figures]]]


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    found: Gathered = {setup: {} for setup in options.setups}
    whole = True
    for number in range(options.repeat or (1 if options.quick else 3)):
        # Who comes first takes turns, too: a machine's minutes differ.
        setups = options.setups if number % 2 == 0 else options.setups[::-1]
        for setup in setups:
            whole &= _run_setup(setup, options, found[setup])
    if not options.markdown:
        print_lines(lines(found))
    print(markdown(found), file=sys.stdout if options.markdown else sys.stderr)
    return 0 if whole else 1


def _run_setup(name: str, options: argparse.Namespace, found: dict[str, list[Figures]]) -> bool:
    """Whether all cases have figures; those that do are kept."""
    scratch = tempfile.TemporaryDirectory(prefix="bench-replication-", dir=options.data_dir)
    share = (QUICK_SHARE if options.quick else 1.0) * options.share
    with scratch as home:
        try:
            with serving(SETUPS[name], Path(home)) as (cluster, others):
                place = Place(cluster, Path(home), share, replicas=others)
                for case in options.cases:
                    figures = RUNS[CASES[case].run](place, CASES[case])
                    progress(f"{case} {name}: {told(figures)}")
                    found.setdefault(case, []).append(figures)
        except (ChildFailed, OSError, RocketMQError, ToolchainError) as error:
            progress(f"{name} has no figures, or not all: {error}")
            return False
    return True


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.replication", description=__doc__)
    parser.add_argument("--setups", nargs="+", choices=SETUPS, default=list(SETUPS))
    parser.add_argument("--cases", nargs="+", choices=DRIVEN_BY, default=list(BY_JAVA))
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, one round")
    parser.add_argument("--share", type=float, default=1.0, help="of the messages of each case")
    parser.add_argument("--repeat", type=int, help="rounds (3, quick 1)")
    parser.add_argument("--data-dir", type=Path, help="where logs go for the time being")
    parser.add_argument("--markdown", action="store_true", help="print the docs' table instead")
    return parser


if __name__ == "__main__":
    ending.run(main)
