"""What every Python process of Spark's pays before it does anything."""

import subprocess
import sys

NOT_FOR_READING = {
    "cometmq.client.admin", "cometmq.client.producer.producer", "cometmq.spark.sink.writers",
    "cometmq.broker", "cometmq.namesrv", "cometmq.store", "cometmq.cli",
}  # fmt: skip


def test_a_process_that_only_reads_imports_nothing_else() -> None:
    loaded = _loaded_by("cometmq.spark.data_source, cometmq.spark.topic.ranges")
    assert NOT_FOR_READING.isdisjoint(loaded)


def test_a_process_that_only_plans_does_not_import_what_reads() -> None:
    loaded = _loaded_by("cometmq.spark.pipelines.archive_source, cometmq.spark.topic.stream")
    assert "cometmq.spark.topic.ranges" not in loaded
    assert "pyarrow.parquet" not in loaded


def _loaded_by(modules: str) -> set[str]:
    program = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split())
