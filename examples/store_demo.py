"""A message store's life in half a minute: write, crash, recover, read, look up, rebuild.

    python -m examples.store_demo [MESSAGES]

Another process writes and is killed with SIGKILL in the middle; this one opens what it left.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cometmq.protocol import hot, java
from cometmq.protocol.message import Message
from cometmq.protocol.properties import encode_properties
from cometmq.protocol.record import iter_records
from cometmq.store.config import MIB, FlushMode, StoreConfig
from cometmq.store.message_store import MessageStore

TOPIC = "TopicTest"
QUEUES = 4


def config(root: Path) -> StoreConfig:
    return StoreConfig(root=root, commit_log_file_bytes=16 * MIB, flush=FlushMode.SYNC)


def order(number: int) -> Message:
    properties = {
        "UNIQ_KEY": f"7F00000100002A139A1E{number:012X}",
        "KEYS": f"order-{number}",
        "TAGS": "paid" if number % 3 else "refund",
    }
    return Message(
        topic=TOPIC,
        queue_id=number % QUEUES,
        body=f"order {number}: 一杯咖啡".encode(),
        properties=encode_properties(properties),
        born_timestamp=time.time_ns() // 1_000_000,
    )


def write(root: Path, count: int) -> None:
    """Write with synchronous flush and tell after each batch how many messages are safe."""
    store = MessageStore(config(root))
    store.open()
    for first in range(0, count, 100):
        placed = store.append_all([order(number) for number in range(first, first + 100)])
        store.dispatch()
        store.wait_settled(placed[-1])
        say(str(first + 100))
    store.close()


def kill_a_writer(root: Path, count: int) -> int:
    """Let a process write, kill it after half of it; how many messages it had acknowledged."""
    command = [sys.executable, "-m", "examples.store_demo", "--write", str(root), str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acknowledged = 0
        for line in writer.stdout:
            acknowledged = int(line)
            if acknowledged >= count // 2:
                os.kill(writer.pid, signal.SIGKILL)
                break
    return acknowledged


def show_reads(store: MessageStore) -> None:
    result = store.read(TOPIC, 0, 0, count_max=3)
    say(f"queue 0 begins with ({result.count} messages in {len(result.slices)} slices of the log):")
    for piece in result.slices:
        for message in iter_records(piece):
            say(f"  offset {message.queue_offset}: {message.body.decode()}")
    refunds = store.read(
        TOPIC, 0, 0, count_max=1000, tag_hashes=frozenset({java.string_hash("refund")})
    )
    say(f"of its first {refunds.next_offset} messages, {refunds.count} have the tag `refund`")
    found = store.query(TOPIC, "order-1234")[0]
    say(f"key order-1234 is found at log offset {found.physical_offset}: {found.body.decode()}")


def main(count: int) -> None:
    root = Path(tempfile.mkdtemp(prefix="cometmq-demo-"))
    try:
        say(f"codec: {'compiled' if hot.COMPILED else 'plain Python'}; store: {root}")
        acknowledged = kill_a_writer(root, count)
        say(
            f"a writer with synchronous flush was killed after {acknowledged} acknowledged messages"
        )
        store = MessageStore(config(root))
        report = store.open()
        kept = sum(queue.max_offset for _, queue in store.queues)
        say(f"recovered in {report.seconds * 1000:.0f} ms: {kept} messages, none lost")
        assert kept >= acknowledged, "an acknowledged message is gone"
        show_reads(store)
        store.close()
        for directory in ("consumequeue", "index"):
            shutil.rmtree(root / directory)
        store = MessageStore(config(root))
        report = store.open()
        say(f"ConsumeQueues and index deleted: rebuilt in {report.seconds * 1000:.0f} ms")
        show_reads(store)
        store.close()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
