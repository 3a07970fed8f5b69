"""`cometmq spark …` as a command: exit codes, what is told before Spark starts, signals, quiet."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from cometmq.cli import spark_archive, spark_redrive, spark_replay, spark_report
from cometmq.cli.exits import Exit
from cometmq.cli.failures import told
from cometmq.cli.main import main
from cometmq.client.blocking import Admin, Producer
from cometmq.client.errors import (
    BadSubscription,
    IllegalArgument,
    NoPermission,
    TopicNotFound,
    Unreachable,
)
from cometmq.spark.errors import BadOption, ClusterAway, NotPermitted, NotReady, NotThere
from cometmq.spark.pipelines.failures import plain
from cometmq.spark.topic import patience
from cometmq.testing import BlockingEmbeddedBroker

from .sending import send
from .streaming import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINES = (spark_archive, spark_redrive, spark_replay, spark_report)
AWAY = ("-n", "127.0.0.1:1")


@pytest.fixture(autouse=True)
def _nowhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No context and no address of the user's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("NAMESRV_ADDR", "COMETMQ_CONTEXT", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(patience, "PATIENCE_S", 0.0)


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        pytest.fail("Spark was started")

    monkeypatch.setattr(sys.modules["cometmq.spark.session"], "session", refuse)


@pytest.fixture
def in_session(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    for command in PIPELINES:
        monkeypatch.setattr(command, "quiet_session", lambda *_: spark)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """The exit code, and what was said: one line."""
    try:
        code = main(["spark", *map(str, arguments)])
    except SystemExit as ended:  # By argparse, which shows the usage as well.
        code = int(str(ended.code))
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return code, said.strip().splitlines()[-1]


# -- exit codes ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_spark")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("archive --topic t --lake {0} --option nonsense=1", "unknown option nonsense"),
        ("archive --pattern ( --lake {0}", "subscribePattern"),
        ("archive --topic t --lake {0} --interval soon", "interval is a time"),
        ("archive --topic t --lake {0} --columns nonsense", "no column nonsense"),
        ("archive --topic t --lake {0} --columns body", "brokerName is not there"),
        ("archive --topic t --lake {0} --conf nonsense", "--conf nonsense"),
        ("replay --from {0} --option nonsense=1", "nonsense"),
        ("replay --from {0} --rate -3", "--rate"),
        ("replay --from {0} --to t/t", "t/t"),
        ("replay --from-topics --topic t", "into itself"),
        ("replay --from-topics --to t", "name the topics"),
        ("redrive --group g --option nonsense=1", "nonsense"),
        ("redrive --group g --limit 0", "limit"),
        ("redrive --group g/g", "g/g"),
        ("report -o json --option nonsense=1", "nonsense"),
        ("report -o json --since 1m --until 2m", "since is not before until"),
        ("report --out {0}", "{0} is a directory: name a file, as in {0}/report.html"),
        ("submit missing.py", "there is no script missing.py"),
        ("submit --conf spark.x s.py", "--conf spark.x"),
        ("compact --lake {0} --retention 1h", "retention"),
    ],
)
def test_a_wrong_command_line_is_refused_before_spark_starts(
    line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = refused(capsys, *line.format(tmp_path).split())
    assert (code, said.format(tmp_path) in told) == (Exit.USAGE, True), told


@pytest.mark.usefixtures("without_spark")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("archive --topic absent --lake {0}", "there is no topic absent"),
        ("replay --from {0}/absent", "there is no {0}/absent"),
        ("replay --from-log {0}/absent", "{0}/absent is no store"),
        ("replay --from-topics --topic SELF_TEST_TOPIC --to absent", "there is no topic absent"),
        ("redrive --group absent", "there is no topic %DLQ%absent"),
        ("report -o json --topic absent", "there is no topic absent"),
        ("report -o json --store {0}/absent", "{0}/absent is no store"),
        ("compact --lake {0}/absent", "is no lake"),
    ],
)
def test_what_is_not_there_is_told_before_spark_starts(
    line: str,
    said: str,
    tmp_path: Path,
    broker: BlockingEmbeddedBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv)
    code, told = refused(capsys, *line.format(tmp_path).split())
    assert (code, said.format(tmp_path) in told) == (Exit.NOT_FOUND, True), told


@pytest.mark.usefixtures("without_spark")
@pytest.mark.parametrize(
    "line",
    [
        "archive --topic t --lake {0}",
        "replay --from {0} --to t",
        "replay --from-topics --topic t --to u",
        "redrive --group g",
        "report -o json",
    ],
)
def test_a_cluster_that_is_away_is_told_before_spark_starts(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = refused(capsys, *line.format(tmp_path).split(), *AWAY)
    assert (code, "127.0.0.1:1" in told) == (Exit.UNREACHABLE, True), told
    assert "Unreachable:" not in told, "no name of a class"


@pytest.mark.usefixtures("in_session")
def test_what_spark_does_not_find_or_understand_is_told_in_plain_words(
    tmp_path: Path, broker: BlockingEmbeddedBroker, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv)
    broker.create_topic("asked-for", 1)
    code, told = refused(capsys, "replay", "--from", f"{tmp_path}/*/absent", "--to", "asked-for")
    assert (code, "absent" in told) == (Exit.NOT_FOUND, True), told
    assert "Exception" not in told
    given = ("--from-topics", "--topic", "asked-for", "--to", "asked-for-too")
    broker.create_topic("asked-for-too", 1)
    code, told = refused(capsys, "replay", *given, "--where", "nonsense > 3")
    assert (code, "nonsense" in told) == (Exit.USAGE, True), told
    assert "Exception" not in told


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadOption("x"), Exit.USAGE),
        (NotThere("x"), Exit.NOT_FOUND),
        (ClusterAway("x"), Exit.UNREACHABLE),
        (NotPermitted("x"), Exit.NOT_PERMITTED),
        (NotReady("x"), Exit.FAILED),
    ],
)
def test_errors_of_pipelines_have_the_exit_codes_of_all_commands(
    error: Exception, code: Exit
) -> None:
    assert told(error) == (code, "x")


def test_what_a_cluster_says_keeps_its_exit_code_and_its_words() -> None:
    for error, code in (
        (Unreachable("no connection"), Exit.UNREACHABLE),
        (NoPermission("not you"), Exit.NOT_PERMITTED),
        (TopicNotFound("no such topic"), Exit.NOT_FOUND),
        (IllegalArgument("5 is too much"), Exit.USAGE),
        (BadSubscription("mend it"), Exit.FAILED),
    ):
        of_driver = plain(error)
        kind = type(error)
        of_worker = plain(Exception(f"Traceback\n{kind.__module__}.{kind.__name__}: {error}\n"))
        for found in (of_driver, of_worker):
            assert str(found) == str(error)
            answer = told(found)
            assert answer is not None
            assert answer[0] == code


# -- signals, and what is heard of Spark ---------------------------------------------------------

TIMEOUT_S = 120
COUNT = 1000
SMALL = ("--master", "local[2]", "--conf", "spark.driver.memory=600m")


class Running:
    """A command in a process group of its own, and what it says."""

    def __init__(self, said: Path, *arguments: object) -> None:
        self._said = said
        with said.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cometmq.cli.main", "spark", *map(str, arguments), *SMALL],
                stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True,
            )  # fmt: skip

    def lines(self) -> list[str]:
        return self._said.read_text().splitlines()

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_S)

    def others(self) -> list[str]:
        """Of its group, those that still run, as Java would."""
        there = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                name, _, rest = status.read_text().rpartition(") ")
                state, _, group = rest.split()[:3]
                if int(group) == self.process.pid and state != "Z":
                    there.append(name)
        return there


@contextlib.contextmanager
def running(said: Path, *arguments: object) -> Iterator[Running]:
    command = Running(said, *arguments)
    try:
        yield command
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(command.process.pid, signal.SIGKILL)
        command.process.communicate()


def test_ctrl_c_ends_a_replay_in_a_line_and_the_same_command_goes_on(
    broker: BlockingEmbeddedBroker, producer: Producer, tmp_path: Path
) -> None:
    for topic in ("stopped", "gone-on"):
        broker.create_topic(topic, 2)
    send(producer, "stopped", COUNT, queues=range(2))
    line = (
        "replay", "-n", broker.namesrv, "--from-topics", "--topic", "stopped", "--to", "gone-on",
        "--checkpoint", tmp_path / "checkpoint",
    )  # fmt: skip
    with Admin(broker.namesrv) as admin:

        def count() -> int:
            queues = admin.topics.stats("gone-on").queues.values()
            return sum(queue.max_offset for queue in queues)

        with running(tmp_path / "first", *line, "--rate", COUNT // 20) as command:
            until(lambda: count() > 0)
            assert command.end(signal.SIGINT) == Exit.INTERRUPTED
            assert command.lines() == [
                "cometmq: replay: stopped; the same command goes on from here"
            ]
            until(lambda: not command.others())
        assert count() < COUNT
        with running(tmp_path / "second", *line) as command:
            assert command.process.wait(TIMEOUT_S) == 0
            assert [text.partition(":")[0] for text in command.lines()] == ["step 1 of 1"]
        assert count() == COUNT


def test_an_archive_that_is_ended_before_all_is_archived_says_so_by_its_exit_code(
    broker: BlockingEmbeddedBroker, producer: Producer, tmp_path: Path
) -> None:
    broker.create_topic("begun", 1)
    send(producer, "begun", COUNT, queues=[0])
    line = ("archive", "-n", broker.namesrv, "--topic", "begun", "--lake", tmp_path / "lake")
    once = ("--once", "--option", "maxOffsetsPerTrigger=1")
    with running(tmp_path / "said", *line, *once) as command:
        until(lambda: any("batch 0" in text for text in command.lines()))
        assert command.end(signal.SIGTERM) == Exit.TERMINATED


def test_sigterm_ends_an_archive_behind_its_batch(
    broker: BlockingEmbeddedBroker, producer: Producer, tmp_path: Path
) -> None:
    broker.create_topic("ended", 1)
    send(producer, "ended", COUNT, queues=[0])
    line = ("archive", "-n", broker.namesrv, "--topic", "ended", "--lake", tmp_path / "lake")
    with running(tmp_path / "said", *line, "--interval", "1s") as command:
        until(lambda: any("batch 0" in text for text in command.lines()))
        assert command.end(signal.SIGTERM) == 0
        first, last = command.lines()
        assert first.startswith(f"batch 0: {COUNT:,} messages")
        assert last == "cometmq: archive: ending behind this batch; once more ends it now"
        assert command.process.stdout is not None
        assert f"messages  {COUNT:,} in 1 batch and 1 file" in command.process.stdout.read()
        until(lambda: not command.others())
