"""Benchmark of the store by itself: `python -m bench.store`.

Ours is the compiled twin of the hot functions, the peer is plain Python. Each run is a process of
its own on a fresh store; the twins take turns, so that other work on the machine hits both.
"""

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from . import ending
from .child import ChildFailed, Task, run_child
from .report import Figures, Line, line, markdown, median, print_lines, progress, table, told

RUNS_MODULE = "bench.store_runs"
PLAIN = "plain Python"

Runs = tuple[list[Figures], list[Figures]]
"""Of the compiled twin, of plain Python."""
Before = Callable[[Path, bool], None]
"""Prepares a run's directory, for plain Python or not."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much each run does, so that none takes more than 20 s and 2 GiB of disk."""

    messages: int = 256_000
    recovery_mib: int = 240
    """Below one log file, so that all of it is verified."""
    recovery_plain_mib: int = 48
    """For plain Python, which is slow enough to be measured with less."""
    sync_seconds: float = 4.0
    repeat: int = 5


QUICK = Sizes(messages=16_000, recovery_mib=48, recovery_plain_mib=4, sync_seconds=0.4, repeat=1)


class Bench:
    """Runs measurements, each on a directory of its own that is removed afterwards."""

    def __init__(self, sizes: Sizes, data_dir: Path) -> None:
        self.sizes = sizes
        self._data_dir = data_dir

    @contextmanager
    def directory(self) -> Iterator[Path]:
        path = Path(tempfile.mkdtemp(prefix="bench-store-", dir=self._data_dir))
        try:
            yield path
        finally:
            shutil.rmtree(path)

    def measure(self, root: Path, name: str, task: Task, *, pure: bool = False) -> Figures:
        figures = run_child(RUNS_MODULE, name, {"root": str(root), **task}, pure=pure)
        asked = " ".join(f"{key}={value}" for key, value in task.items())
        progress(f"{name} {asked} {PLAIN if pure else 'compiled'}: {told(figures)}")
        return figures

    def compiled(self, name: str, task: Task) -> list[Figures]:
        runs = []
        for _ in range(self.sizes.repeat):
            with self.directory() as root:
                runs.append(self.measure(root, name, task))
        return runs

    def both(self, name: str, task: Task, before: Before | None = None) -> Runs:
        """Runs of the compiled twin and of plain Python, taking turns."""
        runs: Runs = ([], [])
        for _ in range(self.sizes.repeat):
            for pure in (False, True):
                with self.directory() as root:
                    if before is not None:
                        before(root, pure)
                    runs[pure].append(self.measure(root, name, task, pure=pure))
        return runs


def _compare(runs: Runs, figure: str, case: str, unit: str) -> Line:
    return line(case, median(runs[0], figure), median(runs[1], figure), unit, PLAIN)


def append_dispatch(bench: Bench) -> Iterator[Line]:
    """One read of 32 messages a turn of the loop; a busy turn of eight; records without a seal."""
    for seal, reads, suffix in ((True, 1, ""), (True, 8, "_busy"), (False, 1, "_unsealed")):
        task = {"count": bench.sizes.messages, "seal": seal, "reads_per_turn": reads}
        runs = bench.both("append_dispatch", task)
        for figure in ("append_dispatch", "append", "dispatch"):
            yield _compare(runs, figure, figure + suffix, "cpu_us_per_msg")


def read(bench: Bench) -> Iterator[Line]:
    runs = bench.both("read", {"count": bench.sizes.messages // 2})
    for figure in ("read", "read_tag_quarter"):
        yield _compare(runs, figure, figure, "cpu_us_per_msg")


def recovery(bench: Bench) -> Iterator[Line]:
    def write_and_crash(root: Path, pure: bool) -> None:
        mib = bench.sizes.recovery_plain_mib if pure else bench.sizes.recovery_mib
        run_child(RUNS_MODULE, "crash", {"root": str(root), "mib": mib})

    for rebuild, case in ((False, "recovery_verify"), (True, "recovery_rebuild")):
        runs = bench.both("recover", {"rebuild": rebuild}, write_and_crash)
        yield _compare(runs, "mib_per_s", case, "mib_per_s")
        yield _compare(runs, "s_per_gib", f"{case}_time", "s_per_gib")


def sync_flush(bench: Bench) -> Iterator[Line]:
    seconds = bench.sizes.sync_seconds
    raw = bench.compiled("raw_sync", {})
    new, again = median(raw, "new_us"), median(raw, "written_us")
    yield line("fdatasync_16k", new, again, "us", "blocks written before")
    blocking = bench.both("sync_flush", {"writers": 0, "seconds": seconds})
    yield _compare(blocking, "msgs_per_s", "sync_flush_blocking", "msgs_per_s")
    single = bench.both("sync_flush", {"writers": 1, "seconds": seconds})
    yield _compare(single, "msgs_per_s", "sync_flush_1", "msgs_per_s")
    many = bench.compiled("sync_flush", {"writers": 64, "seconds": seconds})
    together, alone = median(many, "msgs_per_s"), median(single[0], "msgs_per_s")
    yield line("sync_flush_64", together, alone, "msgs_per_s", "1 writer")


CASES: dict[str, Callable[[Bench], Iterator[Line]]] = {
    "append_dispatch": append_dispatch,
    "read": read,
    "recovery": recovery,
    "sync_flush": sync_flush,
}


def main() -> int:
    options = _arguments()
    sizes = QUICK if options.quick else Sizes()
    if options.repeat:
        sizes = msgspec.structs.replace(sizes, repeat=options.repeat)
    bench = Bench(sizes, options.data_dir)
    lines: list[Line] = []
    try:
        for case in options.cases or CASES:
            for each in CASES[case](bench):
                lines.append(each)
                if not options.markdown:
                    print_lines([each])
    except ChildFailed as failed:
        progress(f"stopped: {failed}")
        return 1
    if options.markdown:
        print(markdown(lines))
    progress("\n" + table(lines))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.store", description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, help="only these")
    parser.add_argument("--quick", action="store_true", help="small sizes, under 40 s in all")
    parser.add_argument("--repeat", type=int, help="runs a figure (5, quick 1)")
    parser.add_argument("--data-dir", type=Path, help="where the stores go for the time being")
    parser.add_argument("--markdown", action="store_true", help="print rows for the docs instead")
    return parser.parse_args()


if __name__ == "__main__":
    ending.run(main)
