"""`cometmq spark submit` and `shell`: a user's own code, with everything set that it needs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cometmq.cli.exits import Exit
from cometmq.cli.main import main
from cometmq.spark import BadOption
from cometmq.spark.launch import environment_of, settings_of
from cometmq.spark.session import LOCAL, chosen_master

from .log_stores import filled

TIMEOUT_S = 240
SMALL = ("--master", "local[1]", "--conf", "spark.driver.memory=600m")
PLAIN = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.appName("plain").getOrCreate()
rows = spark.read.format("rocketmq-log").load(sys.argv[1]).where("topic = 'orders'").count()
(python,) = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
told = [rows, sys.argv[2:], python, spark.sparkContext.master, spark.conf.get("spark.some.name")]
print(json.dumps([*told, "body" in spark.read.format("rocketmq").load().columns]))
sys.exit(7)
"""
CONFIGURED = """
import json, sys
from pyspark.sql import SparkSession
from cometmq.spark import session
spark = session() if sys.argv[1] == "ours" else SparkSession.builder.getOrCreate()
names = ["spark.sql.session.timeZone", "spark.ui.enabled", "spark.driver.host"]
print(json.dumps([spark.conf.get(name) for name in names]))
"""


def run(*arguments: str, said: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "cometmq.cli.main", "spark", *arguments],
        env={**os.environ, **environment},
        capture_output=True, text=True, input=said, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_a_plain_script_finds_our_formats(tmp_path: Path) -> None:
    store, script = filled(tmp_path / "store", 30), written(tmp_path / "plain.py", PLAIN)
    setting = ("--conf", "spark.some.name=a b=c")
    told = run("submit", *SMALL, *setting, script, str(store), "--own", "option")
    assert told.returncode == 7, told.stderr
    rows, arguments, python, *rest = json.loads(told.stdout.splitlines()[-1])
    assert rows == 10
    assert arguments == ["--own", "option"]
    assert Path(python).samefile(sys.executable)
    assert rest == ["local[1]", "a b=c", True]


@pytest.mark.parametrize("made", ["ours", "by Spark's builder"])
def test_settings_of_the_user_come_before_ours_in_every_session(tmp_path: Path, made: str) -> None:
    script = written(tmp_path / "configured.py", CONFIGURED)
    written(tmp_path / "spark-defaults.conf", "spark.sql.session.timeZone Asia/Tokyo\n")
    settings = ("--conf", "spark.ui.enabled=true", "--conf", "spark.ui.port=0")
    told = run("submit", *SMALL, *settings, script, made, SPARK_CONF_DIR=str(tmp_path))
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout.splitlines()[-1]) == ["Asia/Tokyo", "true", "127.0.0.1"]


def test_a_prompt_has_a_session() -> None:
    told = run("shell", *SMALL, said="print('counted', spark.range(7).count())\n")
    assert told.returncode == 0, told.stderr
    assert "counted 7" in told.stdout
    assert "Traceback" not in told.stderr


def test_a_script_that_fails_is_told_from_its_own_beginning(tmp_path: Path) -> None:
    failing = "def work():\n    raise OSError('the disk')\n\nwork()\n"
    script = written(tmp_path / "failing.py", failing)
    told = run("submit", script)
    assert told.returncode == 1
    lines = told.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].strip() == f'File "{script}", line 4, in <module>'
    assert lines[-1] == "OSError: the disk"


def test_scripts_import_what_lies_beside_them(tmp_path: Path) -> None:
    (tmp_path / "beside_them.py").write_text("NUMBER = 42\n")
    script = written(tmp_path / "script.py", "import beside_them\nprint(beside_them.NUMBER)\n")
    told = run("submit", script)
    assert (told.returncode, told.stdout) == (0, "42\n"), told.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.py"], "cometmq: there is no script missing.py\n"),
        (["--conf", "spark.x", "s.py"], "--conf spark.x: spark.some.name=value is expected"),
        (["--master", "sc://h", "--conf", "spark.x=1", "s.py"], "a Spark Connect server has"),
    ],
)
def test_what_cannot_be_run_is_told(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "")
    assert main(["spark", "submit", *arguments]) == Exit.USAGE
    assert said in capsys.readouterr().err


def test_settings_reach_sparks_own_command_line() -> None:
    assert settings_of(["spark.a=1=2", "spark.b="]) == {"spark.a": "1=2", "spark.b": ""}
    with pytest.raises(BadOption):
        settings_of(["a=1"])
    told = environment_of("spark://h:7077", {"spark.a": "one two"})["PYSPARK_SUBMIT_ARGS"]
    assert told.startswith("--master spark://h:7077 ")
    assert told.endswith("--conf 'spark.a=one two' pyspark-shell")
    ours = environment_of("local[2]", {})["PYSPARK_SUBMIT_ARGS"]
    assert ours == "--master 'local[2]' pyspark-shell", "no default of ours before the user's files"
    assert environment_of("sc://h:15002", {}) == {"SPARK_REMOTE": "sc://h:15002"}


def test_a_master_chosen_by_the_environment_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "MASTER", "SPARK_CONF_DIR")
    for name in (*chosen, "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    assert chosen_master() == LOCAL
    for name in chosen:
        with monkeypatch.context() as there:
            there.setenv(name, "something")
            assert chosen_master() == ""
    monkeypatch.setenv("SPARK_REMOTE", "sc://h")
    assert chosen_master() == "sc://h"
