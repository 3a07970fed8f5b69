"""Spark's Python workers collect garbage after each task, before they take the next one.

That walks over every object of every module that a worker has loaded, 25 ms each time, and finds
none of them to be garbage. A stream of short tasks waits for it as long as for its messages. So
what a worker has when it first reads or writes for us is left out from then on.
"""

import functools
import gc

from pyspark import TaskContext


def leave_modules_alone() -> None:
    """In a worker, once; elsewhere nothing is changed."""
    if TaskContext.get() is not None:
        _freeze()


@functools.cache
def _freeze() -> None:
    gc.freeze()
