"""The session of a pipeline's command: quiet unless `-v` is given, made when it is first needed."""

import argparse
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from .spark_session import prepare_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def quiet_session(options: argparse.Namespace, name: str) -> "Callable[[], SparkSession]":
    """Makes a session as the options say. What is wrong with them is told now, not then."""
    from cometmq.spark.quiet import NO_BAR, prepare_quiet, silence

    if options.verbose:
        prepare_session(options)
    else:
        prepare_session(options, NO_BAR)
        prepare_quiet(options.master)

    def made() -> "SparkSession":
        from cometmq.spark.session import session

        spark = _beside(lambda: session(name))
        if not options.verbose:
            silence(spark)
        return spark

    return made


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
