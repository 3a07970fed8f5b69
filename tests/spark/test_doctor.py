"""`cometmq spark doctor`: what is missing, and what to do about it."""

import importlib.metadata
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from cometmq.cli.main import main
from cometmq.spark import NotReady, doctor
from cometmq.testing import BlockingEmbeddedBroker
from cometmq.testing.ports import ReservedPort

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GIB = 1024**3


def test_where_all_is_well_everything_is_ok(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["spark", "doctor", "--namesrv", broker.namesrv]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("ok ") for line in lines)
    told = "\n".join(lines)
    assert f"Python: {sys.version_info.major}." in told
    assert f"NameServer {broker.namesrv}: knows broker-a" in told
    assert lines[-1].endswith("a query: rocketmq and rocketmq-log are there, and a row was read")


def test_what_is_wrong_is_told_with_what_to_do_and_the_exit_code_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "find_java", _no_java)
    assert main(["spark", "doctor"]) == 1
    output = capsys.readouterr().out
    assert "PROBLEM  Java: missing\n         → install a Java\n" in output
    assert "PROBLEM  a query: not tried\n         → mend the above first\n" in output


def _no_java() -> None:
    raise NotReady("install a Java")


def test_findings_can_be_had_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "find_java", _no_java)
    assert main(["spark", "doctor", "--no-query", "-o", "json"]) == 1
    findings = {one["what"]: one for one in json.loads(capsys.readouterr().out)}
    assert findings["Java"] == {
        "what": "Java", "ok": False, "found": "missing", "advice": "install a Java",
    }  # fmt: skip
    assert findings["Python"]["ok"]
    assert "a query" not in findings


@pytest.mark.parametrize(
    ("name", "version", "advice"),
    [
        ("pyspark", "4.1.2", "pip install 'pyspark>=4.2'"),
        ("pyspark", "4.2.0.dev1", ""),
        ("pyspark", None, "pip install 'cometmq[spark]'"),
        ("pandas", "3.0.1", "pip install 'pandas<3': Spark needs it older"),
        ("pandas", "2.3.3", ""),
    ],
)
def test_packages_must_be_there_in_the_right_version(
    monkeypatch: pytest.MonkeyPatch, name: str, version: str | None, advice: str
) -> None:
    def told(asked: str) -> str:
        if asked == name and version is None:
            raise importlib.metadata.PackageNotFoundError(asked)
        return version if asked == name and version else "9.9"

    monkeypatch.setattr(importlib.metadata, "version", told)
    limits = {"pyspark": ((4, 2), ()), "pandas": ((), (3,))}
    at_least, below = limits[name]
    finding = doctor.package(name, at_least=at_least, below=below)
    assert (finding.found, finding.advice) == (version or "missing", advice)


def _script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_workers_must_have_the_same_python_and_our_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = _script(tmp_path / "other", "echo 3.9")
    bare = _script(tmp_path / "bare", "echo 'No module named cometmq' >&2; exit 1")
    for command, found, advice in (
        (other, "is 3.9", "both must be alike"),
        (bare, "No module named cometmq", "pip install 'cometmq[spark]'"),
        (str(tmp_path / "missing"), "No such file", f"set PYSPARK_PYTHON={sys.executable}"),
    ):
        monkeypatch.setenv("PYSPARK_PYTHON", command)
        finding = doctor.workers_python()
        assert found in finding.found
        assert advice in finding.advice
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert doctor.workers_python().is_well


class _Usage(NamedTuple):
    free: int


def test_a_machine_with_too_little_room_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "_memory_available", lambda: GIB)
    assert doctor.memory() == ("memory", "1.0 GiB available", "Spark wants 1.5 GiB or more")
    monkeypatch.setattr(doctor, "_memory_available", lambda: None)
    assert doctor.memory().is_well
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: _Usage(GIB // 2))
    assert doctor.disk().found == f"0.5 GiB free in {tmp_path}"
    assert "SPARK_LOCAL_DIRS" in doctor.disk().advice
    monkeypatch.undo()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "missing"))
    assert not doctor.disk().is_well


def test_a_nameserver_that_does_not_answer_is_told() -> None:
    port = ReservedPort()
    port.release()
    finding = doctor.nameserver(f"127.0.0.1:{port.number}")
    assert finding.found.startswith("no answer: ")
    assert "is it running" in finding.advice
    assert "no answer" in doctor.nameserver("nonsense").found


def test_a_query_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise NotReady("no session")

    monkeypatch.setattr(doctor, "session", fail)
    assert doctor.a_query().found == "failed: no session"


def test_a_query_that_fails_inside_of_spark_is_told_in_the_words_of_who_failed(
    monkeypatch: pytest.MonkeyPatch, spark: "SparkSession"
) -> None:
    def fail(**_: object) -> int:
        reader = spark.read.format("rocketmq").option("namesrvAddr", "127.0.0.1:9876")
        return reader.option("topc", "orders").load().count()

    monkeypatch.setattr(doctor, "_read_a_store", fail)
    assert doctor.a_query().found == "failed: unknown option topc; did you mean topic?"


# -- clusters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "found", "advice"),
    [
        ("x\nModuleNotFoundError: No module named 'cometmq.spark'", "no cometmq", "--py-files"),
        (
            "no answer\nfrom the master",
            "failed: RuntimeError: no answer",
            "cometmq -v spark doctor",
        ),
    ],
)
def test_a_cluster_that_cannot_work_is_told(
    monkeypatch: pytest.MonkeyPatch, error: str, found: str, advice: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError(error)

    monkeypatch.setattr(doctor, "session", refuse)
    finding = doctor.workers_at("spark://here:7077")
    assert finding.what == "workers at spark://here:7077"
    assert found in finding.found
    assert advice in finding.advice


def test_a_connect_client_needs_grpc_and_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_java", _no_java)
    findings = {one.what: one for one in doctor.examine(query=False, master="sc://here:15002")}
    assert "Java" not in findings
    assert findings["grpcio"].is_well == (importlib.util.find_spec("grpc") is not None)
