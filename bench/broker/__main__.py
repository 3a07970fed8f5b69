"""Benchmark of the broker beside Apache RocketMQ's: `python -m bench.broker`.

Both are driven by the same unmodified Java client and by a raw load generator, one after the other
in rounds that alternate; figures are medians of the rounds. CPU time is that of the broker's
process, all threads. A bold ratio in the table misses its aim.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Final

from interop.rocketmq import RocketMQError
from interop.toolchain import ToolchainError

from .. import ending
from ..child import ChildFailed
from ..report import Figures, Line, print_lines, progress, told
from ..used_memory import FRESH_MEMORY, Fill, used_memory
from .cases import CASES, Case
from .picture import UNIT_NAMES, picture
from .runs import RUNS, Place
from .sides import OURS, PEER, PURE, SIDES, serving
from .table import lines, markdown

QUICK_SHARE: Final = 0.1
QUICK_GIB: Final = 0.25
GROWTH_GIB, RECOVERY_GIB = 20.0, 4.0

Gathered = dict[str, dict[str, list[Figures]]]


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    found: Gathered = {side: {} for side in options.sides}
    with used_memory(options.data_dir, wanted=not options.fresh_memory) as fill:
        whole = _run_all(options, found, fill)
    if not options.markdown:
        print_lines(lines(found))
    print(markdown(found), file=sys.stdout if options.markdown else sys.stderr)
    if options.pictures is not None:
        _draw(options.pictures, list(lines(found)))
    return 0 if whole else 1


def _run_all(options: argparse.Namespace, found: Gathered, fill: Fill) -> bool:
    whole = True
    for number in range(options.repeat or (1 if options.quick else 3)):
        # Who comes first takes turns, too: a machine's minutes differ.
        sides = options.sides if number % 2 == 0 else options.sides[::-1]
        for side in sides:
            for group in _groups(side, options.cases or list(CASES)):
                whole &= _run_group(side, group, options, found[side], fill)
    return whole


def _draw(directory: Path, told: list[Line]) -> None:
    """One picture a unit that has a name for people."""
    directory.mkdir(parents=True, exist_ok=True)
    for unit in UNIT_NAMES.keys() & {line.unit for line in told}:
        (directory / f"broker-{unit}.svg").write_text(picture(unit, told))


def _groups(side: str, names: list[str]) -> Iterator[list[str]]:
    """Cases that share a broker: neighbours with one configuration, unless one wants it alone."""
    chosen = [name for name in CASES if name in names and (side != PURE or CASES[name].plain)]

    def shared(name: str) -> object:
        case = CASES[name]
        return (sorted(case.config.items()), name if case.alone else "")

    for _, group in groupby(chosen, shared):
        yield list(group)


def _run_group(
    side: str,
    names: list[str],
    options: argparse.Namespace,
    found: dict[str, list[Figures]],
    fill: Fill,
) -> bool:
    """A case that fails is told, and does not take the others' figures along."""
    whole = True
    with ExitStack() as stack:
        scratch = tempfile.TemporaryDirectory(prefix="bench-broker-", dir=options.data_dir)
        home = Path(stack.enter_context(scratch))
        try:
            cluster = stack.enter_context(serving(side, home, CASES[names[0]].config))
        except (RocketMQError, ToolchainError) as error:
            progress(f"{side} did not start: {error}")
            return False
        share = QUICK_SHARE if options.quick else 1.0
        place = Place(cluster, home, share * options.share, *_sizes(options))
        for name in names:
            fill()
            figures = _run(side, name, CASES[name], place)
            if figures is None:
                whole = False
            else:
                found.setdefault(name, []).append(figures)
    return whole


def _run(side: str, name: str, case: Case, place: Place) -> Figures | None:
    try:
        figures = RUNS[case.run](place, case)
    except (ChildFailed, OSError, RocketMQError) as error:
        progress(f"{name} {side} has no figures: {error}")
        return None
    progress(f"{name} {side}: {told(figures)}")
    return figures


def _sizes(options: argparse.Namespace) -> tuple[float, float]:
    growth, recovery = (QUICK_GIB, QUICK_GIB) if options.quick else (GROWTH_GIB, RECOVERY_GIB)
    return options.growth_gib or growth, options.recovery_gib or recovery


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.broker", description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, help="only these")
    parser.add_argument(
        "--sides", nargs="+", choices=SIDES, default=[OURS, PEER, PURE], help="whose brokers"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, one round")
    parser.add_argument("--share", type=float, default=1.0, help="of the messages of each case")
    parser.add_argument("--repeat", type=int, help="rounds (3, quick 1)")
    parser.add_argument("--growth-gib", type=float, help=f"of log at the end ({GROWTH_GIB:g})")
    parser.add_argument("--recovery-gib", type=float, help=f"of log ({RECOVERY_GIB:g})")
    parser.add_argument("--data-dir", type=Path, help="where logs go for the time being")
    parser.add_argument("--fresh-memory", action="store_true", help=FRESH_MEMORY)
    parser.add_argument("--pictures", type=Path, help="a directory for pictures of the figures")
    parser.add_argument("--markdown", action="store_true", help="print the docs' table instead")
    return parser


if __name__ == "__main__":
    ending.run(main)
