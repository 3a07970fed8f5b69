"""A process that writes to a store until it is killed, telling each message it may acknowledge.

    python -m tests.store.writer ROOT sync|async [fail-after N]

Prints a message's number when its flush mode lets it be acknowledged. `fail-after` lets syncs
fail from that number on.
"""

import logging
import sys
from pathlib import Path

from cometmq.store.config import FlushMode
from cometmq.store.failure import exit_on_failure
from cometmq.store.message_store import MessageStore
from cometmq.testing.disk import FailingDisk

from .stores import numbered, small_config

BATCH = 8


def main(root: str, mode: str, fail_after: int = sys.maxsize) -> None:
    logging.basicConfig(level=logging.ERROR)
    disk = FailingDisk()
    flush = FlushMode.SYNC if mode == "sync" else FlushMode.ASYNC
    config = small_config(Path(root), flush=flush, flush_interval_ms=20, queue_flush_interval_ms=20)
    store = MessageStore(config, disk=disk, on_failure=exit_on_failure)
    store.open()
    number = len([None for _, queue in store.queues for _ in range(queue.max_offset)])
    while True:
        disk.failing = number >= fail_after
        placed = store.append_all([numbered(n) for n in range(number, number + BATCH)])
        store.dispatch()
        store.wait_settled(placed[-1])
        for _ in placed:
            sys.stdout.write(f"{number}\n")
            number += 1
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[4:]))
