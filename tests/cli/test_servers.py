"""`cometmq standalone`, `broker` and `namesrv` as a user runs them: real processes and signals."""

import asyncio
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cometmq.cli.main import main
from tests.broker.brokers import Client, bounded, settings_of

START_S = 60.0
STOP_S = 60.0
READY = re.compile(r"ready namesrv=(\S+) brokers=(\S+)\n")
CLUSTER_INFO = 106

Start = Callable[..., "Server"]


class Server:
    """A `cometmq` command that runs until it is ended."""

    def __init__(self, *arguments: object, errors: Path, **how: Any) -> None:
        self._errors = errors
        with errors.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cometmq.cli.main", *map(str, arguments)],
                stdout=subprocess.PIPE, stderr=stderr, **how,
            )  # fmt: skip

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def line(self) -> str:
        """The next line on stdout; empty when it ended without one."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(START_S), f"nothing within {START_S} s: {self.errors}"
        line: bytes = self.process.stdout.readline()
        return line.decode()

    def ended(self, number: signal.Signals | None = None) -> int:
        """How it ended, after a signal or by itself."""
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(STOP_S)

    def children(self) -> list[int]:
        pid = self.process.pid
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    servers: list[Server] = []

    def started(*arguments: object, **how: Any) -> Server:
        servers.append(Server(*arguments, errors=tmp_path / f"errors-{len(servers)}", **how))
        return servers[-1]

    yield started
    for server in servers:
        server.close()


def standalone(*more: object, data: Path) -> list[object]:
    ports = ("--namesrv-port", 0, "--broker-port", 0)
    return ["standalone", "--data-dir", data, *ports, *more]


def addresses(line: str) -> tuple[str, list[str]]:
    """The NameServer's address and the brokers' out of the line that tells that all serve."""
    found = READY.fullmatch(line)
    assert found, line
    return found[1], [broker.partition("@")[2] for broker in found[2].split(",")]


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def until_gone(*pids: int) -> None:
    deadline = time.monotonic() + STOP_S
    while not all(map(is_gone, pids)):
        assert time.monotonic() < deadline, f"still there: {[p for p in pids if not is_gone(p)]}"
        time.sleep(0.02)


def broker_conf(home: Path, **settings: Any) -> Path:
    conf = home / "broker.conf"
    values = settings_of(home / "store", **settings)
    conf.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return conf


@bounded
async def sent(address: str, *bodies: bytes) -> None:
    client = await Client.to(address)
    answers = await asyncio.gather(*(client.send("orders", body) for body in bodies))
    assert {answer.code for answer in answers} == {0}


@bounded
async def expect(address: str, *bodies: bytes) -> None:
    client = await Client.to(address)
    assert [message.body for message in await client.pulled("orders")] == list(bodies)


@bounded
async def expect_brokers(name_server: str, *names: str) -> None:
    client = await Client.to(name_server)
    info = msgspec.json.decode((await client.ask(CLUSTER_INFO)).body)
    assert info["clusterAddrTable"].keys() == {"DefaultCluster"}
    assert sorted(info["clusterAddrTable"]["DefaultCluster"]) == sorted(names)


# -- standalone ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_command_is_a_cluster_and_its_data_survive(
    tmp_path: Path, start: Start, number: signal.Signals
) -> None:
    first = start(*standalone(data=tmp_path / "data"))
    line = first.line()
    assert re.fullmatch(r"ready namesrv=127\.0\.0\.1:\d+ brokers=broker-a@127\.0\.0\.1:\d+\n", line)
    name_server, (broker,) = addresses(line)
    expect_brokers(name_server, "broker-a")
    sent(broker, b"one", b"two")
    assert (first.ended(number), first.errors) == (0, "")
    assert not (tmp_path / "data/broker-a/abort").exists()

    second = start(*standalone("--flush", "sync", data=tmp_path / "data"))
    _, (broker,) = addresses(second.line())
    expect(broker, b"one", b"two")
    assert second.ended(signal.SIGTERM) == 0


def test_the_ports_are_those_that_were_asked_for(tmp_path: Path, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as a, socket.create_server(("127.0.0.1", 0)) as b:
        ports = a.getsockname()[1], b.getsockname()[1]
    chosen = ("--namesrv-port", ports[0], "--broker-port", ports[1])
    server = start("standalone", "--data-dir", tmp_path / "data", *chosen)
    line = server.line()
    assert line == (f"ready namesrv=127.0.0.1:{ports[0]} brokers=broker-a@127.0.0.1:{ports[1]}\n")
    assert server.ended(signal.SIGTERM) == 0


def test_two_brokers_are_two_processes_of_one_cluster(tmp_path: Path, start: Start) -> None:
    server = start(*standalone("--brokers", 2, data=tmp_path / "data"))
    name_server, brokers = addresses(server.line())
    children = server.children()
    assert len(brokers) == len(children) == 2
    expect_brokers(name_server, "broker-a", "broker-b")
    for number, broker in enumerate(brokers):
        sent(broker, b"%d" % number)
    assert (server.ended(signal.SIGTERM), server.errors) == (0, "")
    until_gone(*children)

    again = start(*standalone("--brokers", 2, data=tmp_path / "data"))
    _, brokers = addresses(again.line())
    for number, broker in enumerate(brokers):
        expect(broker, b"%d" % number)
    assert again.ended(signal.SIGINT) == 0


def test_a_broker_that_dies_ends_the_whole(tmp_path: Path, start: Start) -> None:
    server = start(*standalone("--brokers", 2, data=tmp_path / "data"))
    addresses(server.line())
    children = server.children()
    os.kill(children[1], signal.SIGKILL)
    assert server.ended() == 1
    assert re.search(
        r"^cometmq: broker-[ab] ended with -9; the others are stopped$", server.errors, re.M
    )
    until_gone(*children)
    aborts = list((tmp_path / "data").glob("*/abort"))
    assert len(aborts) == 1, "the other one stopped in order"


def test_children_end_with_a_parent_that_is_killed(tmp_path: Path, start: Start) -> None:
    server = start(*standalone("--brokers", 2, data=tmp_path / "data"))
    _, brokers = addresses(server.line())
    children = server.children()
    sent(brokers[0], b"kept")
    assert server.ended(signal.SIGKILL) == -9
    until_gone(*children)
    for name in ("broker-a", "broker-b"):
        assert not (tmp_path / f"data/{name}/abort").exists(), "they stopped in order"


def test_a_port_that_is_taken_is_named(tmp_path: Path, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        data = ("--data-dir", tmp_path / "data")
        for chosen, who in (
            (("--namesrv-port", port, "--broker-port", 0), "NameServer"),
            (("--namesrv-port", 0, "--broker-port", port), "broker"),
        ):
            server = start("standalone", *data, *chosen)
            assert (server.line(), server.ended()) == ("", 1)
            assert server.errors.startswith(f"cometmq: no {who} at 127.0.0.1:{port}: ")
            assert "address already in use" in server.errors
            assert len(server.errors.splitlines()) == 1


def test_a_child_that_cannot_start_ends_the_whole(tmp_path: Path, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        chosen = ("--namesrv-port", 0, "--broker-port", port - 10, "--brokers", 2)
        server = start("standalone", "--data-dir", tmp_path / "data", *chosen)
        assert (server.line(), server.ended()) == ("", 1)
    assert f"cometmq: no broker at 127.0.0.1:{port}: " in server.errors
    assert server.errors.endswith("cometmq: a broker did not start; its message stands above\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--brokers", "0"), "cometmq: --brokers 0: 1 to 26 are possible\n"),
        (("--brokers", "27"), "cometmq: --brokers 27: 1 to 26 are possible\n"),
        (
            ("--namesrv-port", "0", "--broker-port", "70000"),
            "cometmq: listenPort=70000: 0 to 65535 is expected\n",
        ),
        (("--namesrv-port", "70000"), "cometmq: listenPort=70000: 0 to 65535 is expected\n"),
    ],
)
def test_numbers_that_cannot_be_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    assert main(["standalone", "--data-dir", str(tmp_path), *arguments]) == 2
    assert capsys.readouterr().err == complaint


def test_a_directory_that_is_none_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").write_text("a file")
    assert main([str(part) for part in standalone(data=tmp_path / "data")]) == 1
    assert "Not a directory" in capsys.readouterr().err


def test_files_that_cannot_be_read_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    command = [str(part) for part in standalone(data=data)]
    topics, kv = data / "broker-a/config/topics.json", data / "namesrv/kvConfig.json"
    for file in (topics, kv):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"nonsense")
        assert main(command) == 1
        complaint = capsys.readouterr().err
        assert complaint.startswith("cometmq: no ")
        assert str(file) in complaint


# -- broker --------------------------------------------------------------------------------------


def test_a_broker_runs_by_its_file_and_its_options(tmp_path: Path, start: Start) -> None:
    name_server = start("namesrv", "--port", 0)
    where = name_server.line().removeprefix("ready namesrv=").strip()
    conf = broker_conf(tmp_path, brokerName="from-file", sendMessageThreadPoolNums=4)
    broker = start("broker", "-c", conf, "-n", where, where, "--name", "chosen")
    line = broker.line()
    assert re.fullmatch(r"ready broker=chosen@127\.0\.0\.1:\d+\n", line)
    expect_brokers(where, "chosen")
    sent(line.strip().partition("@")[2], b"hello")
    assert broker.ended(signal.SIGTERM) == 0
    assert "sendMessageThreadPoolNums has no effect here" in broker.errors
    assert name_server.ended(signal.SIGTERM) == 0
    assert (tmp_path / "store/commitlog").is_dir()


def test_a_broker_needs_no_file(tmp_path: Path, start: Start) -> None:
    broker = start("broker", "--port", 0, "--name", "b-1", cwd=tmp_path)
    assert broker.line().startswith("ready broker=b-1@127.0.0.1:")
    assert broker.ended(signal.SIGINT) == 0
    assert (tmp_path / "cometmq-data/b-1/config").is_dir()


def test_a_broker_may_end_with_who_started_it(tmp_path: Path, start: Start) -> None:
    how = ("broker", "--port", 0, "--data-dir", tmp_path / "data", "--until-stdin-ends")
    broker = start(*how, stdin=subprocess.PIPE)
    assert broker.line().startswith("ready broker=")
    assert broker.process.stdin is not None
    broker.process.stdin.close()
    assert broker.ended() == 0
    assert not (tmp_path / "data/abort").exists()


@pytest.mark.parametrize(
    ("content", "code", "complaint"),
    [
        ("brokerNam=x", 2, "unknown setting 'brokerNam'; did you mean brokerName?"),
        ("brokerRole=SLAVE", 2, "brokerRole=SLAVE, brokerId=0: a master has the id 0, a slave"),
        ("listenPort=many", 2, "listenPort=many: a whole number is expected"),
        ("tls.server.certPath=/x\ntls.server.keyPath=/y", 2, "tls.server.certPath"),
        ("bindAddress=192.0.2.1", 1, "no broker at 192.0.2.1:0: "),
    ],
)
def test_a_broker_that_cannot_run_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, code: int, complaint: str
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={tmp_path / 'store'}\nlistenPort=0\n{content}\n")
    assert main(["broker", "-c", str(conf)]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"cometmq: {complaint}")


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for role in ("broker", "namesrv"):
        assert main([role, "-c", "/no/such/file"]) == 2
        error = capsys.readouterr().err
        assert error == "cometmq: cannot read /no/such/file: No such file or directory\n"


def test_two_brokers_do_not_share_a_directory(tmp_path: Path, start: Start) -> None:
    how = ("broker", "--port", 0, "--data-dir", tmp_path / "data")
    first = start(*how)
    assert first.line().startswith("ready broker=")
    second = start(*how)
    assert (second.line(), second.ended()) == ("", 1)
    assert second.errors.startswith("cometmq: no broker at 127.0.0.1:0: ")
    assert first.ended(signal.SIGTERM) == 0


# -- namesrv -------------------------------------------------------------------------------------


def test_a_name_server_runs_until_it_is_ended(tmp_path: Path, start: Start) -> None:
    server = start("namesrv", "--port", 0)
    line = server.line()
    assert re.fullmatch(r"ready namesrv=127\.0\.0\.1:\d+\n", line)
    port = int(line.rpartition(":")[2])
    second = start("namesrv", "--port", port)
    assert (second.line(), second.ended()) == ("", 1)
    assert second.errors.startswith(f"cometmq: no NameServer at 127.0.0.1:{port}: ")
    assert (server.ended(signal.SIGTERM), server.errors) == (0, "")


# -- help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("standalone", "namesrv", "broker", "store", "--version", "--verbose")),
        (
            ("standalone",),
            (
                "--data-dir DIR", "--namesrv-port PORT", "9876", "--broker-port PORT", "10911",
                "--brokers N", "--flush {async,sync}", "--host", "SIGTERM",
            ),
        ),
        (
            ("broker",),
            ("--config FILE", "--namesrv HOST:PORT", "--name", "--port", "10911", "--data-dir DIR"),
        ),
        (("namesrv",), ("--config FILE", "--host", "--port", "9876")),
    ],
)  # fmt: skip
def test_help_names_every_option(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert [word for word in words if word not in text] == []
    assert "until-stdin-ends" not in text


@pytest.mark.parametrize("arguments", [(), ("nonsense",), ("standalone", "--flush", "never")])
def test_a_command_that_is_none_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: cometmq" in capsys.readouterr().err
