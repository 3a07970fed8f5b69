"""SIGHUP: a server reads its settings again and says what came of it."""

import signal
import time
from pathlib import Path

from tests.broker.brokers import Client, bounded, settings_of
from tests.cli.test_servers import Server, Start, start

__all__ = ["start"]
WAIT_S = 30.0


def conf_of(path: Path, **settings: object) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def until_said(server: Server, text: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while text not in server.errors:
        assert time.monotonic() < deadline, server.errors
        time.sleep(0.02)


async def told_settings(server_line: str) -> dict[str, str]:
    client = await Client.to(server_line.strip().rpartition("@")[2])
    answer = await client.ask(26)
    return dict(line.split("=", 1) for line in answer.body.decode().splitlines())


@bounded
async def test_a_broker_takes_live_settings_and_names_the_others(
    tmp_path: Path, start: Start
) -> None:
    conf, store = tmp_path / "broker.conf", settings_of(tmp_path / "store")
    server = start("broker", "-c", conf_of(conf, **store))
    line = server.line()
    assert (await told_settings(line))["fileReservedTime"] == "72"
    conf_of(conf, **store, **{"log.level": "DEBUG"}, fileReservedTime=48, brokerName="other")
    server.process.send_signal(signal.SIGHUP)
    until_said(server, "settings read again, changed: log.level, fileReservedTime")
    until_said(server, "these take effect at the next start: brokerName")
    told = await told_settings(line)
    assert (told["fileReservedTime"], told["log.level"]) == ("48", "DEBUG")
    assert told["brokerName"] == "broker-a"
    assert server.ended(signal.SIGTERM) == 0


@bounded
async def test_a_file_that_is_wrong_changes_nothing(tmp_path: Path, start: Start) -> None:
    conf, store = tmp_path / "broker.conf", settings_of(tmp_path / "store")
    server = start("broker", "-c", conf_of(conf, **store))
    line = server.line()
    conf_of(conf, **store, fileReservedTime=48, listenPrt=1)
    server.process.send_signal(signal.SIGHUP)
    until_said(server, "settings stay as they are: unknown setting 'listenPrt'")
    assert (await told_settings(line))["fileReservedTime"] == "72"
    assert server.ended(signal.SIGTERM) == 0


def test_a_name_server_does_the_same(tmp_path: Path, start: Start) -> None:
    conf = conf_of(tmp_path / "namesrv.toml", listenPort=0)
    server = start("namesrv", "-c", conf)
    assert server.line().startswith("ready namesrv=")
    conf.write_text('listenPort = 0\n"log.level" = "INFO"\nserverChannelMaxIdleTimeSeconds = 60\n')
    server.process.send_signal(signal.SIGHUP)
    until_said(server, "settings read again, changed: log.level")
    until_said(server, "at the next start: serverChannelMaxIdleTimeSeconds")
    assert server.ended(signal.SIGTERM) == 0


@bounded
async def test_the_level_changes_over_the_wire_and_paths_do_not(
    tmp_path: Path, start: Start
) -> None:
    server = start("broker", "-c", conf_of(tmp_path / "b.conf", **settings_of(tmp_path / "store")))
    line = server.line()
    client = await Client.to(line.strip().rpartition("@")[2])
    assert "settings changed" not in server.errors
    assert (await client.ask(25, {}, b"log.level=INFO")).code == 0
    until_said(server, "settings changed: {'log.level': 'INFO'}")
    for said in (b"log.level=LOUD", b"storePathRootDir=/tmp", b"metricsPromExporterPort=1"):
        assert (await client.ask(25, {}, said)).code != 0
    assert server.ended(signal.SIGTERM) == 0
