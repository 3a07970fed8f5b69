"""A Spark session in which our formats are there: `cometmq.spark.session()`.

Finds Java, gives Spark's workers this Python, and sets what one machine needs. Defaults of ours are
for a session that is made here, and for names that nobody has set: neither the caller nor
`spark-submit`, `spark-defaults.conf` or a server; what runs already gets what the caller sets and
nothing else. With an address of Spark Connect (`sc://…`) nothing is started here, and only what a
server lets clients set is set.
"""

import importlib
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from .errors import NotReady
from .java import find_java
from .workers_python import choose_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

FORMATS: Final = (
    ("rocketmq", "data_source", "RocketMQDataSource"),
    ("rocketmq-log", "log.source", "RocketMQLogDataSource"),
)
"""Name, module and class of each."""
_SQL_DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_REDACTION: Final = "spark.sql.redaction.string.regex"
_DRIVER_DEFAULTS: Final = {"spark.ui.enabled": "false"}
_LOCAL_DEFAULTS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
LOCAL: Final = "local[*]"
_CHOSEN_ELSEWHERE: Final = (
    "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "MASTER", "SPARK_CONF_DIR",
)  # fmt: skip
"""Where these are set, Spark was started or configured by somebody else, with a master or not."""
_REMOTE: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""Where one of these is set, sessions are clients of Spark Connect."""
_WORKERS_PYTHON: Final = "spark.pyspark.python"


def session(app_name: str = "cometmq", master: str = "", **conf: Any) -> "SparkSession":
    """The running session with our formats, or a new one.

    `master` is `local[*]` unless `spark-submit` or the environment has chosen; `spark://host:port`
    is a cluster, `sc://host:port` a Spark Connect server. `conf` are Spark's own settings:
    `session(**{"spark.driver.memory": "2g"})`.
    """
    sessions = spark_session_class()
    running = _running(sessions)
    builder = (sessions if running is None else type(running)).builder
    master = master or chosen_master()
    given = {name: setting_text(value) for name, value in conf.items()}
    if is_connect_address(master):
        builder = builder.remote(master)
    elif running is None:
        prepare_environment(given, master)
        builder = builder.master(master) if master else builder
    for name, value in given.items():
        builder = builder.config(name, value)
    if running is None:
        builder = with_defaults(builder.appName(app_name))
    spark = register(_made(builder))
    if not is_connect(spark):
        from .listener import attach

        attach(spark)
    elif running is None:
        _set_missing(spark)
    return spark


def _running(sessions: "type[SparkSession]") -> "SparkSession | None":
    from pyspark.errors import PySparkRuntimeError

    try:
        found = sessions.active()
    except PySparkRuntimeError:
        return None
    return None if is_stopped(found) else found


def chosen_master() -> str:
    """The master for who names none; empty where Spark itself knows better."""
    if remote := os.environ.get("SPARK_REMOTE"):
        return remote
    return "" if any(name in os.environ for name in _CHOSEN_ELSEWHERE) else LOCAL


def with_defaults(builder: "SparkSession.Builder") -> "SparkSession.Builder":
    """Have it set our defaults where Spark's configuration, which Java has read, says nothing. What
    runs already stays as it is; Java is started with what the builder has, as Spark would."""
    from pyspark import SparkConf, SparkContext

    given: dict[str, Any] = builder._options  # noqa: SLF001 - Python has no name for it
    if _running(spark_session_class()) is not None or _is_remote(given):
        return builder
    pairs = [(name, setting_text(value)) for name, value in given.items()]
    SparkContext._ensure_initialized(conf=SparkConf().setAll(pairs))  # noqa: SLF001 - the same
    context = SparkContext._active_spark_context  # noqa: SLF001 - the same
    known = (SparkConf() if context is None else context.getConf()).setAll(pairs)
    for name, value in _default_settings(known.get("spark.master", "")).items():
        if not known.contains(name):
            builder = builder.config(name, value)
    return builder


def _default_settings(master: str) -> dict[str, str]:
    local = _LOCAL_DEFAULTS if _is_local(master) else {}
    return {**_SQL_DEFAULTS, **_DRIVER_DEFAULTS, **local}


def _set_missing(spark: "SparkSession") -> None:
    """The same for a client of Spark Connect: its server tells what is set. It shows and keeps all
    plans as they come, with their options."""
    from .connection import SECRETS_IN_PLANS

    known = spark.conf.getAll
    for name, value in _SQL_DEFAULTS.items():
        if name not in known:
            spark.conf.set(name, value)
    # `conf` conceals a setting that speaks of secrets itself, as though nobody had set it.
    if spark.sql(f"SET {_REDACTION}").collect()[0]["value"] == "<undefined>":
        spark.conf.set(_REDACTION, SECRETS_IN_PLANS)


def _is_remote(given: Mapping[str, Any]) -> bool:
    mode = given.get("spark.api.mode", os.environ.get("SPARK_API_MODE", ""))
    told = any(name in os.environ for name in _REMOTE) or "spark.remote" in given
    return told or str(mode).lower() == "connect"


def _is_local(master: str) -> bool:
    """On this machine alone; also a cluster of several processes here (`local-cluster`)."""
    return master.startswith("local")


def register(spark: "SparkSession") -> "SparkSession":
    """Make our formats known to a session that was made elsewhere."""
    for _, module, name in FORMATS:
        register_source(spark, getattr(importlib.import_module(f".{module}", __package__), name))
    return spark


def register_source(spark: "SparkSession", source: "type[DataSource]") -> None:
    from pyspark.errors import AnalysisException

    if not is_connect(spark) and _knows(spark, source.name()):
        return  # Spark would warn of a source that replaces the one that it found by itself.
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS" or is_connect(spark):
            raise
        _make_active(spark)
        spark.dataSource.register(source)


def is_connect_address(master: str) -> bool:
    return master.startswith("sc://")


def is_connect(spark: "SparkSession") -> bool:
    """Whether the session is a client's, with no Java behind it on this side."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_stopped(spark: "SparkSession") -> bool:
    if is_connect(spark):
        return bool(getattr(spark, "is_stopped"))  # noqa: B009 - no other session has it
    return spark.sparkContext._jsc is None  # noqa: SLF001 - Python has no name for it


def _knows(spark: "SparkSession", name: str) -> bool:
    session: Any = spark._jsparkSession  # noqa: SLF001 - Python has no name for it
    return bool(session.sessionState().dataSourceManager().dataSourceExists(name))


def _make_active(spark: "SparkSession") -> None:
    """Spark looks for a format's name in the active session, whichever it is to be known in."""
    sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr] # noqa: SLF001
    sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001 - Python has no name for it


def spark_session_class() -> "type[SparkSession]":
    try:
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise NotReady(f"{missing}: pip install 'cometmq[spark]'") from missing
    return SparkSession


def _made(builder: "SparkSession.Builder") -> "SparkSession":
    from pyspark.errors import PySparkImportError

    try:
        return builder.getOrCreate()
    except PySparkImportError as missing:
        raise NotReady(f"{missing}: pip install 'cometmq[connect]'") from missing


def prepare_environment(settings: Mapping[str, str], master: str) -> None:
    """Spark's scripts and its workers are told by the environment."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # Else Java runs already, and has started us.
        os.environ["JAVA_HOME"] = str(find_java().home)
    if python := settings.get(_WORKERS_PYTHON):  # Only spark-submit heeds the setting by itself.
        os.environ["PYSPARK_PYTHON"] = python
    choose_python(local=_is_local(master))
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def setting_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
