"""The examples run."""

import subprocess
import sys
from pathlib import Path


def test_the_store_demo_ends_well() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "examples.store_demo", "4000"],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "none lost" in result.stdout
    assert "order-1234" in result.stdout
