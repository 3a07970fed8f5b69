"""Spark without its own lines, for programs that tell themselves what fails.

Whatever the user has set stays: a log4j2 file, settings, addresses. Where Spark was started by
somebody else, only its log level is set.
"""

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .java import find_java, shim_home
from .session import LOCAL, is_connect, is_connect_address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_BAR: Final = {"spark.ui.showConsoleProgress": "false"}
"""A setting for sessions that are not on Spark Connect."""
_LOG4J: Final = Path(__file__).with_name("quiet.log4j2.properties")
_LOG4J_OPTION: Final = "log4j2.configurationFile"
_JAVA_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""Options of Java that stand before those of `spark.driver.extraJavaOptions`, which win."""
_QUERY_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark's, by which it tells of a failed query in a line of several kilobytes."""


def prepare_quiet(master: str = LOCAL) -> None:
    """Before the session is made: Java says nothing while it starts."""
    if is_connect_address(master) or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if not _has_own_log4j():
        given = os.environ.get(_JAVA_OPTIONS, "")
        os.environ[_JAVA_OPTIONS] = f'"-D{_LOG4J_OPTION}={_LOG4J.as_uri()}" {given}'.strip()
    home = find_java().home
    if (home / "lib").is_dir():  # Else it is a shim already.
        # Java warns of a module that only Spark's machine learning is faster with.
        os.environ["JAVA_HOME"] = str(shim_home(home / "bin" / "java"))


def silence(spark: "SparkSession") -> None:
    """Once it is there."""
    from pyspark.logger import PySparkLogger

    for name in _QUERY_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    if not is_connect(spark) and not _has_own_log4j():
        spark.sparkContext.setLogLevel("FATAL")


def _has_own_log4j() -> bool:
    if _LOG4J_OPTION in os.environ.get(_JAVA_OPTIONS, ""):
        return True
    home = os.environ.get("SPARK_HOME")
    directory = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
    return bool(directory) and any(Path(directory).glob("log4j2*"))
