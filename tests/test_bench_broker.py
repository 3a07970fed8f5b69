"""The broker's benchmark, small and of CometMQ alone; and how its figures are judged."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from bench.broker.__main__ import parser
from bench.broker.cases import CASES, CPU, SPEED, Aim
from bench.broker.load import Load, run
from bench.broker.picture import picture
from bench.broker.runs import RUNS
from bench.broker.sides import OURS, PEER, PURE, cpu_s, own_memory_mib
from bench.broker.table import Rounds, lines, markdown
from bench.report import Line

from cometmq.client.blocking import Admin
from cometmq.testing import BlockingEmbeddedBroker

ROOT = Path(__file__).parent.parent
TIMEOUT_S = 200


def test_a_tiny_run_measures_what_needs_no_java() -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "bench.broker", "--quick", "--sides", "cometmq",
            "--growth-gib", "0.02", "--recovery-gib", "0.02", "--markdown",
            "--cases", "raw", "recovery", "growth",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [row.split(" | ") for row in done.stdout.splitlines()[2:]]
    measured = {(row[0].strip("| "), row[1]): float(row[2].replace(",", "")) for row in rows}
    assert set(measured) >= {
        ("raw", CPU), ("raw", SPEED), ("recovery", "s"),
        ("growth", "first_gib"), ("growth", "last_gib"),
    }  # fmt: skip
    assert all(value > 0 for value in measured.values())


def test_the_load_generator_counts_what_was_acknowledged(
    cometmq_broker: BlockingEmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    cometmq_broker.create_topic("load", queues=4)
    load = Load(cometmq_broker.address, "load", 64, 320, queues=4, connections=3, together=40)
    figures = run(load)
    with Admin(cometmq_broker.namesrv) as admin:
        assert admin.topics.stats("load").messages == 384
    assert figures["msgs_per_s"] > 0
    assert capsys.readouterr().out == "begin\n"


def test_a_refused_message_ends_the_load(cometmq_broker: BlockingEmbeddedBroker) -> None:
    cometmq_broker.create_topic("load", queues=2)
    load = Load(cometmq_broker.address, "load", 0, 64, queues=8)
    with pytest.raises(ConnectionError, match="queueId"):
        run(load)


def test_every_case_has_a_way_to_be_run() -> None:
    assert {case.run for case in CASES.values()} == set(RUNS)
    assert all(case.small in CASES for case in CASES.values() if case.small)


def test_an_unknown_case_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--cases", "everything"])
    assert "invalid choice: 'everything'" in capsys.readouterr().err


def test_what_a_process_uses_is_told() -> None:
    before = cpu_s(os.getpid())
    sum(range(10_000_000))
    assert cpu_s(os.getpid()) > before
    assert 5 < own_memory_mib(os.getpid()) < 10_000


# -- judgement ------------------------------------------------------------------------------------

ROUNDS: Rounds = {
    OURS: {
        "async_512": [{CPU: 5.0, SPEED: 6e4}, {CPU: 9.0, SPEED: 7e4}, {CPU: 7.0, SPEED: 2.0}],
        "queues_1": [{CPU: 4.0, SPEED: 1.0}],
        "queues_100": [{CPU: 6.0, SPEED: 1.0}],
    },
    PEER: {"async_512": [{CPU: 30.0, SPEED: 30_000.0}] * 3},
    PURE: {"async_512": [{CPU: 12.0, SPEED: 40_000.0}]},
}  # fmt: skip


def test_lines_are_ratios_of_medians() -> None:
    told = {(line.case, line.unit): line for line in lines(ROUNDS)}
    assert told["async_512", CPU] == Line(
        "async_512", 7.0, 30.0, CPU, 0.233, "Apache RocketMQ 5.5.0"
    )
    assert told["async_512", SPEED].ratio == 2.0
    assert told["async_512 (plain Python)", CPU].ratio == 0.4
    assert told["queues_100 (its own small case)", CPU].ratio == 1.5


def test_a_missed_aim_is_bold() -> None:
    table = markdown(ROUNDS)
    assert f"| async_512 | {CPU} | 7.00 | 30.0 | **0.23** | ≤ 0.22 | 12.0 | 0.40 |" in table
    assert f"| async_512 | {SPEED} | 60,000 | 30,000 | 2.00 | ≥ 1.5 | 40,000 | 1.33 |" in table
    assert f"queues_100, to its own small case | {CPU} | 6.00 | 4.00 (ours) | 1.50" in table
    assert "≤ 1.2, missed" in table


def test_a_picture_has_both_bars_of_each_case() -> None:
    drawn = ET.fromstring(picture(CPU, list(lines(ROUNDS))))
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"async_512", "async_512 (plain Python)", "7.00", "30.0", "12.0"} <= set(texts)
    bars = [float(bar.attrib["width"]) for bar in drawn.iter("{http://www.w3.org/2000/svg}rect")]
    assert bars[3] == pytest.approx(bars[4] * 7 / 30, abs=0.1)


def test_aims_are_those_that_were_set() -> None:
    assert CASES["async_512"].aims == {CPU: Aim(most=0.22), SPEED: Aim(least=1.5)}
    assert CASES["push"].aims[CPU] == Aim(most=0.3)
    assert CASES["recovery"].aims["s"] == Aim(most=0.7)
    assert CASES["sync_flush_64"].aims[SPEED] == Aim(least=1.2)
