"""`cometmq config`: what a server would start with, who said so, and what it means."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tools.configuration_doc import DOCUMENT, document

from cometmq.cli.roles import ROLES


def ran(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cometmq.cli.main", "config", *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


def rows(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return {row["key"]: row for row in msgspec.json.decode(done.stdout)}


@pytest.fixture
def files(tmp_path: Path) -> list[object]:
    toml, conf = tmp_path / "broker.toml", tmp_path / "broker.conf"
    toml.write_text('brokerName = "shop"\nflushDiskType = "SYNC_FLUSH"\n[tls.server]\n')
    conf.write_text("brokerName=mall\ntls.server.keyPassword=geheim\n")
    return ["-c", conf, "-c", toml]


def test_show_tells_every_value_and_where_it_comes_from(files: list[object]) -> None:
    done = ran(
        "show", *files, "--set", "listenPort=11111", "-o", "json",
        COMETMQ_BROKER__FILE_RESERVED_TIME="48",
    )  # fmt: skip
    shown = rows(done)
    assert shown.keys() == ROLES["broker"].settings.keys()
    told = {key: (row["value"], row["unit"], row["origin"]) for key, row in shown.items()}
    assert told["flushDiskType"] == ("SYNC_FLUSH", "", f"file {files[3]}")
    assert told["brokerName"] == ("mall", "", f"file {files[1]}")
    assert told["fileReservedTime"] == (
        "48", "hours", "environment COMETMQ_BROKER__FILE_RESERVED_TIME",
    )  # fmt: skip
    assert told["listenPort"] == ("11111", "", "flag --set")
    assert told["storePathRootDir"] == ("cometmq-data/mall", "", "default")
    assert told["syncFlushTimeout"] == ("5000", "ms", "default")


def test_show_keeps_secrets(files: list[object]) -> None:
    done = ran("show", *files)
    assert "geheim" not in done.stdout
    lines = done.stdout.splitlines()
    (line,) = [line for line in lines if line.startswith("tls.server.keyPassword")]
    assert line.split() == ["tls.server.keyPassword", "(hidden)", "-", "file", str(files[1])]


def test_show_can_leave_out_what_is_as_by_default(files: list[object]) -> None:
    done = ran("show", "--given", *files)
    keys = [line.split()[0] for line in done.stdout.splitlines()]
    assert sorted(keys) == ["KEY", "brokerName", "flushDiskType", "tls.server.keyPassword"]


def test_show_of_one_key_and_of_a_name_server() -> None:
    done = ran("show", "listenPort", "--role", "namesrv", COMETMQ_NAMESRV__LISTEN_PORT="1234")
    assert done.stdout.splitlines()[1].split() == [
        "listenPort", "1234", "-", "environment", "COMETMQ_NAMESRV__LISTEN_PORT",
    ]  # fmt: skip


def test_show_refuses_what_the_server_would_refuse(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("listenPrt=1\n")
    done = ran("show", "-c", conf)
    assert done.returncode == 2
    assert done.stderr == "cometmq: unknown setting 'listenPrt'; did you mean listenPort?\n"
    done = ran("show", "--set", "flushDiskType=SOMETIMES")
    assert done.returncode == 2
    assert "one of ASYNC_FLUSH, SYNC_FLUSH is expected" in done.stderr


def test_explain_says_what_a_key_means() -> None:
    done = ran("explain", "fileReservedTime")
    assert done.stdout == (
        "fileReservedTime: how many hours a CommitLog file is kept\n"
        "  values       number\n"
        "  default      72 hours\n"
        "  changes      while the server runs\n"
        "  environment  COMETMQ_BROKER__FILE_RESERVED_TIME\n"
    )


def test_explain_of_all_has_a_meaning_for_each() -> None:
    explained = rows(ran("explain", "-o", "json", "--role", "namesrv"))
    assert explained.keys() == ROLES["namesrv"].settings.keys()
    assert all(row["meaning"] for row in explained.values())
    assert explained["scanNotActiveBrokerInterval"]["unit"] == "ms"
    assert explained["log.level"]["live"] is True
    table = ran("explain", "--role", "namesrv").stdout.splitlines()
    assert len(table) == len(explained) + 1


def test_explain_of_an_unknown_key_names_the_nearest() -> None:
    done = ran("explain", "flushdisktype")
    assert done.returncode == 2
    assert done.stderr == "cometmq: unknown setting 'flushdisktype'; did you mean flushDiskType?\n"


def test_explain_knows_the_other_role() -> None:
    done = ran("explain", "kvConfigPath")
    assert done.returncode == 2
    assert "kvConfigPath is a setting of namesrv: add --role namesrv" in done.stderr


def test_explain_of_a_key_without_effect_says_so() -> None:
    done = ran("explain", "useTLS", "--role", "namesrv")
    assert done.returncode == 0
    assert done.stdout == "useTLS: a setting of RocketMQ that has no effect here\n"


def test_every_number_that_is_a_quantity_has_a_unit() -> None:
    bare = {
        one.key
        for role in ROLES.values()
        for one in role.settings.values()
        if one.kind == "number" and not one.unit
    }
    assert bare == {
        "brokerId", "brokerPermission", "haListenPort", "listenPort", "metricsPromExporterPort",
    }  # fmt: skip


def test_the_document_is_what_the_declarations_say() -> None:
    assert DOCUMENT.read_text() == document(), "run `make configuration`"
