"""`cometmq namesrv` as a user runs it."""

import contextlib
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.cli.main import main

TIMEOUT_S = 30.0


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and its first line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "cometmq.cli.main", "namesrv", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            readable, _, _ = select.select([process.stdout], [], [], TIMEOUT_S)
            assert readable, "no line"
            yield process, process.stdout.readline()
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_is_ready_and_ends_in_order_at_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    settings = tmp_path / "namesrv.conf"
    settings.write_text("# of RocketMQ\nlistenPort = 0\nserverWorkerThreads = 8\n")
    with started("-c", str(settings)) as (process, line):
        name, _, address = line.rstrip("\n").partition("=")
        assert name == "ready namesrv"
        host, port = address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), TIMEOUT_S):
            process.send_signal(number)
            rest, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0
        assert rest == ""
        assert "serverWorkerThreads has no effect here" in errors
        assert "Traceback" not in errors


def test_options_come_before_the_file(tmp_path: Path) -> None:
    settings = tmp_path / "namesrv.toml"
    settings.write_text('listenPort = 9\nbindAddress = "192.0.2.1"\n')
    with started("-c", str(settings), "--host", "127.0.0.1", "--port", "0") as (_, line):
        assert line.startswith("ready namesrv=127.0.0.1:")


def test_a_port_in_use_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["namesrv", "--port", str(port)]) == 1
    errors = capsys.readouterr().err
    assert f"no NameServer at 127.0.0.1:{port}" in errors
    assert "in use" in errors


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("listenPrt=1", "did you mean listenPort?"), ("listenPort=x", "a whole number is expected")],
)
def test_a_bad_setting_is_told_and_nothing_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, complaint: str
) -> None:
    settings = tmp_path / "namesrv.conf"
    settings.write_text(content)
    assert main(["namesrv", "-c", str(settings)]) == 2
    assert complaint in capsys.readouterr().err


def test_a_missing_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["namesrv", "-c", str(tmp_path / "none.conf")]) == 2
    assert "cannot read" in capsys.readouterr().err
