"""A replay whose tasks are all lost once: `python -m tests.spark.losing_tasks NAMESRV FROM TO`.

The first attempt at every task is killed when it has sent the messages of a queue. Prints how many
messages the replay says that it has sent.
"""

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from cometmq.spark import session
from cometmq.spark.pipelines import replay, replay_run
from cometmq.spark.pipelines.replay_sending import Step
from cometmq.spark.pipelines.replay_sources import Choice

_begun: list[int] = []


class LosingStep:
    """In the place of a step. Only the first try at it loses tasks: what is left then is short."""

    def __init__(self, *fields: Any) -> None:
        self._step = Step(*fields)
        self._is_first = not _begun
        _begun.append(1)

    def send(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        for told in self._step.send(batches):
            if self._is_first and task.attemptNumber() == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            yield told


def main(namesrv: str, source: str, target: str) -> None:
    settings = {"spark.driver.memory": "1g", "spark.ui.showConsoleProgress": False}
    spark = session("losing", "local[2,3]", **settings)
    setattr(replay_run, "Step", LosingStep)  # noqa: B010 - another type
    told = replay(namesrv, to=target, choice=Choice(topics=(source,)), spark=spark)
    spark.stop()
    sys.stdout.write(f"{told.sent}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
