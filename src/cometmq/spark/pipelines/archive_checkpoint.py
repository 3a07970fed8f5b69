"""How Spark keeps an archive's checkpoint on a disk: without a process for every question.

Spark writes files of a checkpoint by Hadoop's FileContext, which asks the programs `readlink` and
`chmod` where Hadoop's native library is not there, as with PySpark: twenty processes a batch, and
nothing goes on meanwhile. Spark's other way, which it takes where a file system has no FileContext,
starts a fifth of them. Either one writes a file under another name and renames it, and refuses a
batch that is there already, so a checkpoint may be continued by either.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING: Final = "spark.sql.streaming.checkpointFileManagerClass"
MANAGER: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


@contextlib.contextmanager
def quick_checkpoint(spark: "SparkSession", checkpoint: str) -> Iterator[None]:
    """For a query that is started inside: it keeps the settings that it was started with."""
    if not _is_ours_to_choose(spark, checkpoint):
        yield
        return
    spark.conf.set(SETTING, MANAGER)
    try:
        yield
    finally:
        spark.conf.unset(SETTING)


def _is_ours_to_choose(spark: "SparkSession", checkpoint: str) -> bool:
    is_on_disk = urlsplit(checkpoint).scheme in ("", "file")
    return is_on_disk and spark.conf.get(SETTING, None) is None and _is_there(spark)


def _is_there(spark: "SparkSession") -> bool:
    """Spark has moved it before, and may again."""
    from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]

    found = spark._jvm  # noqa: SLF001 - Python has no name for it
    for part in MANAGER.split("."):
        found = getattr(found, part)
    return isinstance(found, JavaClass)
