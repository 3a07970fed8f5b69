"""What a newcomer gets: commands that work in a clean room, packages that work outside of it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(tool: str, *arguments: str, timeout_s: float) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"tools.{tool}", *arguments],
        cwd=ROOT, timeout=timeout_s, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


@pytest.mark.timeout(600)
def test_demo_and_tests_start_with_an_empty_home_and_only_python_and_make() -> None:
    said = run("clean_room", timeout_s=550)
    assert said.endswith("all of it works in a clean room\n")
    assert "-m examples.spark_demo" in said, "what `make demo` would do is told"


@pytest.mark.timeout(900)
def test_sdist_and_wheel_work_outside_the_repository_without_a_compiler() -> None:
    # With a compiler, too, by `make clean-room`; `make setup` has compiled already.
    said = run("check_package", "--plain", timeout_s=850)
    assert "ok without a compiler\n" in said
