"""A session without Spark's own lines, so that what a pipeline tells is not lost among them.

Whatever the user has set stays: a log4j2 file, settings, addresses. With `-v` all is as Spark has
it. Where Spark was started by somebody else, only its log level is set.
"""

import argparse
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .spark_session import prepare_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG4J: Final = Path(__file__).with_name("spark_quiet.log4j2.properties")
_LOG4J_OPTION: Final = "log4j2.configurationFile"
_JAVA_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""Options of Java that stand before those of `spark.driver.extraJavaOptions`, which win."""
_SETTINGS: Final = {"spark.ui.showConsoleProgress": "false"}
_QUERY_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark's, by which it tells of a failed query in a line of several kilobytes."""


def quiet_session(options: argparse.Namespace, name: str) -> "Callable[[], SparkSession]":
    """Makes a session as the options say. What is wrong with them is told now, not then."""
    if options.verbose:
        prepare_session(options)
    else:
        prepare_session(options, _SETTINGS)
        _prepare_quiet(options.master)

    def made() -> "SparkSession":
        from cometmq.spark.session import session

        spark = _beside(lambda: session(name))
        if not options.verbose:
            _silence(spark)
        return spark

    return made


def _prepare_quiet(master: str) -> None:
    from cometmq.spark.java import find_java, shim_home
    from cometmq.spark.session import is_connect_address

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


def _has_own_log4j() -> bool:
    if _LOG4J_OPTION in os.environ.get(_JAVA_OPTIONS, ""):
        return True
    home = os.environ.get("SPARK_HOME")
    directory = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
    return bool(directory) and any(Path(directory).glob("log4j2*"))


def _beside(make: "Callable[[], SparkSession]") -> "SparkSession":
    """In a thread of its own. In the main one PySpark takes SIGINT for itself, and its handler
    calls Java, which cannot be called inside of a call; here signals are heard while it starts."""
    made: Future[SparkSession] = Future()

    def work() -> None:
        try:
            made.set_result(make())
        except BaseException as error:  # noqa: BLE001 - raised by who waits for it
            made.set_exception(error)

    threading.Thread(target=work, name="cometmq-session", daemon=True).start()
    return made.result()


def _silence(spark: "SparkSession") -> None:
    from pyspark.logger import PySparkLogger

    from cometmq.spark.session import is_connect

    for name in _QUERY_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    if not is_connect(spark) and not _has_own_log4j():
        spark.sparkContext.setLogLevel("FATAL")
