"""What all commands have in common: a quick start, help, exit codes, pipes, signals, watching."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cometmq import __version__
from cometmq.cli.commands import COMMANDS
from cometmq.cli.exits import MEANINGS, Exit
from cometmq.cli.main import main
from cometmq.store.failure import EXIT_CODE
from cometmq.testing import BlockingEmbeddedBroker

from .program import MAIN, WAIT_S, Program, next_line, running

HEAVY = ("asyncio", "ssl", "msgspec", "logging", "uvloop", "numpy", "pyarrow", "pyspark", "pandas")
LISTED = """
import sys, cometmq.cli.main
try:
    cometmq.cli.main.main(sys.argv[1:])
finally:
    print(*sys.modules)
"""


def modules_after(*arguments: str) -> set[str]:
    """What a program that ends so has imported."""
    ran = subprocess.run(
        [sys.executable, "-c", LISTED, *arguments], capture_output=True, text=True, check=False
    )
    return set(ran.stdout.splitlines()[-1].split())


def test_help_imports_nothing_heavy() -> None:
    modules = modules_after("--help")
    assert modules.isdisjoint(HEAVY)
    ours = {name for name in modules if name.startswith("cometmq")}
    assert ours == {"cometmq", "cometmq.cli", "cometmq.cli.main", "cometmq.cli.commands"}


@pytest.mark.parametrize("command", ["topic", "broker", "send", "dlq", "doctor"])
def test_no_command_imports_a_server_or_spark(command: str) -> None:
    modules = modules_after(command, "--help")
    assert modules.isdisjoint({"numpy", "pyarrow", "pyspark", "pandas"})
    servers = ("cometmq.broker", "cometmq.namesrv", "cometmq.replication", "cometmq.web")
    assert not [name for name in modules if name.startswith(servers)]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: cometmq {command}")


def test_the_version_tells_the_codec() -> None:
    shown = subprocess.run([*MAIN, "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(rf"cometmq {re.escape(__version__)} \((compiled|plain Python) codec\)\n",
                        shown.stdout)  # fmt: skip


def test_all_exit_codes_have_a_meaning() -> None:
    assert list(MEANINGS) == list(Exit)
    assert Exit.DISK_FAILED == EXIT_CODE


def test_a_server_that_is_away_is_told_with_advice(lonely: Program) -> None:
    for command in (
        ("topic", "list"),
        ("send", "t", "x"),
        ("consume", "t", "-g", "g"),
        ("tail", "t"),
        ("dlq", "list"),
        ("bench",),
    ):
        told = lonely.fails(*command, "-n", "127.0.0.1:1", code=4)
        assert "127.0.0.1:1" in told
        assert "`cometmq doctor` looks closer" in told
    told = lonely.fails("topic", "list", "-n", "nonsense", code=2)
    assert told.startswith("'nonsense' is not an address")


def test_the_default_is_the_local_name_server(lonely: Program) -> None:
    """Whether one is there or not."""
    ran = lonely.start("cluster", "list", "--timeout", "2")
    _, err = ran.communicate(timeout=WAIT_S)
    assert ran.returncode in {0, 4}
    assert ran.returncode == 0 or b"127.0.0.1:9876" in err


def test_a_reader_that_leaves_ends_it_quietly(
    cometmq: Program, cluster: BlockingEmbeddedBroker
) -> None:
    cluster.create_topic("p-long", 1)
    cometmq("send", "p-long", "x" * 20_000, "--count", 300, "-q")
    with running(cometmq.start("tail", "p-long", "--last", 300, "--raw")) as tailing:
        assert tailing.stdout is not None
        assert tailing.stdout.read(1) == b"x"
        tailing.stdout.close()
        assert tailing.wait(WAIT_S) == Exit.PIPE_CLOSED
        assert tailing.stderr is not None
        assert tailing.stderr.read() == b""


def test_ctrl_c_ends_it_quietly(cometmq: Program, cluster: BlockingEmbeddedBroker) -> None:
    cluster.create_topic("p-endless", 1)
    with running(cometmq.start("send", "p-endless", "-")) as sending:
        assert sending.stdin is not None
        sending.stdin.write(b"one\n")
        sending.stdin.flush()
        assert "queue 0, offset 0" in next_line(sending)
        sending.send_signal(signal.SIGINT)
        assert sending.wait(WAIT_S) == Exit.INTERRUPTED
        assert sending.stderr is not None
        assert sending.stderr.read() == b""


def test_what_is_watched_is_shown_again_and_again(
    cometmq: Program, cluster: BlockingEmbeddedBroker
) -> None:
    cluster.create_topic("p-seen", 1)
    watching = cometmq.start("topic", "stats", "p-seen", "--watch", "0.05", "-o", "json")
    with running(watching) as watched:
        assert '"messages":0' in next_line(watched)
        cometmq("send", "p-seen", "x")
        while '"messages":1' not in next_line(watched):
            pass
        watched.send_signal(signal.SIGINT)
        assert watched.wait(WAIT_S) == 0
        assert watched.stderr is not None
        assert watched.stderr.read() == b""
    with running(cometmq.start("cluster", "list", "--watch", "0.05")) as watched:
        lines = [next_line(watched) for _ in range(6)]
    assert re.match(r"20\d\d-.* every 0.05 s\n", lines[0])
    assert [line.split()[0] for line in lines].count("DefaultCluster") == 2


def test_a_bug_keeps_its_trace(
    cometmq: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr("cometmq.cli.context._run", broken)
    monkeypatch.setitem(os.environ, "XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(ZeroDivisionError):
        main(["context", "list"])
