"""The examples run."""

import subprocess
import sys
from pathlib import Path


def run_example(name: str, *arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, "-m", f"examples.{name}", *arguments],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_store_demo_ends_well() -> None:
    output = run_example("store_demo", "4000")
    assert "none lost" in output
    assert "order-1234" in output


def test_the_broker_demo_ends_well() -> None:
    output = run_example("broker_demo", "1000")
    assert "1001 messages are there, none lost" in output
    assert "order-999 is in queue 3 at 249" in output
    assert "exit code 0" in output
