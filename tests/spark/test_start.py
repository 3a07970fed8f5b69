"""What every Python process of Spark's pays before it does anything."""

import subprocess
import sys

NOT_FOR_READING = {
    "cometmq.client.admin", "cometmq.client.producer.producer", "cometmq.spark.sink.writers",
    "cometmq.broker", "cometmq.namesrv", "cometmq.store", "cometmq.cli",
}  # fmt: skip


def test_a_process_that_only_reads_imports_nothing_else() -> None:
    program = "import sys, cometmq.spark.data_source; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(done.stdout.split())
    assert "cometmq.spark.topic.ranges" in loaded
    assert NOT_FOR_READING.isdisjoint(loaded)
