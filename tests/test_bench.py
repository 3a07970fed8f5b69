"""The benchmarks, small: the client's runs to its end, of Spark's the parts without Spark."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import msgspec
import pytest
from bench.client import CASES
from bench.ending import INTERRUPTED
from bench.meter import Drain, body
from bench.report import Figures, Line
from bench.spark.__main__ import parser
from bench.spark.bench import Bench, Pids
from bench.spark.cases import CASES as SPARK_CASES
from bench.spark.cases import Place, Side
from bench.spark.decoder import decode
from bench.spark.fill import QUEUES, fill_store
from bench.spark.fill import body as spark_body
from bench.spark.processes import CpuMeter
from bench.spark.spark_process import SparkProcess
from bench.spark.table import Row, lines, markdown

from cometmq.protocol.record import iter_records
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore

from .spark.stalls import below

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


def test_one_that_is_stopped_ends_what_it_has_started_and_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.client", "--peers", "asyncio"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "a first case is measured"
        started = list(below(process.pid))
        assert len(started) >= 2, "NameServer and broker"
        process.terminate()
        _, said = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == INTERRUPTED
    assert "stopped before its end" in said
    assert "Traceback" not in said
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []
    assert list(tmp_path.iterdir()) == []


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


# -- bench.spark ----------------------------------------------------------------------------------

PLACE = Place("127.0.0.1:1", "/store", "127.0.0.1:2", "/few")


@pytest.mark.parametrize("name", SPARK_CASES)
def test_both_sides_of_a_case_do_the_same_with_as_many_columns(name: str) -> None:
    case = SPARK_CASES[name]
    ours, kafka = case.ours.run(PLACE, "t", 9), case.kafka.run(PLACE, "t", 9)
    assert (ours.rows, kafka.rows) == (9, 9)
    brokers = case.ours.columns.count("brokerName")  # Which the archive cannot do without.
    assert len(case.ours.columns) - brokers == len(case.kafka.columns)
    assert ours.options.get("maxOffsetsPerTrigger") == kafka.options.get("maxOffsetsPerTrigger")
    if ours.kind == kafka.kind:
        assert ours.to == kafka.to
    else:
        assert (ours.kind, kafka.kind, kafka.to) == ("archive", "stream", "parquet")


def test_ours_reads_the_columns_it_is_asked_for_and_kafkas_leaves_the_others_out() -> None:
    case = SPARK_CASES["topic_noop"]
    ours, kafka = case.ours.run(PLACE, "t", 9), case.kafka.run(PLACE, "t", 9)
    assert ours.options["columns"] == "topic,queueId,queueOffset,storeTimestamp,keys,body"
    assert ours.select == ()
    assert kafka.select == ("topic", "partition", "offset", "timestamp", "key", "value")
    assert kafka.options == {"kafka.bootstrap.servers": "127.0.0.1:2", "subscribe": "t"}


def test_the_issues_aims_are_those_of_the_cases() -> None:
    aims = {name: case.aim for name, case in SPARK_CASES.items() if case.aim}
    assert aims == {
        "topic_noop": 1.3, "log_noop": 1.8, "log_parquet": 1.5, "stream_noop": 1.0,
        "archive": 3.0, "sink": 1.3,
    }  # fmt: skip


def test_sparks_own_settings_change_only_where_a_case_is_called_so() -> None:
    changed = {name for name, case in SPARK_CASES.items() if case.ours.settings}
    assert changed == {"sink_by_rows"}
    by_rows, plain = SPARK_CASES["sink_by_rows"], SPARK_CASES["sink"]
    assert by_rows.ours._replace(settings={}) == plain.ours
    assert by_rows.kafka == plain.kafka
    assert not any(case.kafka.settings for case in SPARK_CASES.values())


def test_both_sides_warm_up_and_are_first_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's compiler works for the other side as well: whoever comes second is better off."""
    order: list[str] = []

    def run(_: Bench, spark: SparkProcess, side: Side, *others: object) -> Figures:
        order.append(side.format)
        return {"rows_per_s": float(len(order))}

    monkeypatch.setattr(Bench, "_run", run)
    asked = Bench(PLACE, Pids(1, 2), messages=9, repeat=2, fill_memory=lambda: None)
    row = asked.compare(cast("SparkProcess", None), "topic_noop")
    ours, kafka = "rocketmq", "kafka"
    assert order == [ours, kafka, kafka, ours, ours, kafka, kafka, ours]
    assert [one["rows_per_s"] for one in row.ours] == [5.0, 8.0]
    assert [one["rows_per_s"] for one in row.kafka] == [6.0, 7.0]


def test_sparks_benchmark_refuses_an_unknown_case(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--cases", "everything"])
    assert "invalid choice: 'everything'" in capsys.readouterr().err


def test_a_filled_store_has_every_message_once_and_the_decoder_reads_them(tmp_path: Path) -> None:
    fill_store(tmp_path, "t", 1000)
    store = MessageStore(StoreConfig(root=tmp_path))
    store.open()
    try:
        found = [
            message.body
            for queue in range(QUEUES)
            for piece in store.read("t", queue, 0, count_max=1000, bytes_max=1 << 20).slices
            for message in iter_records(piece)
        ]
    finally:
        store.close()
    assert sorted(found) == [spark_body(number) for number in range(1000)]
    for log in (False, True):
        figures = decode(str(tmp_path), "body,keys", log, 0.1)
        assert figures["records_per_cpu_s"] > 0


def test_cpu_time_of_a_process_that_has_ended_counts() -> None:
    burn = "import time\nwhile time.process_time() < 0.6: pass"
    # Its parent does not wait for it, as Spark's daemon does not.
    start = "import signal, subprocess, sys, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    start += f"subprocess.Popen([sys.executable, '-c', {burn!r}]).wait()\nsys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", start], stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        with CpuMeter(process.pid) as used:
            deadline = time.monotonic() + 60
            while used.seconds < 0.4 and time.monotonic() < deadline:
                time.sleep(0.05)
        assert used.seconds >= 0.4
    finally:
        process.stdin.close()
        process.wait(60)


def test_a_row_tells_the_medians_and_how_they_compare() -> None:
    row = Row("topic_noop", 1.3, loads=[0.5, 2.0])
    for speed, kafka in ((100.0, 50.0), (300.0, 100.0), (200.0, 400.0)):
        mine = {"rows_per_s": speed, "cpu_us_per_row": 1.0, "broker_cpu_us_per_row": 0.5}
        row.ours.append(mine)
        row.kafka.append({**mine, "rows_per_s": kafka})
    told = {(line.unit, line.peer_name): line.ratio for line in lines(row)}
    assert told["rows_per_s", "Spark's Kafka connector"] == 2.0
    assert told["ratio", "aim"] == pytest.approx(2 / 1.3, abs=0.001)
    cells = "| 200 | 100 | 2.00 | 2.00, 3.00, 0.50 | ≥ 1.3 | 1.00 + 0.50 | 1.00 + 0.50 |"
    assert f"| `topic_noop` {cells}" in markdown([row], [])
