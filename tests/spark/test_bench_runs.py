"""What `bench.spark` asks of a session."""

from typing import TYPE_CHECKING

import msgspec
import pytest
from bench.spark.runs import Run, measured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_settings_of_a_run_end_with_it(spark: "SparkSession") -> None:
    from pyspark.errors import NumberFormatException

    strict = Run(kind="sink", format="noop", rows=2, select=("cast('x' as int) as number",))
    lenient = msgspec.structs.replace(strict, settings={"spark.sql.ansi.enabled": "false"})
    assert measured(spark, lenient)["rows_per_s"] > 0
    with pytest.raises(NumberFormatException):
        measured(spark, strict)
