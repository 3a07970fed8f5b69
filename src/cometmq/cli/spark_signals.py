"""Ctrl-C and SIGTERM while Spark is at work.

The first one ends Java, so that no call to it is waited for, and raises in the main thread: locks
are released and files closed on the way out, and whatever calls to Java fail there is not told. A
second one ends everything at once.
"""

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from .serving import complain

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, Any], None]


@contextlib.contextmanager
def told_when_stopped(text: Callable[[], str]) -> Iterator[None]:
    """Has a signal end the block, and says in a line what that means."""
    heard: list[int] = []

    def stop(number: int, _: Any) -> None:
        heard.append(number)
        _hush()
        end_java()
        raise KeyboardInterrupt

    with handled(stop):
        try:
            yield
        except (Exception, KeyboardInterrupt):  # Which of both it is by then depends on Java.
            if not heard:
                raise
            complain(text())
            raise SystemExit(128 + heard[0]) from None


@contextlib.contextmanager
def handled(first: Handler) -> Iterator[None]:
    """For the first signal. A second one ends us at once."""
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def handler(number: int, frame: Any) -> None:
        for one in SIGNALS:
            signal.signal(one, _at_once)
        first(number, frame)

    for number in SIGNALS:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, one in before.items():
            signal.signal(number, one)


def end_java() -> None:
    """The Java that PySpark has started, if it has."""
    process = _java()
    if process is not None:
        process.terminate()


def _at_once(number: int, _: Any) -> None:
    process = _java()
    if process is not None:
        process.kill()
    os._exit(128 + number)


def _java() -> Any:
    """A process; None where Java was started by somebody else, or not at all."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return getattr(getattr(context, "_gateway", None), "proc", None)


def _hush() -> None:
    """From now on only our own loggers are heard."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(logging.Filter("cometmq"))
