"""Spark finds the source by itself; without Spark the package says what is missing."""

import importlib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cometmq.testing import BlockingEmbeddedBroker

from .sending import options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_of_which_nobody_told_us_has_the_format(
    spark: "SparkSession", broker: BlockingEmbeddedBroker
) -> None:
    broker.create_topic("unregistered", 1)
    other = spark.newSession()
    frame = other.read.format("rocketmq").options(**options(broker, topic="unregistered")).load()
    assert frame.columns[:4] == ["topic", "brokerName", "queueId", "queueOffset"]
    assert frame.collect() == []


def test_a_source_that_cannot_be_loaded_leaves_the_others_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cometmq.spark.data_source", None)
    monkeypatch.delitem(sys.modules, "pyspark_rocketmq", raising=False)
    with pytest.warns(UserWarning, match=r'format\("rocketmq"\) is not available'):
        module = importlib.import_module("pyspark_rocketmq")
    assert not hasattr(module, "DefaultSource")
    monkeypatch.delitem(sys.modules, "pyspark_rocketmq")


def test_without_spark_the_source_says_what_to_install() -> None:
    script = "import sys; sys.modules['pyspark'] = None; import cometmq.spark.data_source"
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "NotReady: Spark is not ready: " in ended.stderr
    assert "pip install 'cometmq[spark]'" in ended.stderr
