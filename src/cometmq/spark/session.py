"""A Spark session in which our formats are there: `cometmq.spark.session()`.

Finds Java, gives Spark's workers this Python, and sets what one machine needs; whatever the caller
sets wins. With an address of Spark Connect (`sc://…`) as master nothing is started here.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from .errors import NotReady
from .java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS: Final = (
    ("rocketmq", "data_source", "RocketMQDataSource"),
    ("rocketmq-log", "log.source", "RocketMQLogDataSource"),
)
"""Name, module and class of each."""
_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_LOCAL_DEFAULTS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def session(app_name: str = "cometmq", master: str = "local[*]", **conf: Any) -> "SparkSession":
    """The running session with our formats, or a new one.

    `conf` are Spark's own settings: `session(**{"spark.driver.memory": "2g"})`.
    """
    spark_session = _spark_session_class()
    builder = spark_session.builder.appName(app_name)
    settings = {**_DEFAULTS, **{name: _text(value) for name, value in conf.items()}}
    if master.startswith("sc://"):
        builder = builder.remote(master)
    else:
        builder = builder.master(master)
        if master.startswith("local"):
            settings = {**_LOCAL_DEFAULTS, **settings}
        _prepare_environment()
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: "SparkSession") -> "SparkSession":
    """Make our formats known to a session that was made elsewhere."""
    from pyspark.errors import AnalysisException

    for _, module, name in FORMATS:
        source = getattr(importlib.import_module(f".{module}", __package__), name)
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
            _make_active(spark)
            spark.dataSource.register(source)
    return spark


def _make_active(spark: "SparkSession") -> None:
    """Spark looks for a format's name in the active session, whichever it is to be known in."""
    sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr] # noqa: SLF001
    sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001 - Python has no name for it


def _spark_session_class() -> "type[SparkSession]":
    try:
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise NotReady(f"{missing}: pip install 'cometmq[spark]'") from missing
    return SparkSession


def _prepare_environment() -> None:
    """Spark's scripts and its workers are told by the environment."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # Else Java runs already, and has started us.
        os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
