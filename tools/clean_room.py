"""Whether a newcomer's first commands work: a fresh copy of the repository, an empty home, and
nothing on the PATH but Python, make and the tools that every system has; no compiler, Java or git.
Short: both targets are planned, a demo and a few tests run with the packages of whoever calls.
`--full`, by `make clean-room`: `make demo` and `make test` themselves.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
NOT_COPIED: Final = (
    ".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".cache", ".hypothesis",
    "__pycache__", "build", "dist", "cometmq-data", "*.egg-info", "*.so",
)  # fmt: skip
_BASE = """
awk basename bash cat chmod cp cut date dirname env expand expr false find grep head hostname id ln
ls mkdir mktemp mv nice nohup ps pwd readlink rm rmdir sed seq sh sleep sort tail tar test touch tr
true uname uniq wc which xargs
"""
BASE: Final = tuple(_BASE.split())
"""Of the system itself: scripts of Spark and recipes of make use them."""
SHORT_S: Final = 240.0
FULL_S: Final = 3 * 3600.0
SHORT: Final = (
    ("make", "--dry-run", "demo"),
    ("make", "--dry-run", "test"),
    ("python3", "-m", "examples.store_demo"),
    ("python3", "-m", "pytest", "tests/test_settings.py", "tests/protocol/test_names.py"),
)
FULL: Final = (("make", "demo"), ("make", "test"))


def fresh_copy(place: Path) -> Path:
    copy = place / "cometmq"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
    return copy


def programs(place: Path) -> Path:
    """A directory of the only programs there are."""
    directory = place / "bin"
    directory.mkdir()
    for name in ("make", *BASE):
        found = shutil.which(name)
        if found is not None:
            (directory / name).symlink_to(found)
    python = directory / "python3"
    # Not a link: an environment's interpreter knows its packages by its own place.
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return directory


def surroundings(place: Path, copy: Path, *, full: bool) -> dict[str, str]:
    home = place / "home"
    home.mkdir()
    kept = {
        name: value
        for name, value in os.environ.items()
        # How to reach an index is the machine's business.
        if name.startswith(("PIP_", "SSL_", "REQUESTS_")) or name.lower().endswith("_proxy")
    }
    # The packages of whoever calls, but the sources of the copy.
    sources = {} if full else {"PYTHONPATH": os.pathsep.join([f"{copy / 'src'}", *_extra_paths()])}
    return {
        **kept, **sources, "PATH": str(programs(place)), "HOME": str(home), "LANG": "C.UTF-8",
    }  # fmt: skip


def _extra_paths() -> list[str]:
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [path for path in paths if path and not Path(path).is_relative_to(ROOT)]


def main() -> int:
    full = "--full" in sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="cometmq-clean-") as directory:
        place = Path(directory)
        copy = fresh_copy(place)
        environment = surroundings(place, copy, full=full)
        for command in FULL if full else SHORT:
            sys.stdout.write(f"$ {' '.join(command)}\n")
            sys.stdout.flush()
            done = subprocess.run(
                [str(place / "bin" / command[0]), *command[1:]],
                cwd=copy, env=environment, check=False, timeout=FULL_S if full else SHORT_S,
            )  # fmt: skip
            if done.returncode:
                sys.stderr.write(f"{' '.join(command)} ended with {done.returncode}\n")
                return 1
    sys.stdout.write("all of it works in a clean room\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
