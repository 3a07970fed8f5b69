"""Garbage of Spark's workers: what they have loaded is not looked at again and again."""

import gc
from typing import TYPE_CHECKING

import pytest
from pyspark import TaskContext

from cometmq.spark import worker_garbage
from cometmq.spark.worker_garbage import leave_modules_alone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULES_OBJECTS = 10_000


def test_where_no_task_runs_garbage_is_collected_as_ever() -> None:
    before = gc.get_freeze_count()
    leave_modules_alone()
    assert gc.get_freeze_count() == before


def test_a_worker_leaves_its_modules_alone_and_still_collects_what_comes_later(
    spark: "SparkSession",
) -> None:
    def counted(_: int) -> tuple[int, int]:
        leave_modules_alone()
        first = gc.get_freeze_count()
        cycles = [[] for _ in range(100)]  # type: list[list[object]]
        for cycle in cycles:
            cycle.append(cycle)
        del cycle, cycles
        found = gc.collect()
        leave_modules_alone()
        assert gc.get_freeze_count() <= first
        return first, found

    [(frozen, found)] = spark.sparkContext.parallelize([0], 1).map(counted).collect()
    assert frozen > MODULES_OBJECTS
    assert found >= 100


def test_it_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(1))
    monkeypatch.setattr(TaskContext, "get", object)
    worker_garbage._freeze.cache_clear()
    try:
        leave_modules_alone()
        leave_modules_alone()
    finally:
        worker_garbage._freeze.cache_clear()
    assert calls == [1]
