"""The units start what they say, with settings that servers take."""

import configparser
import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from cometmq.broker.config import load as load_broker
from cometmq.cli.commands import build_parser, chosen_in
from cometmq.client import Message, blocking
from cometmq.namesrv.config import load as load_namesrv
from cometmq.settings import read_file
from tests.cli.test_servers import Start, start

__all__ = ["start"]
UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
STATE = Path("/var/lib")


class _WriteOrExecute:
    """What MemoryDenyWriteExecute asks of the kernel, for a process and those it becomes."""

    _SET, _GET, _REFUSE_EXEC_GAIN = 65, 66, 1

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)

    def is_known(self) -> bool:
        return bool(self._libc.prctl(self._GET, 0, 0, 0, 0) >= 0)

    def insist(self) -> None:
        assert self._libc.prctl(self._SET, self._REFUSE_EXEC_GAIN, 0, 0, 0) == 0


WRITE_OR_EXECUTE = _WriteOrExecute()


def unit(role: str) -> dict[str, str]:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNITS / f"cometmq-{role}.service")
    return dict(parser["Service"])


@pytest.mark.parametrize("role", ["namesrv", "broker"])
def test_a_unit_runs_a_command_that_exists(role: str) -> None:
    _, *arguments = unit(role)["ExecStart"].split()
    options = build_parser(chosen_in(arguments)).parse_args(arguments)
    assert options.config == [Path(f"/etc/cometmq/{role}.conf")]


def test_the_archives_unit_keeps_its_lake_where_it_may_write() -> None:
    found = unit("archive")
    _, *arguments = found["ExecStart"].split()
    options = build_parser(chosen_in(arguments)).parse_args(arguments)
    assert Path(options.lake) == STATE / found["StateDirectory"]
    assert not options.once
    assert found["KillMode"] == "mixed", "else Java is told to end before its batch"


def test_settings_are_taken_and_lie_where_the_unit_may_write() -> None:
    namesrv, ignored = load_namesrv(read_file(UNITS / "namesrv.conf"))
    assert not ignored
    assert namesrv.kv_config_file is not None
    assert namesrv.kv_config_file.is_relative_to(STATE / unit("namesrv")["StateDirectory"])
    _, store, ignored = load_broker(read_file(UNITS / "broker.conf"))
    assert not ignored
    assert store.root.is_relative_to(STATE / unit("broker")["StateDirectory"])


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed here")
@pytest.mark.parametrize("role", ["namesrv", "broker", "archive"])
def test_systemd_understands_them(role: str, tmp_path: Path) -> None:
    text = (UNITS / f"cometmq-{role}.service").read_text()
    copy = tmp_path / f"cometmq-{role}.service"
    copy.write_text(text.replace("/opt/cometmq/bin/cometmq", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    about_it = [line for line in done.stderr.splitlines() if copy.name in line]
    assert about_it == []


def test_systemd_is_told_when_a_server_is_ready(tmp_path: Path, start: Start) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.settimeout(60)
        supervisor.bind(str(tmp_path / "notify"))
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        server = start("namesrv", "--port", 0, env=environment)
        assert server.line().startswith("ready namesrv=")
        assert supervisor.recv(100) == b"READY=1"


@pytest.mark.skipif(not WRITE_OR_EXECUTE.is_known(), reason="needs Linux 6.3")
def test_a_broker_works_where_no_memory_may_be_written_and_executed(
    tmp_path: Path, start: Start
) -> None:
    assert unit("broker")["MemoryDenyWriteExecute"] == "yes"
    ports = ("--namesrv-port", 0, "--broker-port", 0)
    server = start(
        "standalone", "--data-dir", tmp_path / "data", *ports, preexec_fn=WRITE_OR_EXECUTE.insist
    )
    found = re.match(r"ready namesrv=(\S+) ", server.line())
    assert found, server.errors
    with blocking.Producer(found[1], group="shop") as producer:
        producer.send(Message("orders", b"one coffee"))
    assert server.ended(signal.SIGTERM) == 0
