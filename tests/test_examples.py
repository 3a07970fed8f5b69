"""The examples run, at a broker of their own and at a cluster that is given, and tell the truth."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.testing import EmbeddedBroker

EXAMPLES = Path(__file__).parents[1] / "examples"
LINES_MAX = 40
DEMOS = {"store_demo", "broker_demo", "spark_demo"}
BESIDE = {"__init__", "cluster"}
SAYS = {
    "send": r"stored in queue [0-3], status OK\nthe batch is in one queue: True\n",
    "in_flight": r"5000 messages stored, [\d,]+ a second\n",
    "push": r"order 0 \[coffee\]\norder 1 \[tea\]\norder 3 \[tea\]\n",
    "orderly": "".join(rf"order-{n} ordered → paid → sent → arrived\n" for n in (1, 2, 3)),
    "pull": "".join(rf"{n} line {n}\n" for n in range(5))
    + r"again: \['line 3', 'line 4'\]\ncommitted: 5\n",
    "broadcasting": r"left got new prices\nright got new prices\n",
    "delayed": r"(at once: now\n|by time: late\n|by level 1, a second: late\n){3}",
    "transactions": r"ben ROLLBACK\nanna COMMIT\nconsumers see: \['anna'\]\n",
    "request_reply": r"2\+2 = 4\n40\+2 = 42\n",
    "sql_filter": r"\['tea'\]\nrefused: BadSubscription 23\n",
    "retries": r"moody: attempt 1\nmoody: attempt 2\n",
    "dead_letters": r"dead: illegible \['letter-1'\] of example-letters\nsent again: legible\n",
    "admin": r"brokers: \['broker-a'\]\nlag: 9\nskipped: \[5, 5\]\nlag: 0\nfound: 7\n",
    "blocking_script": (
        r"stored at broker-a\nin flight: \['OK', 'OK'\]\ntaken: \['more', 'more', 'one coffee'\]\n"
    ),
    "test_orders": r"(?s).*examples/test_orders.py \..*1 passed.*",
}
"""What each prints, from its first character to its last."""


def run_example(name: str, *arguments: str, quiet: bool = True) -> str:
    """What it prints. Java writes its own warnings to stderr (`quiet=False`)."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-m", f"examples.{name}", *arguments],
        cwd=EXAMPLES.parent,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (result.returncode, result.stderr if quiet else "") == (0, ""), result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    settings = {"enablePropertyFilter": True, "recallMessageEnable": True}
    with EmbeddedBroker(in_memory=True, settings=settings) as broker:
        yield broker.namesrv


def test_each_example_is_named_here_and_small() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")} - DEMOS - BESIDE
    assert names == set(SAYS)
    for name in names:
        assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= LINES_MAX, name


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs_at_a_broker_of_its_own(name: str) -> None:
    output = run_example(name)
    assert re.fullmatch(SAYS[name], output), output


@pytest.mark.parametrize("name", [name for name in SAYS if name != "test_orders"])
def test_an_example_runs_at_a_cluster_that_is_given(name: str, cluster: str) -> None:
    output = run_example(name, cluster)
    assert re.fullmatch(SAYS[name], output), output


def test_the_store_demo_ends_well() -> None:
    output = run_example("store_demo", "4000")
    assert "none lost" in output
    assert "order-1234" in output


def test_the_broker_demo_ends_well() -> None:
    output = run_example("broker_demo", "1000")
    assert "1000 messages are there, none lost" in output
    assert re.search(r"order-999 is in queue [0-3] at \d+\n", output)
    assert "exit code 0" in output


def test_the_spark_demo_ends_well(tmp_path: Path) -> None:
    output = run_example("spark_demo", "6000", str(tmp_path / "demo"), quiet=False)
    assert "6000 orders sent, 6000 rows in the lake, 6000 different ones" in output
    alerts = re.findall(r'\{"shop":"s3","city":"Porto","orders":\d+,"failed":(\d+),', output)
    assert alerts
    assert all(int(failed) >= 25 for failed in alerts)
    assert "orders: 6000 messages" in output
    assert f"alerts: {len(alerts)} messages" in output


def test_the_spark_demo_leaves_what_others_have_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    with pytest.raises(AssertionError, match=r"is not empty: name another directory"):
        run_example("spark_demo", "100", str(tmp_path))
    assert mine.read_text() == "precious"
