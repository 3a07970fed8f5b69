"""The benchmark of the client, small: every case runs to its end and prints what it should."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from bench.client import CASES
from bench.meter import Drain, body
from bench.report import Line

ROOT = Path(__file__).parent.parent
TIMEOUT_S = 200


def test_a_quick_run_measures_every_case_and_says_which_peer_it_could_not_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.client", "--quick", "--peers", "asyncio", "grpc"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [msgspec.json.decode(text, type=Line) for text in done.stdout.splitlines()]
    units = {name: set(case.units) for name, case in CASES.items()}
    for name, case in CASES.items():
        if case.aim_per_cpu_s:
            units[name].add("msgs_per_cpu_s")
    told: dict[str, set[str]] = {name: set() for name in CASES}
    for line in lines:
        told[line.case].add(line.unit)
        assert line.ours > 0
        assert line.ratio == pytest.approx(line.ours / line.peer, rel=0.01, abs=0.001)
    assert told == units
    assert "peer not run: rocketmq-python-client" in done.stderr
    assert "it needs --system rocketmq" in done.stderr


def test_an_unknown_case_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.client", "--cases", "everything"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 2
    assert "invalid choice: 'everything'" in done.stderr


def test_a_drain_has_figures_when_each_message_came_once() -> None:
    ended: list[bool] = []
    drain = Drain(2, 3, lambda: ended.append(True))
    for number in (4, 0, 1, 3):
        drain.take(body(number))
    assert not ended
    drain.take(body(2))
    assert ended
    figures = drain.figures()
    assert set(figures) == {"cpu_us_per_msg", "msgs_per_s", "msgs_per_cpu_s"}
    assert figures["msgs_per_s"] > 0


def test_a_drain_that_got_a_message_twice_has_none() -> None:
    drain = Drain(1, 2, lambda: None)
    for number in (0, 1, 1):
        drain.take(body(number))
    with pytest.raises(AssertionError, match="lost or repeated"):
        drain.figures()
